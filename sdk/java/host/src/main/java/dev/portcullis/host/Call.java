package dev.portcullis.host;

import java.time.Duration;
import java.time.Instant;

/**
 * What a handler may know of the call that it answers. All methods may be called from any thread.
 */
public interface Call {
  /**
   * The time that is left for the verdict, never negative. Hand it to whatever the handler waits
   * for, for example as the deadline of a request.
   *
   * @return the time until {@link #deadline}, zero when it is over
   */
  Duration remaining();

  /**
   * When the time of the call is over.
   *
   * @return the time, by the clock of this machine
   */
  Instant deadline();

  /**
   * Whether nobody waits for the verdict any more: its time is over, the dispatcher has cancelled
   * it, or the session is lost.
   *
   * @return whether the call has ended
   */
  boolean isCancelled();

  /**
   * Runs an action when the call ends before its handler has returned; at once if it has ended
   * already. The action runs on a thread of the SDK, and is never run twice.
   *
   * @param action stops what the handler has started elsewhere
   */
  void onCancel(Runnable action);
}
