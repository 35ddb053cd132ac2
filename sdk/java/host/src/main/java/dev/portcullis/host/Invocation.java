package dev.portcullis.host;

import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Review;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;
import org.jspecify.annotations.Nullable;

/**
 * One run of a handler for one verdict. A session's core makes it, and the shell runs it. It waits,
 * then runs, then is done; one that is stopped while it waits never runs. Safe for concurrent use.
 */
final class Invocation {
  /** Why a call ends before its verdict. */
  enum End {
    DEADLINE,
    CANCELLED,
    SESSION_LOST
  }

  private enum State {
    WAITING,
    RUNNING,
    DONE
  }

  private final long callId;
  private final int index;
  private final Hook hook;
  private final Review review;
  private final long received;
  private final long deadline;

  private State state = State.WAITING;
  private @Nullable End end;
  private @Nullable Thread thread; // while it runs
  private List<Runnable> onStop = new ArrayList<>();

  /**
   * Makes an invocation.
   *
   * @param received when the review was whole
   */
  Invocation(Review review, int index, Hook hook, long received, long deadline) {
    this.callId = review.getCallId();
    this.index = index;
    this.hook = hook;
    this.review = review;
    this.received = received;
    this.deadline = deadline;
  }

  long callId() {
    return callId;
  }

  int index() {
    return index;
  }

  Hook hook() {
    return hook;
  }

  Review review() {
    return review;
  }

  HookCall call() {
    return review.getHooks(index);
  }

  long received() {
    return received;
  }

  long deadline() {
    return deadline;
  }

  /** Starts to run on this thread; false if it was stopped before. */
  synchronized boolean begin() {
    if (state != State.WAITING) {
      return false;
    }
    state = State.RUNNING;
    thread = Thread.currentThread();
    return true;
  }

  /** Ends the run. Afterwards the thread is not interrupted any more. */
  synchronized void finish() {
    state = State.DONE;
    thread = null;
    onStop = List.of();
    Thread.interrupted(); // It may have been meant for this handler, and is not for the next one.
  }

  /**
   * Ends the call. The thread of a running handler is interrupted.
   *
   * @return whether it waited, and never runs
   */
  boolean stop(End why, Executor callbacks) {
    List<Runnable> actions;
    synchronized (this) {
      if (end != null || state == State.DONE) {
        return false;
      }
      end = why;
      if (state == State.WAITING) {
        state = State.DONE;
        return true;
      }
      if (thread != null) {
        thread.interrupt();
      }
      actions = onStop;
      onStop = new ArrayList<>();
    }
    actions.forEach(callbacks::execute);
    return false;
  }

  /** Whether the call has ended before its verdict. */
  synchronized boolean isStopped() {
    return end != null;
  }

  /** Why the call never ran, as Refused says it. */
  synchronized String whyNotStarted() {
    return end == End.CANCELLED ? Outcomes.CANCELLED : Outcomes.NO_TIME;
  }

  /** Keeps an action for the end of the call; false if it has ended, and the action is due. */
  synchronized boolean keep(Runnable action) {
    if (end != null) {
      return false;
    }
    if (state == State.RUNNING) {
      onStop.add(action);
    }
    return true;
  }
}
