package dev.portcullis.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.jspecify.annotations.Nullable;

/**
 * Completes an object before it is created. It is called and interrupted as a {@link Handler} is,
 * for objects to be created only, and before the mutating hooks. It is called again for the same
 * object, as it was before, when the replica that had it is lost. {@link #of} and {@link #ofTree}
 * make a handler for {@link HostBuilder#initialize(String, Handler)}.
 *
 * @param <T> the type of the object
 */
@FunctionalInterface
public interface Initializer<T> {
  /**
   * Completes an object.
   *
   * @param call what the initializer may know of its call
   * @param request which creates the object; it names the creator
   * @param object the initializer's own, which it may change and return
   * @return the object as it should be created
   * @throws DeniedException if the object must not be created
   * @throws HandlerException to say in public why the object cannot be completed; failurePolicy
   *     decides then
   * @throws Exception any other exception, as that of a {@link Handler}
   */
  T initialize(Call call, Request request, T object) throws Exception;

  /**
   * Makes the handler of an initializer of typed objects. Members that the type does not know stay
   * as they are. The {@link Codec} of the host decodes and encodes.
   *
   * @param <T> the type
   * @param type for example the {@code Pod} of fabric8
   * @param initializer completes the object
   * @return the handler
   */
  static <T> Handler of(Class<T> type, Initializer<T> initializer) {
    return (call, request) -> {
      T object = present(request.object(type));
      JsonNode before = request.encode(object);
      T initialized = returned(initializer.initialize(call, request, object));
      return Response.change(request, before, request.encode(initialized));
    };
  }

  /**
   * Makes the handler of an initializer of trees, in which numbers keep their spelling.
   *
   * @param initializer completes the object
   * @return the handler
   */
  static Handler ofTree(Initializer<ObjectNode> initializer) {
    return (call, request) -> {
      ObjectNode object = present(request.object() instanceof ObjectNode tree ? tree : null);
      return Response.difference(request, returned(initializer.initialize(call, request, object)));
    };
  }

  private static <T> T present(@Nullable T object) throws HandlerException {
    if (object == null) {
      throw new HandlerException("the request has no object to be initialized: it creates none");
    }
    return object;
  }

  private static <T> T returned(@Nullable T initialized) throws HandlerException {
    if (initialized == null) {
      throw new HandlerException("the initializer returned no object");
    }
    return initialized;
  }
}
