package dev.portcullis.host;

import java.lang.System.Logger.Level;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * Resolves the names of the dispatchers, and runs a {@link ConnLoop} for each dispatcher of the
 * dial plan.
 */
final class ConnManager {
  private final Settings settings;
  private final Machinery machinery;
  private final Board board;
  private final Map<HostPort, BlockingQueue<Boolean>> resolveNow =
      new LinkedHashMap<>(); // wake-ups

  // Guarded by this.
  private final DialPlan plan;
  private final Map<String, ConnLoop> running = new HashMap<>(); // by key
  private final List<Thread> resolvers = new ArrayList<>();
  private boolean closed; // no more loops are started
  private boolean cutOff; // calls of a session did not finish in time

  ConnManager(Settings settings, Machinery machinery, Board board) {
    this.settings = settings;
    this.machinery = machinery;
    this.board = board;
    for (String text : settings.dispatchers()) {
      HostPort.parse(text).ifPresent(name -> resolveNow.put(name, new ArrayBlockingQueue<>(1)));
    }
    this.plan = new DialPlan(List.copyOf(resolveNow.keySet()), settings.serverName());
  }

  Settings settings() {
    return settings;
  }

  Machinery machinery() {
    return machinery;
  }

  Board board() {
    return board;
  }

  synchronized void start() {
    resolveNow.forEach(
        (name, now) ->
            resolvers.add(Threads.start("portcullis-resolve-" + name, () -> resolve(name, now))));
  }

  /** Drains all sessions, and starts no more. */
  void drain() {
    List<ConnLoop> loops;
    synchronized (this) {
      closed = true;
      loops = List.copyOf(running.values());
      resolvers.forEach(Thread::interrupt);
      notifyAll();
    }
    loops.forEach(ConnLoop::stop);
  }

  /** Waits until all sessions have ended after {@link #drain}; false if calls were cut off. */
  synchronized boolean awaitEnd() throws InterruptedException {
    while (!closed || !running.isEmpty()) {
      wait();
    }
    return !cutOff;
  }

  /** Updates the dial plan, and starts and stops loops as it says. */
  void change(Function<DialPlan, DialPlan.Changes> update) {
    List<ConnLoop> stop = new ArrayList<>();
    synchronized (this) {
      if (closed) {
        return;
      }
      DialPlan.Changes changes = update.apply(plan);
      changes.stop().forEach(key -> stop.add(running.get(key)));
      for (DialPlan.Target target : changes.start()) {
        ConnLoop loop = new ConnLoop(target, this);
        running.put(target.key(), loop);
        Threads.start("portcullis-" + target.key(), loop);
      }
    }
    stop.forEach(ConnLoop::stop);
  }

  /** Takes the end of a loop. */
  void gone(String key) {
    synchronized (this) {
      running.remove(key);
      notifyAll();
    }
    change(p -> p.gone(key));
  }

  synchronized void noteCutOff() {
    cutOff = true;
  }

  /** Resolves all names at once: a dispatcher that is gone may be back at another address. */
  void resolveAll() {
    resolveNow.values().forEach(now -> now.offer(true));
  }

  /**
   * Keeps the addresses of one name current. While the name cannot be resolved the last addresses
   * count.
   */
  private void resolve(HostPort name, BlockingQueue<Boolean> now) {
    String lastError = "";
    try {
      while (true) {
        lastError = resolveOnce(name, lastError);
        now.poll(Limits.RESOLVE_INTERVAL, TimeUnit.NANOSECONDS);
      }
    } catch (InterruptedException e) {
      return; // The host drains.
    }
  }

  /** Returns the failure that was logged last, or that there was none. */
  private String resolveOnce(HostPort name, String lastError) {
    try {
      List<String> ips = settings.resolver().resolve(name.host());
      if (ips.isEmpty()) {
        throw new UnknownHostException(name.host() + " has no addresses");
      }
      change(p -> p.resolved(name, ips));
      return "";
    } catch (UnknownHostException | RuntimeException e) {
      String error = String.valueOf(e.getMessage());
      if (!error.equals(lastError)) {
        settings.logger().log(Level.WARNING, "dispatchers cannot be resolved: name=" + name, e);
      }
      return error;
    }
  }
}
