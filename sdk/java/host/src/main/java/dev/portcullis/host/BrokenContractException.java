package dev.portcullis.host;

import com.google.errorprone.annotations.FormatMethod;

/**
 * The dispatcher violates the contract: the two sides no longer agree on the calls in flight. It
 * ends the session.
 */
final class BrokenContractException extends Exception {
  private static final long serialVersionUID = 1;

  @FormatMethod
  BrokenContractException(String format, Object... arguments) {
    super("the dispatcher broke the contract: " + String.format(format, arguments));
  }

  static BrokenContractException order(long call, long before) {
    return new BrokenContractException(
        "call %s came after call %s: each comes once, in the order of their ids",
        Long.toUnsignedString(call), Long.toUnsignedString(before));
  }
}
