package dev.portcullis.host;

/** Says whether a hook can judge requests, for example whether its caches are filled. */
@FunctionalInterface
public interface Readiness {
  /**
   * Returns if the hook is ready. It has 5 s; then its thread is interrupted. It is called again
   * until the hook is in rotation, by several threads at once.
   *
   * @throws HandlerException to tell the operator of the mesh why the hook is not ready
   * @throws Exception any other exception means "the hook is not ready"; its text stays in this
   *     process
   */
  void check() throws Exception;
}
