package dev.portcullis.host;

/** An {@link Initializer} refuses an object: it is a denial, and no failure. */
public final class RefusedException extends Exception {
  private static final long serialVersionUID = 1;

  private final transient Response response;

  /**
   * Refuses with 403 Forbidden.
   *
   * @param text tells the person whose object is refused why, and what to do
   */
  public RefusedException(String text) {
    this(Response.deny(text));
  }

  /**
   * Refuses as a denial says.
   *
   * @param denial one of {@link Response#deny}
   * @throws IllegalArgumentException if it allows
   */
  public RefusedException(Response denial) {
    super(denial.message().getStatus().getMessage());
    if (denial.message().getAllowed()) {
      throw new IllegalArgumentException("the response allows: want one of Response.deny");
    }
    response = denial;
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
