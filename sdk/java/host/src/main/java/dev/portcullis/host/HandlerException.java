package dev.portcullis.host;

import org.jspecify.annotations.Nullable;

/**
 * A failure with a text for the operator of the mesh. A handler throws it, also as the cause of
 * another exception, to explain why there is no verdict. The text of any other exception stays in
 * the process. It is no denial: failurePolicy decides.
 */
public final class HandlerException extends Exception {
  private static final long serialVersionUID = 1;

  /**
   * Makes a failure.
   *
   * @param message a text that crosses the wire, into logs, traces and explanations of the mesh,
   *     but not to the client of the cluster; it must hold no secrets. More than 1 KiB is cut.
   */
  public HandlerException(String message) {
    this(message, null);
  }

  /**
   * Makes a failure with a cause.
   *
   * @param message as above
   * @param cause is logged by this process and goes nowhere else
   */
  public HandlerException(String message, @Nullable Throwable cause) {
    super(message, cause);
  }
}
