package dev.portcullis.host;

import dev.portcullis.host.v1.Verdict;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.context.Context;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.ArrayDeque;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * Runs the handlers of all sessions, at most as many at a time as it has slots. The others wait, in
 * the order in which they came. Safe for concurrent use.
 */
final class HandlerPool {
  private record Task(Invocation invocation, BiConsumer<Invocation, Verdict.Builder> done) {}

  private static final long MICROSECOND = TimeUnit.MICROSECONDS.toNanos(1);

  private final int slots;
  private final Executor executor;
  private final Executor callbacks;
  private final LongSupplier clock;
  private final Codec codec;
  private final Telemetry telemetry;
  private final Logger logger;

  private final ArrayDeque<Task> waiting = new ArrayDeque<>(); // guarded by this
  private int running; // slots that are taken; guarded by this

  HandlerPool(Settings settings, Executor executor, Executor callbacks, LongSupplier clock) {
    this.slots = settings.maxOutstanding();
    this.executor = executor;
    this.callbacks = callbacks;
    this.clock = clock;
    this.codec = settings.codec();
    this.telemetry = new Telemetry(settings.openTelemetry());
    this.logger = settings.logger();
  }

  /**
   * Has a handler run, now or later. done takes its outcome, unless the invocation is stopped
   * before it begins.
   */
  void submit(Invocation invocation, BiConsumer<Invocation, Verdict.Builder> done) {
    Task task = new Task(invocation, done);
    synchronized (this) {
      if (running >= slots) {
        waiting.add(task);
        return;
      }
      running++;
    }
    try {
      executor.execute(() -> work(task));
    } catch (RejectedExecutionException e) {
      logger.log(Level.ERROR, "the executor takes no handlers", e);
      for (Task left = task; left != null; left = next()) { // Nobody else would run them.
        if (left.invocation().stop(Invocation.End.CANCELLED, callbacks)) {
          left.done().accept(left.invocation(), refused(left.invocation(), Outcomes.OVERLOADED));
        }
      }
    }
  }

  /** Stops an invocation: a running handler is interrupted, one that waits is answered at once. */
  void stop(
      Invocation invocation, Invocation.End why, BiConsumer<Invocation, Verdict.Builder> done) {
    if (!invocation.stop(why, callbacks)) {
      return;
    }
    synchronized (this) {
      waiting.removeIf(task -> task.invocation() == invocation);
    }
    done.accept(invocation, refused(invocation, invocation.whyNotStarted()));
  }

  /** Waits until no handler runs, for a bounded time; false if some still do. */
  synchronized boolean awaitIdle(long nanos) throws InterruptedException {
    long until = System.nanoTime() + nanos;
    for (long left = nanos; running > 0 && left > 0; left = until - System.nanoTime()) {
      TimeUnit.NANOSECONDS.timedWait(this, left);
    }
    return running == 0;
  }

  /** Runs handlers one after the other on one thread, for as long as some wait. */
  private void work(Task first) {
    for (Task task = first; task != null; task = next()) {
      if (task.invocation().begin()) {
        task.done().accept(task.invocation(), outcome(task.invocation()));
      }
    }
  }

  private synchronized @Nullable Task next() {
    Task next = waiting.poll();
    if (next == null) {
      running--;
      notifyAll();
    }
    return next;
  }

  /** Whatever is thrown, by the handler or by what traces it, costs this call alone. */
  private Verdict.Builder outcome(Invocation invocation) {
    try {
      return call(invocation);
    } catch (Throwable t) {
      invocation.finish();
      aside(() -> logger.log(Level.ERROR, "a call could not be traced", t));
      return Outcomes.threw(t, false);
    }
  }

  /**
   * Does what no verdict may depend on: logs and telemetry are the author's, and a denial must stay
   * one whatever they throw.
   */
  private void aside(Runnable tell) {
    try {
      tell.run();
    } catch (Throwable t) {
      try {
        logger.log(Level.ERROR, "a call could not be traced", t);
      } catch (Throwable again) {
        return; // There is no other place to say so.
      }
    }
  }

  /** Calls a handler, and returns its outcome. */
  private Verdict.Builder call(Invocation invocation) {
    long started = clock.getAsLong();
    long queued = started - invocation.received();
    Span span = telemetry.start(invocation, queued);
    Ended ended = judge(invocation, span);
    long handled = clock.getAsLong() - started;
    Verdict.Builder outcome =
        ended.outcome().setQueueUs(micros(queued)).setHandleUs(micros(handled));
    aside(() -> complain(invocation, ended));
    aside(() -> telemetry.end(span, outcome, ended.thrown()));
    aside(() -> telemetry.count(invocation, outcome, handled));
    return outcome;
  }

  /** How a handler ended, and what its verdict lacks of what its author gave. */
  private record Ended(Verdict.Builder outcome, String leftOut, @Nullable Throwable thrown) {}

  private Ended judge(Invocation invocation, Span span) {
    try {
      Call call = new RunningCall(invocation, clock, callbacks);
      Request request = new Request(invocation.review(), invocation.call(), codec, call);
      Handler handler = invocation.hook().handler();
      return returned(
          Context.current().with(span).wrap(() -> handler.handle(request)).call(), invocation);
    } catch (Throwable t) {
      Response denial = Outcomes.denial(t);
      return denial == null
          ? new Ended(Outcomes.threw(t, invocation.isStopped()), "", t)
          : returned(denial, invocation);
    } finally {
      invocation.finish();
    }
  }

  private static Ended returned(@Nullable Response response, Invocation invocation) {
    Verdict.Builder outcome =
        Outcomes.returned(response, invocation.hook().id().stage(), invocation.isStopped());
    return new Ended(
        outcome, response != null && outcome.hasResponse() ? response.leftOut() : "", null);
  }

  private Verdict.Builder refused(Invocation invocation, String reason) {
    Verdict.Builder outcome =
        Outcomes.refused(reason).setQueueUs(micros(clock.getAsLong() - invocation.received()));
    telemetry.count(invocation, outcome, 0);
    return outcome;
  }

  /** Logs a fault of a hook, seldom enough. */
  private void complain(Invocation invocation, Ended ended) {
    boolean failed = ended.outcome().hasError();
    int unlogged =
        failed || !ended.leftOut().isEmpty()
            ? invocation.hook().complaints().allow(clock.getAsLong())
            : -1;
    if (unlogged < 0) {
      return;
    }
    String text =
        String.format(
            "%s: hook=%s stage=%s cluster=%s uid=%s error=\"%s\" unlogged=%d",
            failed ? "handler failed" : "a part of the verdict cannot be sent",
            invocation.hook().id().name(),
            HookId.stageName(invocation.hook().id().stage()),
            invocation.review().getRequest().getCluster(),
            invocation.review().getRequest().getUid(),
            failed ? ended.outcome().getError().getMessage() : ended.leftOut(),
            unlogged);
    logger.log(Level.ERROR, text, ended.thrown());
  }

  private static int micros(long nanos) {
    return (int) Math.min(Math.max(nanos / MICROSECOND, 0), 0xFFFFFFFFL);
  }
}
