package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import dev.portcullis.host.testing.JsonPatch;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The patch of a change is the one that the protocol defines. */
class ChangesTest {
  private static final Path VECTORS = Repository.path("sdk/conformance/changes.json");
  private static final int ITEMS = 20_000;

  private static JsonNode read(String text) {
    try {
      return Json.read(ByteString.copyFromUtf8(text));
    } catch (IOException e) {
      throw new AssertionError(text, e);
    }
  }

  private static JsonNode operations(ByteString patch) {
    return patch.isEmpty() ? JsonNodeFactory.instance.arrayNode() : read(patch.toStringUtf8());
  }

  @TestFactory
  Stream<DynamicTest> vectors() throws IOException {
    JsonNode vectors = read(Files.readString(VECTORS));
    assertTrue(vectors.size() > 30, "there are vectors");
    return IntStream.range(0, vectors.size())
        .mapToObj(vectors::get)
        .map(v -> DynamicTest.dynamicTest(v.get("name").asText(), () -> play(v)));
  }

  private static void play(JsonNode vector) {
    JsonNode raw = read(vector.get("raw").asText());
    JsonNode before = vector.has("before") ? read(vector.get("before").asText()) : raw;
    JsonNode object = Changes.merge(raw, before, read(vector.get("after").asText()));
    assertEquals(read(vector.get("object").asText()), object);
    assertEquals(read(vector.get("raw").asText()), raw, "raw is not written");
    JsonNode patch = operations(Changes.difference(raw, object));
    assertEquals(read(vector.get("patch").asText()), patch);
    assertEquals(object, JsonPatch.apply(patch, raw));
  }

  @Test
  void aPatchLeadsFromAnyDocumentToAnyOther() {
    for (int seed = 0; seed < 2000; seed++) {
      Random random = new Random(seed);
      JsonNode from = randomObject(random);
      JsonNode to = randomObject(random);
      JsonNode patch = operations(Changes.difference(from, to));
      assertEquals(to, JsonPatch.apply(patch, from), "seed " + seed + ": " + patch);
    }
  }

  /** A type that drops members and writes null into others: its changes alone come through. */
  @Test
  void aChangeOfATypeLeavesWhatItDoesNotKnow() {
    for (int seed = 0; seed < 2000; seed++) {
      Random random = new Random(seed);
      ObjectNode raw = randomObject(random);
      ObjectNode before = raw.deepCopy();
      before.remove("b");
      before.putNull("written");
      JsonNode value = randomValue(random, 3);
      ObjectNode after = before.deepCopy();
      after.set("a", value);
      ObjectNode want = raw.deepCopy();
      want.set("a", value);
      assertEquals(want.get("b"), Changes.merge(raw, before, after).get("b"), "seed " + seed);
      assertEquals(false, Changes.merge(raw, before, after).has("written"), "seed " + seed);
    }
  }

  @Test
  void anEmptyMapThatATypeAddsIsAdded() {
    JsonNode after = read("{\"spec\":{\"selector\":{}}}");
    assertEquals(after, Changes.merge(read("{}"), read("{\"spec\":{}}"), after));
  }

  private static ObjectNode randomObject(Random random) {
    ObjectNode object = JsonNodeFactory.instance.objectNode();
    object.set("a", randomValue(random, 4));
    object.set("b", randomValue(random, 4));
    return object;
  }

  /** Draws from few values, so that lists hold many that are alike. */
  private static JsonNode randomValue(Random random, int depth) {
    int kind = depth == 0 ? 0 : random.nextInt(4);
    if (kind == 0) {
      return read(new String[] {"null", "true", "\"x\"", "\"\"", "1", "1.0"}[random.nextInt(6)]);
    }
    if (kind == 1) {
      ObjectNode object = JsonNodeFactory.instance.objectNode();
      for (int i = random.nextInt(4); i > 0; i--) {
        String[] names = {"name", "key", "a/b", "c~d", ""};
        object.set(names[random.nextInt(names.length)], randomValue(random, depth - 1));
      }
      return object;
    }
    ArrayNode list = JsonNodeFactory.instance.arrayNode();
    for (int i = random.nextInt(5); i > 0; i--) {
      list.add(randomValue(random, depth - 1));
    }
    return list;
  }

  @Test
  void aPatchIsBoundedByTheObject() {
    JsonNode before = items(i -> "{\"n\":" + i + "}");
    JsonNode after = items(i -> "{\"n\":" + i + ",\"m\":1}");
    ByteString patch = Changes.difference(before, after);
    assertTrue(patch.size() < Json.write(after).size() + 100, patch.size() + " bytes");
    assertEquals(after, JsonPatch.apply(operations(patch), before));
    JsonNode reversed = items(i -> "{\"name\":\"" + (ITEMS - i) + "\"}");
    JsonNode named = items(i -> "{\"name\":\"" + (i + 1) + "\"}");
    patch = Changes.difference(named, reversed);
    assertTrue(patch.size() < Json.write(reversed).size() + 100, patch.size() + " bytes");
    assertEquals(reversed, JsonPatch.apply(operations(patch), named));
  }

  private static JsonNode items(IntFunction<String> item) {
    StringBuilder text = new StringBuilder("{\"a-long-name-of-a-member\":[");
    for (int i = 0; i < ITEMS; i++) {
      text.append(i == 0 ? "" : ",").append(item.apply(i));
    }
    return read(text.append("]}").toString());
  }
}
