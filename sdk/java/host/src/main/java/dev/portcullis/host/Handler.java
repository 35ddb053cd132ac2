package dev.portcullis.host;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;

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
   * @param request the request to judge
   * @return the verdict
   * @throws DeniedException to deny, as if the denial was returned
   * @throws HandlerException to say in public why there is no verdict; failurePolicy decides then
   * @throws Exception any other exception is the same failure, and its text stays in this process.
   *     After the end of the call it means that the handler stopped as asked. An {@link Error}
   *     counts as a panic.
   */
  Response handle(Request request) throws Exception;

  /** A handler that answers later, for clients that return futures. */
  @FunctionalInterface
  interface Async {
    /**
     * Begins to judge a request.
     *
     * @param request the request to judge
     * @return the verdict, once it is there; an exception counts as one that a handler throws
     * @throws Exception as a handler does
     */
    CompletionStage<Response> handle(Request request) throws Exception;
  }

  /**
   * Makes a handler of a function that answers later. A thread of the executor waits for the
   * answer. The end of the call cancels the future.
   *
   * @param handler answers later
   * @return the handler
   */
  static Handler async(Async handler) {
    return request -> {
      CompletableFuture<Response> answer = handler.handle(request).toCompletableFuture();
      try {
        return answer.get();
      } catch (InterruptedException e) {
        answer.cancel(true);
        throw e;
      } catch (ExecutionException e) {
        if (e.getCause() instanceof Error error) {
          throw error;
        }
        throw e;
      }
    };
  }
}
