package dev.portcullis.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.google.protobuf.ByteString;
import dev.portcullis.admission.v1.AdmissionRequest;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Review;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * One request to judge, and the call that asks. It is immutable but for the trees of {@link
 * #object()} and {@link #oldObject()}, which belong to the handler. Its methods may be called from
 * any thread.
 */
public final class Request {
  /**
   * The kind of an object.
   *
   * @param group empty for the core group
   * @param version for example "v1"
   * @param kind for example "Pod"
   */
  public record Kind(String group, String version, String kind) {}

  /**
   * The resource that a request is made to.
   *
   * @param group empty for the core group
   * @param version for example "v1"
   * @param resource for example "pods"
   */
  public record Resource(String group, String version, String resource) {}

  private final Review review;
  private final HookCall hook;
  private final AdmissionRequest admission;
  private final Codec codec;
  private final Call call;
  private @Nullable JsonNode object;
  private @Nullable JsonNode oldObject;

  Request(Review review, HookCall hook, Codec codec, Call call) {
    this.review = review;
    this.hook = hook;
    this.admission = review.getRequest();
    this.codec = codec;
    this.call = call;
  }

  /**
   * Makes a request for the unit test of a handler. {@code dev.portcullis.host.testing.Requests}
   * has the usual admissions.
   *
   * @param admission the request itself
   * @return a request with empty names of hook and configuration, which decodes by {@link
   *     Codec#jackson()}, and whose call does not end
   */
  public static Request of(AdmissionRequest admission) {
    return new Request(
        Review.newBuilder().setRequest(admission).build(),
        HookCall.getDefaultInstance(),
        Codec.jackson(),
        Call.ENDLESS);
  }

  /**
   * The name of the hook that is asked.
   *
   * @return the name, as it was registered
   */
  public String hook() {
    return hook.getName();
  }

  /**
   * The name of the configuration that holds the hook: two may hold hooks of one name.
   *
   * @return the name
   */
  public String configuration() {
    return hook.getConfiguration();
  }

  /**
   * The part of the write.
   *
   * @return the stage of the hook
   */
  public Stage stage() {
    return Stage.of(hook.getStage());
  }

  /**
   * Which time the hook is asked.
   *
   * @return 0, or 1 when a mutating hook is asked again because others changed the object after it
   */
  public int round() {
    return hook.getRound();
  }

  /**
   * Why the hook is asked.
   *
   * @return the mode of the call
   */
  public Mode mode() {
    return Mode.of(hook.getMode());
  }

  /**
   * The request itself, with all that the methods beside this one do not say.
   *
   * @return the request, which all hooks of a review share
   */
  public AdmissionRequest admission() {
    return admission;
  }

  /**
   * Names the request.
   *
   * @return the id that the API server gave it
   */
  public String uid() {
    return admission.getUid();
  }

  /**
   * The cluster that the request comes from, as the mesh authenticated it.
   *
   * @return its name
   */
  public String cluster() {
    return admission.getCluster();
  }

  /**
   * What is done to the object.
   *
   * @return {@code CREATE}, {@code UPDATE}, {@code DELETE} or {@code CONNECT}
   */
  public String operation() {
    return admission.getOperation();
  }

  /**
   * The kind of the object, in the version that the hook asked for.
   *
   * @return the kind
   */
  public Kind kind() {
    var kind = admission.getKind();
    return new Kind(kind.getGroup(), kind.getVersion(), kind.getKind());
  }

  /**
   * The resource of the object, in the version that the hook asked for.
   *
   * @return the resource
   */
  public Resource resource() {
    var resource = admission.getResource();
    return new Resource(resource.getGroup(), resource.getVersion(), resource.getResource());
  }

  /**
   * The part of the object that is written.
   *
   * @return for example {@code status}; empty for the object itself
   */
  public String subresource() {
    return admission.getSubResource();
  }

  /**
   * The namespace of the object.
   *
   * @return its name; empty for cluster-scoped objects
   */
  public String namespace() {
    return admission.getNamespace();
  }

  /**
   * The name of the object.
   *
   * @return the name; it may be empty on {@code CREATE} with {@code generateName}
   */
  public String name() {
    return admission.getName();
  }

  /**
   * The user who made the request, as the API server authenticated it.
   *
   * @return the user name
   */
  public String username() {
    return admission.getUserInfo().getUsername();
  }

  /**
   * The groups of the user.
   *
   * @return their names
   */
  public List<String> groups() {
    return admission.getUserInfo().getGroupsList();
  }

  /**
   * Names the user over time.
   *
   * @return the id; empty if the authenticator gives none
   */
  public String userUid() {
    return admission.getUserInfo().getUid();
  }

  /**
   * What else the authenticator says of the user.
   *
   * @return values by key
   */
  public Map<String, List<String>> extra() {
    return admission.getUserInfo().getExtraMap().entrySet().stream()
        .collect(
            Collectors.toUnmodifiableMap(
                Map.Entry::getKey, extra -> List.copyOf(extra.getValue().getItemsList())));
  }

  /**
   * Whether nothing will be stored: a handler must have no side effects then.
   *
   * @return true on a dry run
   */
  public boolean dryRun() {
    return admission.getDryRun();
  }

  /**
   * The options of the operation, for example a {@code CreateOptions}, as a new tree.
   *
   * @return the tree; a missing node if there are none
   * @throws UncheckedIOException if they are not JSON
   */
  public JsonNode options() {
    return tree(admission.hasOptions() ? admission.getOptions().getRaw() : null);
  }

  /**
   * The span of the call, for an author who continues the trace by hand. The span of the handler,
   * which is current while it runs, is its child.
   *
   * @return a traceparent of W3C; empty if the call is in no trace
   */
  public String traceparent() {
    return Telemetry.traceparent(review, hook);
  }

  /**
   * The time that is left for the verdict, never negative. Hand it to whatever the handler waits
   * for, for example as the deadline of a request.
   *
   * @return the time, zero when it is over
   */
  public Duration remaining() {
    return call.remaining();
  }

  /**
   * Whether nobody waits for the verdict any more: its time is over, the dispatcher has cancelled
   * it, or the session is lost.
   *
   * @return whether the call has ended
   */
  public boolean isCancelled() {
    return call.isCancelled();
  }

  /**
   * Runs an action when the call ends before its handler has returned; at once if it has ended
   * already. The action runs on a thread of the SDK, and is never run twice.
   *
   * @param action stops what the handler has started elsewhere
   */
  public void onCancel(Runnable action) {
    call.onCancel(action);
  }

  /**
   * The object after the operation, byte for byte as the API server sent it.
   *
   * @return a copy of the bytes; null on {@code DELETE}
   */
  public byte @Nullable [] rawObject() {
    ByteString raw = raw();
    return raw == null ? null : raw.toByteArray();
  }

  /**
   * The object before the operation, byte for byte as the API server sent it.
   *
   * @return a copy of the bytes; null on {@code CREATE} and {@code CONNECT}
   */
  public byte @Nullable [] rawOldObject() {
    ByteString raw = rawOld();
    return raw == null ? null : raw.toByteArray();
  }

  /**
   * The object after the operation as a tree, in which numbers keep their spelling. It is decoded
   * by the first call. Later calls return the same tree, which belongs to this handler alone.
   *
   * @return the tree; a missing node on {@code DELETE}
   * @throws UncheckedIOException if the object is not JSON
   */
  public synchronized JsonNode object() {
    if (object == null) {
      object = tree(raw());
    }
    return object;
  }

  /**
   * The object before the operation as a tree, like {@link #object()}.
   *
   * @return the tree; a missing node on {@code CREATE} and {@code CONNECT}
   * @throws UncheckedIOException if the object is not JSON
   */
  public synchronized JsonNode oldObject() {
    if (oldObject == null) {
      oldObject = tree(rawOld());
    }
    return oldObject;
  }

  /**
   * The object after the operation, decoded by the {@link Codec} of the host.
   *
   * @param <T> the type
   * @param type for example the {@code Pod} of fabric8; {@code ObjectNode} is a new tree
   * @return the decoded object; null on {@code DELETE}
   * @throws UncheckedIOException if the object does not fit the type
   */
  public <T> @Nullable T object(Class<T> type) {
    return decode(raw(), type);
  }

  /**
   * The object before the operation, decoded by the {@link Codec} of the host.
   *
   * @param <T> the type
   * @param type for example the {@code Pod} of fabric8; {@code ObjectNode} is a new tree
   * @return the decoded object; null on {@code CREATE} and {@code CONNECT}
   * @throws UncheckedIOException if the object does not fit the type
   */
  public <T> @Nullable T oldObject(Class<T> type) {
    return decode(rawOld(), type);
  }

  /** The object as a new tree. */
  JsonNode tree() {
    return tree(raw());
  }

  /** An object of a type as a tree, by the codec of the host. */
  JsonNode encode(Object typed) {
    try {
      return typed instanceof JsonNode tree
          ? tree.deepCopy()
          : Json.read(ByteString.copyFrom(codec.encode(typed)));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** An object that the operation has to have. */
  static <T> T present(@Nullable T object) throws HandlerException {
    if (object == null) {
      throw new HandlerException("the request has no object");
    }
    return object;
  }

  private @Nullable ByteString raw() {
    return admission.hasObject() ? admission.getObject().getRaw() : null;
  }

  private @Nullable ByteString rawOld() {
    return admission.hasOldObject() ? admission.getOldObject().getRaw() : null;
  }

  private static JsonNode tree(@Nullable ByteString raw) {
    try {
      return raw == null ? MissingNode.getInstance() : Json.read(raw);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private <T> @Nullable T decode(@Nullable ByteString raw, Class<T> type) {
    try {
      if (raw == null) {
        return null;
      }
      return JsonNode.class.isAssignableFrom(type)
          ? type.cast(Json.read(raw))
          : codec.decode(raw.toByteArray(), type);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
