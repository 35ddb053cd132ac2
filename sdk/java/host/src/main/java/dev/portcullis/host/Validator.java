package dev.portcullis.host;

/**
 * Judges typed objects, with a function for each operation, so that no object is null. An operation
 * without a function is allowed. {@link #of} makes one; the methods that add to it return a new
 * one. It is immutable.
 *
 * @param <T> the type of the objects
 */
public final class Validator<T> implements Handler {
  /**
   * Judges an object.
   *
   * @param <T> its type
   */
  @FunctionalInterface
  public interface Judge<T> {
    /**
     * Judges an object.
     *
     * @param object to judge
     * @param request the request
     * @return the verdict
     * @throws Exception as a {@link Handler} does
     */
    Response judge(T object, Request request) throws Exception;
  }

  /**
   * Judges an update.
   *
   * @param <T> the type of the object
   */
  @FunctionalInterface
  public interface UpdateJudge<T> {
    /**
     * Judges an update.
     *
     * @param old the object before it
     * @param object the object after it
     * @param request the request
     * @return the verdict
     * @throws Exception as a {@link Handler} does
     */
    Response judge(T old, T object, Request request) throws Exception;
  }

  private final Class<T> type;
  private final Judge<T> create;
  private final UpdateJudge<T> update;
  private final Judge<T> delete;

  private Validator(Class<T> type, Judge<T> create, UpdateJudge<T> update, Judge<T> delete) {
    this.type = type;
    this.create = create;
    this.update = update;
    this.delete = delete;
  }

  /**
   * Begins a validator, which allows everything.
   *
   * @param <T> the type
   * @param type for example the {@code Pod} of fabric8, or Jackson's {@code ObjectNode}
   * @return the validator
   */
  public static <T> Validator<T> of(Class<T> type) {
    return new Validator<>(
        type,
        (object, request) -> Response.allow(),
        (old, object, request) -> Response.allow(),
        (old, request) -> Response.allow());
  }

  /**
   * Judges objects that are created.
   *
   * @param judge judges the new object
   * @return a validator like this one with the function
   */
  public Validator<T> onCreate(Judge<T> judge) {
    return new Validator<>(type, judge, update, delete);
  }

  /**
   * Judges objects that are updated.
   *
   * @param judge judges the object before and after the update
   * @return a validator like this one with the function
   */
  public Validator<T> onUpdate(UpdateJudge<T> judge) {
    return new Validator<>(type, create, judge, delete);
  }

  /**
   * Judges objects that are deleted.
   *
   * @param judge judges the object before its deletion
   * @return a validator like this one with the function
   */
  public Validator<T> onDelete(Judge<T> judge) {
    return new Validator<>(type, create, update, judge);
  }

  @Override
  public Response handle(Request request) throws Exception {
    return switch (request.operation()) {
      case "CREATE" -> create.judge(Request.present(request.object(type)), request);
      case "UPDATE" ->
          update.judge(
              Request.present(request.oldObject(type)),
              Request.present(request.object(type)),
              request);
      case "DELETE" -> delete.judge(Request.present(request.oldObject(type)), request);
      default -> Response.allow();
    };
  }
}
