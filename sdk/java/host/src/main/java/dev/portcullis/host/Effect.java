package dev.portcullis.host;

import dev.portcullis.host.v1.DispatcherDrain;
import dev.portcullis.host.v1.HookState;
import dev.portcullis.host.v1.Probe;

/**
 * What the shell has to do after a step of a {@link SessionCore}. The frames to send are in its
 * outbox.
 */
sealed interface Effect {
  /** The dispatcher has accepted the host, or says more. */
  record Welcome(dev.portcullis.host.v1.Welcome message) implements Effect {}

  /** The state of a hook has changed since the welcome. */
  record HookChanged(HookState message) implements Effect {}

  /** The dispatcher drains. */
  record Leaving(DispatcherDrain message) implements Effect {}

  /** A handler is to be called. */
  record Start(Invocation invocation) implements Effect {}

  /** A call is over before its verdict. */
  record Stop(Invocation invocation, Invocation.End why) implements Effect {}

  /** The readiness of the hooks of a name is asked for. */
  record Check(Probe probe) implements Effect {}

  /**
   * The stream is to be ended at once.
   *
   * @param cutOff whether calls did not finish in the time to drain
   */
  record Abort(String why, boolean cutOff) implements Effect {}
}
