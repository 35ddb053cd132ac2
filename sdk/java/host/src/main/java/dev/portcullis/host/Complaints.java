package dev.portcullis.host;

/** Bounds how often the failures of a hook are logged. Safe for concurrent use. */
final class Complaints {
  private static final int NOT_NOW = -1;

  private boolean any;
  private long last;
  private int unlogged;

  /**
   * Returns how many failures were not logged since the last one; negative if this one is not to be
   * logged either.
   */
  synchronized int allow(long now) {
    if (any && now - last < Limits.COMPLAINT_INTERVAL) {
      unlogged++;
      return NOT_NOW;
    }
    int before = unlogged;
    any = true;
    last = now;
    unlogged = 0;
    return before;
  }
}
