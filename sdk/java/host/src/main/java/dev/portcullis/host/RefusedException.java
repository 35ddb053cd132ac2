package dev.portcullis.host;

import org.jspecify.annotations.Nullable;

/** An {@link Initializer} refuses an object: it is a denial, and no failure. */
public final class RefusedException extends Exception {
  private static final long serialVersionUID = 1;

  private final transient Response response;

  /**
   * Refuses with 403 Forbidden.
   *
   * @param text tells the person whose object is refused why, and what to do
   */
  public RefusedException(@Nullable String text) {
    this(Response.deny(text));
  }

  /**
   * Refuses as a denial says.
   *
   * @param denial one of {@link Response#deny}; null refuses with 403 Forbidden
   * @throws IllegalArgumentException if it allows
   */
  public RefusedException(@Nullable Response denial) {
    super(denial == null ? "" : denial.message().getStatus().getMessage());
    if (denial != null && denial.isAllowed()) {
      throw new IllegalArgumentException("the response allows: want one of Response.deny");
    }
    response = denial == null ? Response.deny("") : denial;
  }

  /**
   * What the client gets.
   *
   * @return the denial
   */
  public Response response() {
    return response;
  }
}
