package dev.portcullis.host;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * Changes typed objects in place, with a function for each operation, so that no object is null.
 * Members that the type does not know stay as they are. An operation without a function, and a
 * deletion, change nothing. {@link #of} makes one; the methods that add to it return a new one. It
 * is immutable.
 *
 * @param <T> the type of the objects
 */
public final class Mutator<T> implements Handler {
  /**
   * Changes an object.
   *
   * @param <T> its type
   */
  @FunctionalInterface
  public interface Edit<T> {
    /**
     * Changes an object in place.
     *
     * @param object the handler's own, to change
     * @param request the request
     * @throws DeniedException to deny the request
     * @throws Exception any other exception, as a {@link Handler} throws it
     */
    void edit(T object, Request request) throws Exception;
  }

  /**
   * Changes the object of an update.
   *
   * @param <T> its type
   */
  @FunctionalInterface
  public interface UpdateEdit<T> {
    /**
     * Changes an object in place.
     *
     * @param old the object before the update
     * @param object the object after it, the handler's own, to change
     * @param request the request
     * @throws DeniedException to deny the request
     * @throws Exception any other exception, as a {@link Handler} throws it
     */
    void edit(T old, T object, Request request) throws Exception;
  }

  private final Class<T> type;
  private final Edit<T> create;
  private final UpdateEdit<T> update;

  private Mutator(Class<T> type, Edit<T> create, UpdateEdit<T> update) {
    this.type = type;
    this.create = create;
    this.update = update;
  }

  /**
   * Begins a mutator, which changes nothing.
   *
   * @param <T> the type
   * @param type for example the {@code Pod} of fabric8, or Jackson's {@code ObjectNode}
   * @return the mutator
   */
  public static <T> Mutator<T> of(Class<T> type) {
    return new Mutator<>(type, (object, request) -> {}, (old, object, request) -> {});
  }

  /**
   * Changes objects that are created.
   *
   * @param edit changes the new object
   * @return a mutator like this one with the function
   */
  public Mutator<T> onCreate(Edit<T> edit) {
    return new Mutator<>(type, edit, update);
  }

  /**
   * Changes objects that are updated.
   *
   * @param edit changes the object after the update
   * @return a mutator like this one with the function
   */
  public Mutator<T> onUpdate(UpdateEdit<T> edit) {
    return new Mutator<>(type, create, edit);
  }

  @Override
  public Response handle(Request request) throws Exception {
    return switch (request.operation()) {
      case "CREATE" -> apply(request, type, create);
      case "UPDATE" -> {
        T old = Request.present(request.oldObject(type));
        yield apply(request, type, (object, same) -> update.edit(old, object, same));
      }
      default -> Response.allow();
    };
  }

  /** Has the object of a request changed; a request without one is allowed. */
  static <T> Response apply(Request request, Class<T> type, Edit<T> edit) throws Exception {
    T object = request.object(type);
    if (object == null) {
      return Response.allow();
    }
    JsonNode before = request.encode(object);
    edit.edit(object, request);
    return Response.change(request, before, request.encode(object));
  }
}
