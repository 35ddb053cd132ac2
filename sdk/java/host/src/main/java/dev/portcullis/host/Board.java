package dev.portcullis.host;

import dev.portcullis.host.v1.DispatcherDrain;
import dev.portcullis.host.v1.HookState;
import dev.portcullis.host.v1.Welcome;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Collects the states that dispatchers report on the sessions. Safe for concurrent use. */
final class Board implements SessionListener {
  /** A hook for the same clusters has one state. */
  private record Key(HookId hook, List<String> clusters) {}

  /** What is known of a session. */
  private static final class Entry {
    String id = "";
    String dispatcher = "";
    String revision = "";
    boolean leaving;
    final Map<Key, Status.Hook> hooks = new LinkedHashMap<>();
  }

  private final Logger logger;
  private final CompletableFuture<Void> ready = new CompletableFuture<>();

  // Guarded by this.
  private final Set<HookId> waiting; // for the rotation
  private final Map<StreamSession, Entry> sessions = new LinkedHashMap<>();
  private final Map<Key, Status.Hook> logged = new LinkedHashMap<>(); // last, of any session

  Board(Collection<HookId> hooks, Logger logger) {
    this.waiting = new HashSet<>(hooks);
    this.logger = logger;
  }

  CompletableFuture<Void> ready() {
    return ready;
  }

  @Override
  public void welcomed(StreamSession session, Welcome welcome) {
    boolean opened;
    List<Status.Hook> news;
    synchronized (this) {
      opened = !sessions.containsKey(session);
      Entry entry = sessions.computeIfAbsent(session, s -> new Entry());
      entry.id = welcome.getSessionId();
      entry.dispatcher = welcome.getDispatcherId();
      entry.revision = welcome.getRevision();
      news = set(entry, welcome.getHooksList());
    }
    if (opened) {
      logger.log(
          Level.INFO,
          () ->
              String.format(
                  "session opened: dispatcher=%s session=%s",
                  welcome.getDispatcherId(), welcome.getSessionId()));
    }
    log(welcome.getDispatcherId(), news);
  }

  @Override
  public void hookChanged(StreamSession session, HookState state) {
    String dispatcher;
    List<Status.Hook> news;
    synchronized (this) {
      Entry entry = sessions.get(session);
      if (entry == null) {
        return;
      }
      dispatcher = entry.dispatcher;
      news = set(entry, List.of(state));
    }
    log(dispatcher, news);
  }

  @Override
  public synchronized void leaving(StreamSession session, DispatcherDrain drain) {
    Entry entry = sessions.get(session);
    if (entry != null) {
      entry.leaving = true;
    }
  }

  @Override
  public synchronized void ended(StreamSession session) {
    sessions.remove(session);
  }

  Status status() {
    Map<StreamSession, Status.Session> out = new LinkedHashMap<>();
    synchronized (this) {
      sessions.forEach((session, entry) -> out.put(session, statusOf(entry)));
    }
    return new Status(
        out.entrySet().stream()
            .map(e -> withIgnored(e.getValue(), e.getKey().ignoredFrames()))
            .sorted(Comparator.comparing(Status.Session::dispatcher))
            .toList());
  }

  private static Status.Session statusOf(Entry e) {
    return new Status.Session(
        e.id, e.dispatcher, e.revision, e.leaving, List.copyOf(e.hooks.values()), 0);
  }

  private static Status.Session withIgnored(Status.Session s, long ignored) {
    return new Status.Session(
        s.id(), s.dispatcher(), s.revision(), s.leaving(), s.hooks(), ignored);
  }

  /** Sets states of hooks of a session, and returns those that are to be logged. */
  private List<Status.Hook> set(Entry entry, List<HookState> states) {
    List<Status.Hook> news = new ArrayList<>();
    for (HookState state : states) {
      HookId id = new HookId(state.getName(), state.getStage());
      Key key = new Key(id, List.copyOf(state.getClustersList()));
      Status.Hook next =
          new Status.Hook(
              id.name(),
              Stage.of(id.stage()),
              key.clusters(),
              Status.State.of(state.getState()),
              state.getMessage());
      if (!state.getRevision().isEmpty()) {
        entry.revision = state.getRevision();
      }
      put(entry.hooks, key, next);
      if (put(logged, key, next)) {
        news.add(next);
      }
      if (next.state() == Status.State.IN_ROTATION && waiting.remove(id) && waiting.isEmpty()) {
        ready.completeAsync(() -> null); // What the user does then may block.
      }
    }
    return news;
  }

  /** Replaces a state, in bounded number, and reports whether it changed. */
  private static boolean put(Map<Key, Status.Hook> states, Key key, Status.Hook next) {
    if (!states.containsKey(key) && states.size() >= Limits.MAX_HOOK_STATES) {
      return false;
    }
    Status.@Nullable Hook before = states.put(key, next);
    return !next.equals(before);
  }

  /** Logs changes of hooks. A state in which the hook gets no calls is a warning. */
  private void log(String dispatcher, List<Status.Hook> news) {
    for (Status.Hook hook : news) {
      boolean useless =
          hook.state() == Status.State.UNKNOWN_HOOK || hook.state() == Status.State.NOT_AUTHORIZED;
      logger.log(
          useless ? Level.WARNING : Level.INFO,
          () ->
              String.format(
                  "hook changed: hook=%s stage=%s state=%s dispatcher=%s clusters=%s"
                      + " message=\"%s\"",
                  hook.name(),
                  hook.stage().name().toLowerCase(Locale.ROOT),
                  hook.state().name().toLowerCase(Locale.ROOT),
                  dispatcher,
                  hook.clusters(),
                  hook.message()));
    }
  }
}
