package dev.portcullis.host.testing;

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.dataformat.yaml.YAMLMapper;
import dev.portcullis.admission.v1.AdmissionRequest;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A case of a table in YAML: a request to a hook, and the verdict. The same tables play in the SDKs
 * of all languages.
 *
 * @param name says what the case shows
 * @param hook the name of the hook; null where the host has one
 * @param operation {@code CREATE} if it is null
 * @param user who asks; null for anyone
 * @param namespace that of the object if it is null
 * @param object after the operation; null where there is none
 * @param oldObject before the operation; null where there is none
 * @param expect the verdict
 */
public record Case(
    @JsonProperty(required = true) String name,
    @Nullable String hook,
    @Nullable String operation,
    @Nullable User user,
    @Nullable String namespace,
    @Nullable JsonNode object,
    @Nullable JsonNode oldObject,
    @JsonProperty(required = true) Expect expect) {
  /**
   * Who asks.
   *
   * @param name the user name; null for anyone's
   * @param groups their names; null for those of anyone
   */
  public record User(@Nullable String name, @Nullable List<String> groups) {}

  /**
   * A verdict. All but {@code allowed} is compared only where it is there.
   *
   * @param allowed whether the write may go on
   * @param code the HTTP status of a denial
   * @param reason the reason of a denial
   * @param message a part of the text of a denial
   * @param causes all fields at fault
   * @param warnings all of them
   * @param audit all annotations
   * @param object the whole object after the patch
   * @param patch the operations
   */
  public record Expect(
      @JsonProperty(required = true) boolean allowed,
      @Nullable Integer code,
      @Nullable String reason,
      @Nullable String message,
      @Nullable List<Cause> causes,
      @Nullable List<String> warnings,
      @Nullable Map<String, String> audit,
      @Nullable JsonNode object,
      @Nullable ArrayNode patch) {}

  /**
   * A field at fault.
   *
   * @param field its path
   * @param message for a person
   */
  public record Cause(
      @JsonProperty(required = true) String field, @JsonProperty(required = true) String message) {}

  private static final YAMLMapper YAML = new YAMLMapper();

  /**
   * Reads a table.
   *
   * @param file in YAML: a list of cases
   * @return the cases
   * @throws UncheckedIOException if the file cannot be read, or has members that a case has not
   */
  public static List<Case> read(Path file) {
    try {
      return YAML.readValue(file.toFile(), new TypeReference<List<Case>>() {});
    } catch (IOException e) {
      throw new UncheckedIOException(file + " is no table of cases", e);
    }
  }

  /**
   * Puts the request of the case to its hook, and compares the verdict.
   *
   * @param mesh serves the host
   * @throws AssertionError if the verdict is another one
   */
  public void check(FakeDispatcher mesh) {
    AdmissionRequest request = request();
    Answer answer = hook == null ? mesh.review(request) : mesh.review(hook, request);
    same("allowed", expect.allowed(), answer.allowed(), answer);
    same("code", expect.code(), answer.code(), answer);
    same("reason", expect.reason(), answer.reason(), answer);
    same(
        "causes",
        expect.causes(),
        answer.causes().stream().map(c -> new Cause(c.field(), c.message())).toList(),
        answer);
    same("warnings", expect.warnings(), answer.warnings(), answer);
    same("audit", expect.audit(), answer.audit(), answer);
    same("object", text(expect.object()), text(answer.object()), answer);
    same("patch", text(expect.patch()), text(answer.patch()), answer);
    if (expect.message() != null && !answer.message().contains(expect.message())) {
      throw fault("message", expect.message(), answer);
    }
  }

  private AdmissionRequest request() {
    AdmissionRequest.Builder request =
        Requests.about(object == null ? oldObject : object)
            .setOperation(Objects.requireNonNullElse(operation, "CREATE"));
    if (object != null) {
      request.setObject(Requests.raw(object.toString()));
    }
    if (oldObject != null) {
      request.setOldObject(Requests.raw(oldObject.toString()));
    }
    if (namespace != null) {
      request.setNamespace(namespace);
    }
    if (user != null && user.name() != null) {
      request.getUserInfoBuilder().setUsername(user.name());
    }
    if (user != null && user.groups() != null) {
      request.getUserInfoBuilder().clearGroups().addAllGroups(user.groups());
    }
    return request.build();
  }

  /** Trees of YAML and of JSON hold one number in different ways. */
  private static @Nullable JsonNode text(@Nullable JsonNode tree) {
    try {
      return tree == null ? null : Requests.MAPPER.readTree(tree.toString());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private void same(String what, @Nullable Object want, @Nullable Object got, Answer answer) {
    if (want != null && !want.equals(got)) {
      throw fault(what, want, answer);
    }
  }

  private AssertionError fault(String what, Object want, Answer answer) {
    return new AssertionError(
        String.format("%s: expected %s %s, but the verdict is %s", name, what, want, answer));
  }
}
