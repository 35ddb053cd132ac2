package dev.portcullis.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import dev.portcullis.admission.v1.AdmissionResponse;
import dev.portcullis.admission.v1.Status;
import dev.portcullis.admission.v1.StatusCause;
import java.io.UncheckedIOException;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * A verdict. {@link #allow}, {@link #deny} and {@link #patch(JsonNode)} make one; the methods that
 * add to it return a new one. It is immutable.
 *
 * <p>A denial stays one, whatever is added: a text that is null is an empty one, and a warning, an
 * annotation or a code that cannot be sent is left out and logged.
 */
public final class Response {
  private static final Response ALLOW =
      new Response(AdmissionResponse.newBuilder().setAllowed(true).build(), Set.of());
  private static final int FORBIDDEN = 403;

  /** The least and the greatest status of an error of HTTP. */
  private static final int LEAST = 400;

  private static final int GREATEST = 599;

  private final AdmissionResponse message;
  private final Set<String> leftOut; // names of what was given and cannot be sent

  private Response(AdmissionResponse message, Set<String> leftOut) {
    this.message = message;
    this.leftOut = leftOut;
  }

  /**
   * The write may go on.
   *
   * @return the verdict
   */
  public static Response allow() {
    return ALLOW;
  }

  /**
   * The write is refused, with 403 Forbidden unless {@link #code} says otherwise.
   *
   * @param text tells the person whose write was refused why, and what to do
   * @return the verdict
   */
  public static Response deny(@Nullable String text) {
    return new Response(
        AdmissionResponse.newBuilder()
            .setStatus(Status.newBuilder().setStatus("Failure").setMessage(orEmpty(text)))
            .build(),
        Set.of());
  }

  /**
   * The write may go on, and the object is changed. Mutating hooks only.
   *
   * @param patch a JSON Patch (RFC 6902) against exactly {@link Request#rawObject}; empty means no
   *     change
   * @return the verdict
   */
  public static Response patch(byte[] patch) {
    return patch(ByteString.copyFrom(patch));
  }

  private static Response patch(ByteString patch) {
    return patch.isEmpty()
        ? ALLOW
        : new Response(
            AdmissionResponse.newBuilder()
                .setAllowed(true)
                .setPatch(patch)
                .setPatchType("JSONPatch")
                .build(),
            Set.of());
  }

  /**
   * The write may go on, and the object is changed. Mutating hooks only.
   *
   * @param operations the array of operations of a JSON Patch (RFC 6902) against {@link
   *     Request#object()}
   * @return the verdict
   */
  public static Response patch(JsonNode operations) {
    return operations.isArray() && operations.isEmpty() ? ALLOW : patch(Json.write(operations));
  }

  /**
   * The write may go on, and the object becomes another document. Mutating hooks only. Members that
   * the document lacks are removed: a typed model, which may not know all, takes {@link
   * #change(Request, Class, Consumer)}.
   *
   * @param request the request
   * @param object the object as it should be, for example {@link Request#object()} after a change
   * @return the verdict; an allowing one if nothing was changed, or the request has no object
   */
  public static Response difference(Request request, JsonNode object) {
    JsonNode raw = request.tree();
    return raw.isMissingNode() ? ALLOW : patch(Changes.difference(raw, object));
  }

  /**
   * The write may go on, and the object is changed. Mutating hooks only.
   *
   * @param request the request
   * @param edit changes a copy of the object
   * @return the verdict; an allowing one if nothing was changed, or the request has no object
   */
  public static Response change(Request request, Consumer<ObjectNode> edit) {
    ObjectNode object = request.object(ObjectNode.class);
    if (object == null) {
      return ALLOW;
    }
    edit.accept(object);
    return difference(request, object);
  }

  /**
   * The write may go on, and the object is changed. Mutating hooks only. The {@link Codec} of the
   * host decodes and encodes; members that the type does not know stay as they are.
   *
   * @param <T> the type
   * @param request the request
   * @param type for example the {@code Pod} of fabric8
   * @param edit changes a copy of the object
   * @return the verdict; an allowing one if nothing was changed, or the request has no object
   * @throws UncheckedIOException if the object does not fit the type
   */
  public static <T> Response change(Request request, Class<T> type, Consumer<T> edit) {
    T object = request.object(type);
    if (object == null) {
      return ALLOW;
    }
    JsonNode before = request.encode(object);
    edit.accept(object);
    return change(request, before, request.encode(object));
  }

  /** Changes the object by what a type wrote before and after. */
  static Response change(Request request, JsonNode before, JsonNode after) {
    JsonNode raw = request.tree();
    return patch(Changes.difference(raw, Changes.merge(raw, before, after)));
  }

  /**
   * Sets the HTTP status that the person gets whose write was refused.
   *
   * @param code 400 to 599; any other means 403
   * @return a verdict like this one with the code
   */
  public Response code(int code) {
    boolean none = code < LEAST || code > GREATEST;
    Response set = status(s -> s.setCode(none ? 0 : code));
    return none && code != 0 ? set.without("code") : set;
  }

  /**
   * Sets the machine-readable reason of a denial. Without it the reason is "Forbidden" with code
   * 403, else empty.
   *
   * @param reason for example "Invalid"
   * @return a verdict like this one with the reason
   */
  public Response reason(@Nullable String reason) {
    return status(s -> s.setReason(orEmpty(reason)));
  }

  /**
   * Adds a field at fault to a denial.
   *
   * @param field its path, for example {@code spec.containers[0].image}
   * @param text for a person
   * @return a verdict like this one with the cause
   */
  public Response cause(@Nullable String field, @Nullable String text) {
    return cause(field, text, "");
  }

  /**
   * Adds a field at fault to a denial.
   *
   * @param field its path, for example {@code spec.containers[0].image}
   * @param text for a person
   * @param reason machine-readable, for example "FieldValueInvalid"; may be empty
   * @return a verdict like this one with the cause
   */
  public Response cause(@Nullable String field, @Nullable String text, @Nullable String reason) {
    if ((field == null && text == null) || isFull()) {
      return without("causes");
    }
    StatusCause.Builder cause =
        StatusCause.newBuilder()
            .setField(orEmpty(field))
            .setMessage(orEmpty(text))
            .setReason(orEmpty(reason));
    return status(
        s -> {
          s.getDetailsBuilder().addCauses(cause);
          return s;
        });
  }

  /**
   * Adds warnings for the client, whatever the verdict.
   *
   * @param warnings one line each; 120 characters or fewer is good manners
   * @return a verdict like this one with the warnings
   */
  public Response warnings(@Nullable String @Nullable ... warnings) {
    Response out = this;
    for (String warning : warnings == null ? new String[0] : warnings) {
      out =
          warning == null || out.isFull()
              ? out.without("warnings")
              : out.with(m -> m.addWarnings(warning));
    }
    return out;
  }

  /**
   * Adds an annotation for the audit log.
   *
   * @param key short, without "/"
   * @param value visible to all readers of that log
   * @return a verdict like this one with the annotation
   */
  public Response audit(@Nullable String key, @Nullable String value) {
    return key == null || value == null || isFull()
        ? without("audit")
        : with(m -> m.putAuditAnnotations(key, value));
  }

  /**
   * Whether the write may go on.
   *
   * @return false for a denial
   */
  public boolean isAllowed() {
    return message.getAllowed();
  }

  /** The verdict as it crosses the wire. */
  AdmissionResponse message() {
    if (message.getAllowed()) {
      return message.hasStatus() ? message.toBuilder().clearStatus().build() : message;
    }
    Status.Builder status = message.getStatus().toBuilder();
    if (status.getCode() == 0) {
      status.setCode(FORBIDDEN);
    }
    if (status.getReason().isEmpty() && status.getCode() == FORBIDDEN) {
      status.setReason("Forbidden");
    }
    return message.toBuilder().setStatus(status).build();
  }

  @Override
  public String toString() {
    return message().toString();
  }

  /** Names what the author gave and the verdict lacks; empty if nothing. */
  String leftOut() {
    return String.join(", ", leftOut);
  }

  private static String orEmpty(@Nullable String text) {
    return text == null ? "" : text;
  }

  /** Whether a dispatcher takes no more warnings, annotations and causes. */
  private boolean isFull() {
    return message.getWarningsCount()
            + message.getAuditAnnotationsCount()
            + message.getStatus().getDetails().getCausesCount()
        >= Limits.MAX_DECORATION;
  }

  private Response without(String part) {
    Set<String> more = new TreeSet<>(leftOut);
    more.add(part);
    return new Response(message, more);
  }

  private Response status(UnaryOperator<Status.Builder> change) {
    return with(m -> m.setStatus(change.apply(m.getStatus().toBuilder())));
  }

  private Response with(UnaryOperator<AdmissionResponse.Builder> change) {
    return new Response(change.apply(message.toBuilder()).build(), leftOut);
  }
}
