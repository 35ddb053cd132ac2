package dev.portcullis.host;

import org.jspecify.annotations.Nullable;

/** Says more about one hook. It is immutable. */
public final class HookOption {
  private static final HookOption SPECULATE = new HookOption(null);

  private final @Nullable Readiness readiness; // null for SPECULATE

  private HookOption(@Nullable Readiness readiness) {
    this.readiness = readiness;
  }

  /**
   * Agrees to calls whose verdicts may be discarded: the dispatcher may then ask a mutating hook
   * before those in front of it have answered. Only for handlers without side effects.
   *
   * @return the option
   */
  public static HookOption speculate() {
    return SPECULATE;
  }

  /**
   * Has the hook called only once it is ready. Without this option it is ready as soon as the host
   * is connected.
   *
   * @param readiness says whether it is
   * @return the option
   */
  public static HookOption ready(Readiness readiness) {
    return new HookOption(readiness);
  }

  @Nullable Readiness readiness() {
    return readiness;
  }
}
