package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import dev.portcullis.host.testing.JsonPatch;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Review;
import io.fabric8.kubernetes.api.model.Pod;
import io.kubernetes.client.openapi.JSON;
import io.kubernetes.client.openapi.models.V1Container;
import io.kubernetes.client.openapi.models.V1Pod;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** Changes by the models of fabric8 and of the official client. */
class ModelsTest {
  /** Decodes and encodes as the official client does, whose types refuse unknown members. */
  private static final Codec OFFICIAL =
      new Codec() {
        @Override
        public <T> T decode(byte[] raw, Class<T> type) {
          return JSON.getGson().fromJson(new String(raw, StandardCharsets.UTF_8), type);
        }

        @Override
        public byte[] encode(Object object) {
          return JSON.getGson().toJson(object).getBytes(StandardCharsets.UTF_8);
        }
      };

  /** A Pod with what types drop, default, rename and write otherwise. */
  private static String pod(Random random, boolean unknown) {
    StringBuilder containers = new StringBuilder();
    int count = 1 + random.nextInt(4);
    for (int i = 0; i < count; i++) {
      containers.append(i == 0 ? "" : ", ").append("{\"name\": \"c").append(i).append("\"");
      containers.append(random.nextBoolean() ? ", \"image\": \"nginx\"" : "");
      containers.append(
          unknown && random.nextBoolean() ? ", \"newField\": {\"x\": [1.50, null]}" : "");
      containers.append(random.nextBoolean() ? ", \"env\": []" : "");
      containers.append(
          random.nextBoolean()
              ? ", \"resources\": {\"limits\": {\"cpu\": \"1000m\", \"memory\": 1073741824}}"
              : "");
      containers.append(
          random.nextBoolean()
              ? ", \"livenessProbe\": {\"httpGet\": {\"port\": \"http\"}, \"periodSeconds\": 10}"
              : ", \"livenessProbe\": {\"tcpSocket\": {\"port\": 8080}}");
      containers.append("}");
    }
    return "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\", \"namespace\": \"b\""
        + (random.nextBoolean() ? ", \"labels\": {\"app\": \"web\"}" : "")
        + (random.nextBoolean() ? ", \"creationTimestamp\": null" : "")
        + (unknown && random.nextBoolean() ? ", \"newInMetadata\": 12345678901234567890" : "")
        + "}, \"spec\": {"
        + (unknown && random.nextBoolean() ? "\"newInSpec\": {\"a\": 1}, " : "")
        + (random.nextBoolean() ? "\"volumes\": [], \"hostNetwork\": false, " : "")
        + "\"containers\": ["
        + containers
        + "]}, \"status\": {}}";
  }

  private static Request request(String object, Codec codec) {
    Review review = Review.newBuilder().setRequest(Requests.create(object)).build();
    return new Request(review, HookCall.getDefaultInstance(), codec, Call.ENDLESS);
  }

  private static JsonNode patched(String object, Response response) throws IOException {
    ByteString patch = response.message().getPatch();
    JsonNode raw = Json.read(ByteString.copyFromUtf8(object));
    return patch.isEmpty() ? raw : JsonPatch.apply(Json.read(patch), raw);
  }

  private static <T> void holds(Codec codec, boolean unknown, Class<T> type, Consumer<T> edit)
      throws IOException {
    for (int seed = 0; seed < 300; seed++) {
      String object = pod(new Random(seed), unknown);
      Request request = request(object, codec);
      Response same = Response.change(request, type, pod -> {});
      assertTrue(same.message().getPatch().isEmpty(), "seed " + seed + ": " + same);
      ObjectNode want = (ObjectNode) Json.read(ByteString.copyFromUtf8(object));
      want.withObject("/metadata/labels").put("team", "b");
      ((ObjectNode) want.at("/spec/containers/0")).put("image", "other");
      want.withArray("/spec/containers").insertObject(0).put("name", "first");
      Response changed = Response.change(request, type, edit);
      JsonNode patched = patched(object, changed);
      ((ObjectNode) patched.at("/spec/containers/0"))
          .retain("name"); // Types write empty lists too.
      assertEquals(want, patched, "seed " + seed + ": " + changed);
    }
  }

  @Test
  void fabric8() throws IOException {
    holds(
        Codec.jackson(),
        true,
        Pod.class,
        pod -> {
          pod.getMetadata().getLabels().put("team", "b");
          pod.getSpec().getContainers().get(0).setImage("other");
          var first = new io.fabric8.kubernetes.api.model.Container();
          first.setName("first");
          pod.getSpec().getContainers().add(0, first);
        });
  }

  @Test
  void officialClient() throws IOException {
    holds(
        OFFICIAL,
        false,
        V1Pod.class,
        pod -> {
          pod.getMetadata().putLabelsItem("team", "b");
          pod.getSpec().getContainers().get(0).setImage("other");
          pod.getSpec().getContainers().add(0, new V1Container().name("first"));
        });
  }
}
