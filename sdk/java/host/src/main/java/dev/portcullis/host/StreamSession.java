package dev.portcullis.host;

import dev.portcullis.admission.v1.Stage;
import dev.portcullis.host.v1.ConnectRequest;
import dev.portcullis.host.v1.ConnectResponse;
import dev.portcullis.host.v1.HostServiceGrpc;
import dev.portcullis.host.v1.Probe;
import dev.portcullis.host.v1.Verdict;
import io.grpc.Channel;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.lang.System.Logger.Level;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * The shell around the {@link SessionCore} of one session. Threads of gRPC, of handlers and of the
 * timer step the core under a lock, and carry out what it asks outside of it. Each of them may
 * send; one of them does at a time.
 */
final class StreamSession implements ClientResponseObserver<ConnectRequest, ConnectResponse> {
  /**
   * How a session ended.
   *
   * @param error null if it ended cleanly
   * @param cutOff whether calls did not finish in the time to drain
   */
  record End(@Nullable String error, boolean cutOff) {}

  private final Settings settings;
  private final Machinery machinery;
  private final SessionListener listener;
  private final Runnable member = this::shareChanged; // of the budget
  private final CompletableFuture<End> ended = new CompletableFuture<>();
  private final Object lock = new Object();
  private volatile @Nullable ClientCallStreamObserver<ConnectRequest>
      stream; // set once, before any callback

  // Guarded by lock.
  private @Nullable SessionCore core; // null until the stream is open
  private boolean sending; // by one thread
  private boolean paused; // no frame is asked for
  private @Nullable End aborted; // why this side ended the stream
  private @Nullable ScheduledFuture<?> timer;
  private long timerAt = Long.MAX_VALUE;

  StreamSession(Settings settings, Machinery machinery, SessionListener listener) {
    this.settings = settings;
    this.machinery = machinery;
    this.listener = listener;
  }

  /** Opens the stream and serves until it ends. */
  End serve(Channel channel) {
    Future<?> timeout =
        machinery.timer().schedule(this::checkOpen, Limits.CONNECT_TIMEOUT, TimeUnit.NANOSECONDS);
    HostServiceGrpc.newStub(channel).connect(this);
    synchronized (lock) {
      if (aborted != null) {
        stream().cancel(aborted.error(), null);
      }
    }
    try {
      return ended.join();
    } finally {
      timeout.cancel(false);
    }
  }

  /**
   * Announces that the host takes no new calls; a stream that is not open yet is given up. Later
   * calls do nothing.
   */
  void drain() {
    boolean open =
        step(
            c -> {
              c.drain(machinery.now());
              return List.of();
            });
    if (!open) {
      abort(new End("the host drains", false));
    }
  }

  long ignoredFrames() {
    synchronized (lock) {
      return core == null ? 0 : core.ignored();
    }
  }

  /** Whether the dispatcher sent anything after its welcome. */
  boolean wasUseful() {
    synchronized (lock) {
      return core != null && core.wasUseful();
    }
  }

  @Override
  public void beforeStart(ClientCallStreamObserver<ConnectRequest> requestStream) {
    stream = requestStream;
    requestStream.disableAutoRequestWithInitial(1);
    requestStream.setOnReadyHandler(this::writable);
  }

  /** The stream takes frames: it has been opened, or has sent what waited. */
  private void writable() {
    boolean opened;
    synchronized (lock) {
      opened = core == null && !ended.isDone();
    }
    if (opened) {
      open();
    }
    flush();
  }

  private void open() {
    machinery.budget().add(member);
    synchronized (lock) {
      core =
          new SessionCore(
              machinery.now(),
              settings.hello().toBuilder().setMaxOutstanding(machinery.budget().share()).build(),
              settings.hooks(),
              settings.drainTimeout());
    }
    shareChanged();
  }

  private void checkOpen() {
    synchronized (lock) {
      if (core != null) {
        return;
      }
    }
    abort(new End("the dispatcher cannot be reached in time", false));
  }

  @Override
  public void onNext(ConnectResponse frame) {
    if (!step(c -> c.frame(machinery.now(), frame))) {
      abort(new End("the dispatcher spoke before the host", false));
    }
    boolean read;
    synchronized (lock) {
      paused = core != null && core.isBehind();
      read = !paused;
    }
    if (read) {
      stream().request(1);
    }
  }

  @Override
  public void onError(Throwable thrown) {
    Throwable cause = thrown.getCause();
    finish(new End(thrown.getMessage() + (cause == null ? "" : ": " + cause.getMessage()), false));
  }

  @Override
  public void onCompleted() {
    finish(new End(null, false));
  }

  private void finish(End end) {
    List<Invocation> unfinished;
    End told;
    synchronized (lock) {
      told = aborted == null ? end : aborted;
      unfinished = core == null ? List.of() : core.unfinished();
      if (core != null) {
        core.unwritable();
      }
      cancelTimer();
      timerAt = Long.MIN_VALUE; // No other is set.
    }
    machinery.budget().remove(member);
    unfinished.forEach(i -> machinery.pool().stop(i, Invocation.End.SESSION_LOST, this::finished));
    listener.ended(this);
    ended.complete(told);
  }

  @FunctionalInterface
  private interface Step {
    List<Effect> apply(SessionCore core);
  }

  /** Steps the core, carries out what it asks, and sends; false if the stream is not open. */
  private boolean step(Step change) {
    List<Effect> effects;
    synchronized (lock) {
      if (core == null) {
        return false;
      }
      effects = change.apply(core);
      setTimer(core.wake());
    }
    effects.forEach(this::carryOut);
    flush();
    return true;
  }

  private void carryOut(Effect effect) {
    if (effect instanceof Effect.Start start) {
      machinery.pool().submit(start.invocation(), this::finished);
    } else if (effect instanceof Effect.Stop stop) {
      machinery.pool().stop(stop.invocation(), stop.why(), this::finished);
    } else if (effect instanceof Effect.Welcome welcome) {
      listener.welcomed(this, welcome.message());
    } else if (effect instanceof Effect.HookChanged changed) {
      listener.hookChanged(this, changed.message());
    } else if (effect instanceof Effect.Leaving leaving) {
      machinery.budget().remove(member);
      listener.leaving(this, leaving.message());
    } else if (effect instanceof Effect.Check check) {
      check(check.probe());
    } else if (effect instanceof Effect.Abort abort) {
      abort(new End(abort.why(), abort.cutOff()));
    }
  }

  private void finished(Invocation invocation, Verdict.Builder outcome) {
    step(
        c -> {
          c.finished(machinery.now(), invocation, outcome);
          return List.of();
        });
  }

  /**
   * Announces the share of the budget. It is read under the lock, so that the later one of two
   * changes is announced last.
   */
  private void shareChanged() {
    step(
        c -> {
          c.credit(machinery.budget().share());
          return List.of();
        });
  }

  private void abort(End why) {
    synchronized (lock) {
      if (aborted == null) {
        aborted = why;
      }
      if (stream == null) {
        return; // serve will end it.
      }
    }
    stream().cancel(why.error(), null);
  }

  /**
   * Sends the frames that wait, as far as the stream takes them. One thread does so, and also sends
   * what others add.
   */
  private void flush() {
    for (ConnectRequest frame = claim(); frame != null; frame = next()) {
      send(frame);
    }
  }

  private @Nullable ConnectRequest claim() {
    synchronized (lock) {
      if (sending || core == null) {
        return null;
      }
      sending = true;
    }
    return next();
  }

  /** The next frame; null ends the sending of this thread. */
  private @Nullable ConnectRequest next() {
    ConnectRequest frame;
    boolean close;
    boolean read;
    synchronized (lock) {
      if (core == null) {
        return null;
      }
      frame = stream().isReady() ? core.poll() : null;
      close = frame == null && core.takeClose();
      sending = frame != null;
      read = paused && !core.isBehind();
      paused &= !read;
    }
    if (read) {
      stream().request(1);
    }
    if (close) {
      attempt(stream()::onCompleted);
    }
    return frame;
  }

  private void send(ConnectRequest frame) {
    attempt(() -> stream().onNext(frame));
  }

  /** Writes to the stream. If that fails, the reader learns why. */
  private void attempt(Runnable write) {
    try {
      write.run();
    } catch (IllegalStateException e) { // It was cancelled meanwhile.
      synchronized (lock) {
        if (core != null) {
          core.unwritable();
        }
      }
    }
  }

  private void setTimer(long at) {
    if (at >= timerAt) {
      return; // An early tick does no harm.
    }
    cancelTimer();
    timerAt = at;
    timer =
        machinery
            .timer()
            .schedule(this::tick, Math.max(0, at - machinery.now()), TimeUnit.NANOSECONDS);
  }

  private void cancelTimer() {
    if (timer != null) {
      timer.cancel(false);
    }
  }

  private void tick() {
    synchronized (lock) {
      if (timerAt == Long.MIN_VALUE) {
        return;
      }
      timerAt = Long.MAX_VALUE;
    }
    step(c -> c.tick(machinery.now()));
  }

  /** Checks the hooks of a name, on a thread that is interrupted when that takes too long. */
  private void check(Probe probe) {
    AtomicBoolean answered = new AtomicBoolean();
    Future<?> checking =
        machinery.workers().submit(() -> answer(answered, probe, notReady(probe.getHook())));
    Future<?> unused =
        machinery
            .timer()
            .schedule(
                () -> {
                  checking.cancel(true);
                  answer(answered, probe, Outcomes.NOT_READY);
                },
                Limits.PROBE_TIMEOUT,
                TimeUnit.NANOSECONDS);
  }

  private void answer(AtomicBoolean answered, Probe probe, @Nullable String notReady) {
    if (answered.compareAndSet(false, true)) {
      step(
          c -> {
            c.probed(probe.getSeq(), notReady);
            return List.of();
          });
    }
  }

  /** Why the hooks of a name are not ready; null if they are. */
  private @Nullable String notReady(String name) {
    for (Stage stage : HookId.STAGES) {
      Hook hook = settings.hooks().get(new HookId(name, stage));
      Readiness readiness = hook == null ? null : hook.readiness();
      if (readiness == null) {
        continue;
      }
      try {
        readiness.check();
      } catch (Throwable t) {
        settings.logger().log(Level.WARNING, "hook is not ready: hook=" + name, t);
        return Outcomes.publicText(t, Outcomes.NOT_READY);
      }
    }
    return null;
  }

  private ClientCallStreamObserver<ConnectRequest> stream() {
    ClientCallStreamObserver<ConnectRequest> set = stream;
    if (set == null) {
      throw new IllegalStateException("the stream was not started");
    }
    return set;
  }
}
