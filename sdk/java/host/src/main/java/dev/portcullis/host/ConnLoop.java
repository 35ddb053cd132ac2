package dev.portcullis.host;

import dev.portcullis.host.v1.DispatcherDrain;
import dev.portcullis.host.v1.HookState;
import dev.portcullis.host.v1.Welcome;
import io.grpc.ManagedChannel;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Keeps a session to one dispatcher: it dials, serves, and dials again, on a thread of its own. The
 * board notes all that its sessions report, and the dial plan what tells where dispatchers are.
 */
final class ConnLoop implements Runnable, SessionListener {
  private static final int MAX_DOUBLINGS = 6;

  private final DialPlan.Target target;
  private final ConnManager manager;
  private final CountDownLatch stopped = new CountDownLatch(1);
  private volatile @Nullable StreamSession session;
  private volatile boolean accepted; // the session in use was welcomed
  private volatile DialPlan.Endpoint at; // in use

  // Of the loop's thread.
  private int attempts; // since the last useful session
  private String lastError = ""; // that was logged

  ConnLoop(DialPlan.Target target, ConnManager manager) {
    this.target = target;
    this.manager = manager;
    this.at = target.endpoints().get(0);
  }

  /** Drains the session, and ends the loop after it. */
  void stop() {
    stopped.countDown();
    StreamSession current = session;
    if (current != null) {
      current.drain();
    }
  }

  @Override
  public void run() {
    try {
      long wait = target.delay();
      for (int turn = 0; !stopped.await(wait, TimeUnit.NANOSECONDS); turn++) {
        at = target.endpoints().get(turn % target.endpoints().size());
        report(serveOnce());
        manager.change(plan -> plan.ended(target.key()));
        wait = backoff(attempts, ThreadLocalRandom.current().nextDouble());
        attempts++;
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt(); // Nobody does so: the loop ends.
    } finally {
      manager.gone(target.key());
    }
  }

  /** Dials and holds one session. */
  private StreamSession.End serveOnce() {
    accepted = false;
    ManagedChannel channel;
    try {
      channel = Dialer.dial(manager.settings(), at);
    } catch (IOException e) {
      return new StreamSession.End(e.getMessage(), false);
    }
    StreamSession next = new StreamSession(manager.settings(), manager.machinery(), this);
    session = next;
    try {
      if (stopped.getCount() == 0) {
        next.drain();
      }
      return next.serve(channel);
    } finally {
      session = null;
      if (next.wasUseful()) {
        attempts = 0;
      }
      channel.shutdownNow();
    }
  }

  /** Logs the end of a session; of equal failures in a row, the first. */
  private void report(StreamSession.End end) {
    String text =
        end.error() == null
            ? ""
            : ": " + (accepted ? end.error() : manager.settings().tls().explain(end.error()));
    if (end.cutOff()) {
      manager.noteCutOff();
      log(Level.WARNING, "session drained in part", text);
    } else if (stopped.getCount() == 0) {
      log(Level.DEBUG, "session drained", text);
    } else if (accepted) {
      lastError = "";
      manager.resolveAll();
      log(Level.INFO, "session ended", text);
    } else if (!text.equals(lastError)) {
      lastError = text;
      log(Level.WARNING, "no session, trying on", text);
    }
  }

  private void log(Level level, String message, String error) {
    manager
        .settings()
        .logger()
        .log(level, () -> String.format("%s: address=%s%s", message, at.address(), error));
  }

  @Override
  public void welcomed(StreamSession of, Welcome welcome) {
    accepted = true;
    manager.board().welcomed(of, welcome);
    manager.change(
        plan -> plan.welcomed(target.key(), at, welcome.getDispatcherId(), welcome.getPeersList()));
  }

  @Override
  public void hookChanged(StreamSession of, HookState state) {
    manager.board().hookChanged(of, state);
  }

  @Override
  public void leaving(StreamSession of, DispatcherDrain drain) {
    manager.board().leaving(of, drain);
    manager.change(plan -> plan.leaving(target.key(), at, drain.getPeersList()));
  }

  @Override
  public void ended(StreamSession of) {
    manager.board().ended(of);
  }

  /**
   * The pause after attempts failures in a row, in nanoseconds: longer each time, and random by
   * chance, 0 to 1, so that the hosts of a dispatcher that restarts do not come back all at once.
   */
  static long backoff(int attempts, double chance) {
    long most =
        attempts < MAX_DOUBLINGS
            ? Math.min(Limits.BACKOFF_MAX, (2 * Limits.BACKOFF_MIN) << attempts)
            : Limits.BACKOFF_MAX;
    return Limits.BACKOFF_MIN + (long) (chance * (most - Limits.BACKOFF_MIN));
  }
}
