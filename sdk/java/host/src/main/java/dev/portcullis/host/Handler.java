package dev.portcullis.host;

/**
 * Judges one request for one hook.
 *
 * <p>It is called on many threads at once, and again for the same request: after a retry, or when
 * the API server repeats a write. What it does outside must tolerate that, and must not happen when
 * {@link Request#dryRun} is true.
 *
 * <p>Its thread is interrupted when the time of the call is over, when the dispatcher cancels the
 * call, and when the session is lost. Blocking methods of the JDK then throw {@link
 * InterruptedException}, which the handler should let through. The call keeps one of the slots of
 * the host until the handler returns.
 */
@FunctionalInterface
public interface Handler {
  /**
   * Judges a request.
   *
   * @param call what the handler may know of its call: the time that is left, and whether the
   *     verdict is still wanted
   * @param request the request to judge
   * @return the verdict
   * @throws HandlerException to say in public why there is no verdict; failurePolicy decides then
   * @throws Exception any other exception is the same failure, and its text stays in this process.
   *     After the end of the call it means that the handler stopped as asked. An {@link Error}
   *     counts as a panic.
   */
  Response handle(Call call, Request request) throws Exception;
}
