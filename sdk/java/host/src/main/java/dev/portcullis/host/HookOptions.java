package dev.portcullis.host;

import org.jspecify.annotations.Nullable;

/**
 * Says more about one hook. It is immutable.
 *
 * @param speculates whether the hook agrees to calls whose verdicts may be discarded: the
 *     dispatcher may then ask a mutating hook before those in front of it have answered. Only for
 *     handlers without side effects.
 * @param readiness answers whether the hook is ready for its first call; null if it is ready as
 *     soon as the host is connected
 */
public record HookOptions(boolean speculates, @Nullable Readiness readiness) {
  /** Agrees to nothing, and is ready at once. */
  public static final HookOptions DEFAULTS = new HookOptions(false, null);

  /**
   * Agrees to calls whose verdicts may be discarded.
   *
   * @return the options
   */
  public static HookOptions speculate() {
    return new HookOptions(true, null);
  }

  /**
   * Has the hook called only once it is ready.
   *
   * @param readiness says whether it is
   * @return the options
   */
  public static HookOptions readyWhen(Readiness readiness) {
    return new HookOptions(false, readiness);
  }

  /**
   * Has the hook called only once it is ready, besides what these options say.
   *
   * @param readiness says whether it is
   * @return the options
   */
  public HookOptions andReadyWhen(Readiness readiness) {
    return new HookOptions(speculates, readiness);
  }
}
