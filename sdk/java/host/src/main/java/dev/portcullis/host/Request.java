package dev.portcullis.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.google.protobuf.ByteString;
import dev.portcullis.admission.v1.AdmissionRequest;
import dev.portcullis.admission.v1.Stage;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Mode;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.jspecify.annotations.Nullable;

/**
 * One request to judge. It is immutable but for the trees of {@link #object()} and {@link
 * #oldObject()}, which belong to the handler.
 */
public final class Request {
  private final HookCall call;
  private final AdmissionRequest admission;
  private final Codec codec;
  private @Nullable JsonNode object;
  private @Nullable JsonNode oldObject;

  Request(HookCall call, AdmissionRequest admission, Codec codec) {
    this.call = call;
    this.admission = admission;
    this.codec = codec;
  }

  /**
   * Makes a request for the unit test of a handler. {@code dev.portcullis.host.testing.Requests}
   * has the usual admissions.
   *
   * @param stage the stage of the hook
   * @param admission the request itself
   * @return a request with empty names of hook and configuration, which decodes by {@link
   *     Codec#jackson()}
   */
  public static Request of(Stage stage, AdmissionRequest admission) {
    return new Request(HookCall.newBuilder().setStage(stage).build(), admission, Codec.jackson());
  }

  /**
   * The name of the hook that is asked.
   *
   * @return the name, as it was registered
   */
  public String hook() {
    return call.getName();
  }

  /**
   * The name of the configuration that holds the hook: two may hold hooks of one name.
   *
   * @return the name
   */
  public String configuration() {
    return call.getConfiguration();
  }

  /**
   * The part of the write.
   *
   * @return {@code STAGE_INITIALIZE}, {@code STAGE_MUTATE} or {@code STAGE_VALIDATE}
   */
  public Stage stage() {
    return call.getStage();
  }

  /**
   * Which time the hook is asked.
   *
   * @return 0, or 1 when a mutating hook is asked again because others changed the object after it
   */
  public int round() {
    return call.getRound();
  }

  /**
   * Why the hook is asked; a handler without side effects need not care. {@code MODE_SHADOW} means
   * that the verdict decides nothing: a handler that logs or counts what it refuses may want to
   * leave that out. {@code MODE_SPECULATIVE} and {@code MODE_HEDGE} mean that it may not count.
   * {@code MODE_UNSPECIFIED} and {@code MODE_DECIDE} are the usual case.
   *
   * @return the mode
   */
  public Mode mode() {
    return call.getMode();
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
   * Whether nothing will be stored: a handler must have no side effects then.
   *
   * @return true on a dry run
   */
  public boolean dryRun() {
    return admission.getDryRun();
  }

  /**
   * The object after the operation, byte for byte as the API server sent it.
   *
   * @return the bytes; null on {@code DELETE}
   */
  public @Nullable ByteString rawObject() {
    return admission.hasObject() ? admission.getObject().getRaw() : null;
  }

  /**
   * The object before the operation, byte for byte as the API server sent it.
   *
   * @return the bytes; null on {@code CREATE} and {@code CONNECT}
   */
  public @Nullable ByteString rawOldObject() {
    return admission.hasOldObject() ? admission.getOldObject().getRaw() : null;
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
      object = tree(rawObject());
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
      oldObject = tree(rawOldObject());
    }
    return oldObject;
  }

  /**
   * The object after the operation, decoded by the {@link Codec} of the host.
   *
   * @param <T> the type
   * @param type for example the {@code Pod} of fabric8
   * @return the decoded object; null on {@code DELETE}
   * @throws UncheckedIOException if the object does not fit the type
   */
  public <T> @Nullable T object(Class<T> type) {
    return decode(rawObject(), type);
  }

  /**
   * The object before the operation, decoded by the {@link Codec} of the host.
   *
   * @param <T> the type
   * @param type for example the {@code Pod} of fabric8
   * @return the decoded object; null on {@code CREATE} and {@code CONNECT}
   * @throws UncheckedIOException if the object does not fit the type
   */
  public <T> @Nullable T oldObject(Class<T> type) {
    return decode(rawOldObject(), type);
  }

  /** The object as a new tree. */
  JsonNode tree() {
    return tree(rawObject());
  }

  /** An object of a type as a tree, by the codec of the host. */
  JsonNode encode(Object typed) {
    try {
      return Json.read(codec.encode(typed));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
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
      return raw == null ? null : codec.decode(raw, type);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
