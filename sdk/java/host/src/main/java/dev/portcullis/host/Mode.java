package dev.portcullis.host;

/** Why a hook is asked. A handler without side effects need not care. */
public enum Mode {
  /** The usual case, like {@link #DECIDE}, or a mode that this SDK does not know. */
  UNSPECIFIED,
  /** The verdict decides. */
  DECIDE,
  /** The verdict may not count, as an earlier hook may still change the object. */
  SPECULATIVE,
  /** The verdict may not count, as another replica is asked as well. */
  HEDGE,
  /**
   * The verdict decides nothing. A handler that logs or counts its denials may want to leave that
   * out.
   */
  SHADOW;

  static Mode of(dev.portcullis.host.v1.Mode mode) {
    return Names.same(values(), "MODE_", mode);
  }
}
