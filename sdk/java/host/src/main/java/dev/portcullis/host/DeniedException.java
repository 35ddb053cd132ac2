package dev.portcullis.host;

import org.jspecify.annotations.Nullable;

/**
 * Denies the request, from wherever a handler throws it: it is a denial at every stage, also as the
 * cause of another exception and after the end of the call, and no failure.
 */
public final class DeniedException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final transient Response response;

  /**
   * Denies with 403 Forbidden.
   *
   * @param text tells the person whose write is denied why, and what to do
   */
  public DeniedException(@Nullable String text) {
    this(Response.deny(text));
  }

  /**
   * Denies as a denial says.
   *
   * @param denial one of {@link Response#deny}; null denies with 403 Forbidden
   * @throws IllegalArgumentException if it allows
   */
  public DeniedException(@Nullable Response denial) {
    super(denial == null ? "" : denial.message().getStatus().getMessage());
    if (denial != null && denial.isAllowed()) {
      throw new IllegalArgumentException("the response allows: want one of Response.deny");
    }
    response = denial == null ? Response.deny("") : denial;
  }

  /**
   * The denial that the client gets.
   *
   * @return the denial
   */
  public Response response() {
    return response;
  }
}
