package dev.portcullis.host.testing;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.google.protobuf.ByteString;
import dev.portcullis.admission.v1.AdmissionRequest;
import dev.portcullis.admission.v1.GroupVersionKind;
import dev.portcullis.admission.v1.GroupVersionResource;
import dev.portcullis.admission.v1.UserInfo;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * Makes requests about objects in JSON. Kind, name and namespace are the object's; the resource is
 * the usual plural of its kind. What the hook looks at besides is set with {@code toBuilder()}.
 */
public final class Requests {
  static final JsonMapper MAPPER =
      JsonMapper.builder()
          .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
          .disable(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES)
          .build();

  private Requests() {}

  /**
   * A request that creates an object.
   *
   * @param object in JSON
   * @return the request
   */
  public static AdmissionRequest create(String object) {
    return about(object).setOperation("CREATE").setObject(raw(object)).build();
  }

  /**
   * A request that changes an object.
   *
   * @param old before the change, in JSON
   * @param object after it, in JSON
   * @return the request
   */
  public static AdmissionRequest update(String old, String object) {
    return about(object)
        .setOperation("UPDATE")
        .setOldObject(raw(old))
        .setObject(raw(object))
        .build();
  }

  /**
   * A request that deletes an object.
   *
   * @param old before the deletion, in JSON
   * @return the request
   */
  public static AdmissionRequest delete(String old) {
    return about(old).setOperation("DELETE").setOldObject(raw(old)).build();
  }

  static dev.portcullis.admission.v1.Object raw(String object) {
    return dev.portcullis.admission.v1.Object.newBuilder()
        .setRaw(ByteString.copyFromUtf8(object))
        .build();
  }

  /**
   * Reads the head of an object. One that cannot be read has none: hosts must bear that as well.
   */
  private static AdmissionRequest.Builder about(String object) {
    try {
      return about(MAPPER.readTree(object));
    } catch (JsonProcessingException e) {
      return about(MissingNode.getInstance());
    }
  }

  /** Begins a request about an object, if there is one. */
  static AdmissionRequest.Builder about(@Nullable JsonNode object) {
    JsonNode head = object == null ? MissingNode.getInstance() : object;
    String apiVersion = head.path("apiVersion").asText();
    int slash = apiVersion.indexOf('/');
    String group = slash < 0 ? "" : apiVersion.substring(0, slash);
    String version = apiVersion.substring(slash + 1);
    String kind = head.path("kind").asText();
    return AdmissionRequest.newBuilder()
        .setUid("705ab4f5-6393-11e8-b7cc-42010a800002")
        .setCluster("testing")
        .setKind(GroupVersionKind.newBuilder().setGroup(group).setVersion(version).setKind(kind))
        .setResource(
            GroupVersionResource.newBuilder()
                .setGroup(group)
                .setVersion(version)
                .setResource(plural(kind)))
        .setName(head.at("/metadata/name").asText())
        .setNamespace(head.at("/metadata/namespace").asText())
        .setUserInfo(
            UserInfo.newBuilder().setUsername("testing").addGroups("system:authenticated"));
  }

  /** How resources are named after kinds, irregular ones aside. */
  private static String plural(String kind) {
    String lower = kind.toLowerCase(Locale.ROOT);
    if (lower.isEmpty()) {
      return "";
    }
    if (lower.endsWith("s")) {
      return lower + "es";
    }
    boolean consonant = lower.matches(".*[^aeiou]y");
    return consonant ? lower.substring(0, lower.length() - 1) + "ies" : lower + "s";
  }
}
