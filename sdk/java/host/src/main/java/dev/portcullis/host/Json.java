package dev.portcullis.host;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.google.protobuf.ByteString;
import java.io.IOException;

/** Reads and writes JSON trees in which numbers keep their spelling. */
final class Json {
  static final JsonMapper MAPPER =
      // Names of members are the caller's: each would be interned.
      JsonMapper.builder(
              JsonFactory.builder().disable(JsonFactory.Feature.INTERN_FIELD_NAMES).build())
          .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
          .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
          .disable(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES)
          .disable(StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION)
          .build();

  private Json() {}

  static JsonNode read(ByteString raw) throws IOException {
    return MAPPER.readTree(raw.newInput());
  }

  static ByteString write(JsonNode tree) {
    try {
      return ByteString.copyFrom(MAPPER.writeValueAsBytes(tree));
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("a JSON tree cannot be written", e);
    }
  }

  /**
   * Whether a text is a JSON array. The dispatcher applies patches and finds their other faults.
   */
  static boolean isArray(ByteString text) {
    try {
      return read(text).isArray();
    } catch (IOException e) {
      return false;
    }
  }
}
