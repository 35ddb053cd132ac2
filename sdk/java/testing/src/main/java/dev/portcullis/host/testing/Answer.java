package dev.portcullis.host.testing;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import dev.portcullis.admission.v1.AdmissionRequest;
import dev.portcullis.admission.v1.AdmissionResponse;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The verdict of a hook.
 *
 * @param allowed whether the write may go on
 * @param code the HTTP status of a denial; 0 without one
 * @param reason the reason of a denial; may be empty
 * @param message the text of a denial; may be empty
 * @param causes the fields at fault
 * @param warnings for the client
 * @param audit annotations for the audit log
 * @param patch the operations of the JSON Patch; empty without one
 * @param object the object with the patch applied; null on a denial and where there is no object
 */
public record Answer(
    boolean allowed,
    int code,
    String reason,
    String message,
    List<Cause> causes,
    List<String> warnings,
    Map<String, String> audit,
    JsonNode patch,
    @Nullable JsonNode object) {
  /**
   * A field at fault.
   *
   * @param field its path
   * @param message for a person
   * @param reason machine-readable; may be empty
   */
  public record Cause(String field, String message, String reason) {}

  static Answer of(AdmissionRequest request, AdmissionResponse response) {
    var status = response.getStatus();
    String text = response.getPatch().toStringUtf8();
    JsonNode patch = text.isEmpty() ? JsonNodeFactory.instance.arrayNode() : read(text);
    return new Answer(
        response.getAllowed(),
        status.getCode(),
        status.getReason(),
        status.getMessage(),
        status.getDetails().getCausesList().stream()
            .map(c -> new Cause(c.getField(), c.getMessage(), c.getReason()))
            .toList(),
        List.copyOf(response.getWarningsList()),
        response.getAuditAnnotationsMap(),
        patch,
        response.getAllowed() && request.hasObject()
            ? JsonPatch.apply(patch, read(request.getObject().getRaw().toStringUtf8()))
            : null);
  }

  private static JsonNode read(String text) {
    try {
      return Requests.MAPPER.readTree(text);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("this is not JSON: " + text, e);
    }
  }
}
