package dev.portcullis.host;

import java.util.List;

/**
 * How a host stands with its dispatchers, for health pages and tests. It is immutable.
 *
 * @param sessions those that dispatchers have accepted, by the ids of the dispatchers
 */
public record Status(List<Session> sessions) {
  /**
   * A session that a dispatcher has accepted.
   *
   * @param id of the session
   * @param dispatcher id of the process of the dispatcher
   * @param revision digest of the configuration that the dispatcher named last
   * @param leaving whether the dispatcher sends no new calls
   * @param hooks the states that the dispatcher reported, in no order
   * @param ignoredFrames number of frames of types that this SDK does not know
   */
  public record Session(
      String id,
      String dispatcher,
      String revision,
      boolean leaving,
      List<Hook> hooks,
      long ignoredFrames) {}

  /**
   * The answer of a dispatcher to the offer of a hook.
   *
   * @param name of the hook
   * @param stage of the hook
   * @param clusters for which the hook is in this state; empty means all
   * @param state the state
   * @param message explains what to do about it; may be empty
   */
  public record Hook(
      String name, Stage stage, List<String> clusters, State state, String message) {}

  /** How a hook stands with a dispatcher. */
  public enum State {
    /** A state that this SDK does not know. */
    UNSPECIFIED,
    /** No configuration holds a hook of this name and stage. */
    UNKNOWN_HOOK,
    /** No HookRoute grants the hook to the identity of the host. */
    NOT_AUTHORIZED,
    /** The hook waits for its first probe. */
    PENDING,
    /** The hook is asked for verdicts. */
    IN_ROTATION,
    /** The hook gets no new calls; those in flight finish. */
    REMOVING,
    /** The hook is gone. */
    REMOVED;

    static State of(dev.portcullis.host.v1.State state) {
      return Names.same(values(), "STATE_", state);
    }
  }
}
