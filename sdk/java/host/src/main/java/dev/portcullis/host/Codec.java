package dev.portcullis.host;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;

/**
 * Decodes objects into the types of a library, see {@link Request#object(Class)}. The SDK needs
 * none of these libraries. The default, {@link #jackson()}, decodes models with Jackson's
 * annotations, as those of fabric8; for the models of {@code io.kubernetes:client-java} a codec
 * calls {@code JSON.deserialize(new String(raw, UTF_8), type)}.
 *
 * <p>It is called by many threads at once.
 */
public interface Codec {
  /**
   * Decodes an object.
   *
   * @param <T> the type
   * @param raw the object, byte for byte as the API server sent it
   * @param type the type to decode into
   * @return the decoded object
   * @throws IOException if the bytes do not fit the type
   */
  <T> T decode(byte[] raw, Class<T> type) throws IOException;

  /**
   * Encodes an object that {@link #decode} has returned, for changes of typed objects. A member
   * that is null should be left out.
   *
   * @param object to encode
   * @return the object in JSON
   * @throws IOException if it cannot be encoded
   */
  default byte[] encode(Object object) throws IOException {
    throw new IOException("the codec of the host does not encode: implement Codec.encode");
  }

  /**
   * Decodes by Jackson, and ignores members that the type does not know.
   *
   * @return the codec
   */
  static Codec jackson() {
    return jackson(
        JsonMapper.builder()
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
            .defaultPropertyInclusion(
                JsonInclude.Value.construct(
                    JsonInclude.Include.NON_NULL, JsonInclude.Include.ALWAYS))
            .build());
  }

  /**
   * Decodes by a mapper.
   *
   * @param mapper which must not change any more
   * @return the codec
   */
  static Codec jackson(ObjectMapper mapper) {
    return new Codec() {
      @Override
      public <T> T decode(byte[] raw, Class<T> type) throws IOException {
        return mapper.readValue(raw, type);
      }

      @Override
      public byte[] encode(Object object) throws IOException {
        return mapper.writeValueAsBytes(object);
      }
    };
  }
}
