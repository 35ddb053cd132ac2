package dev.portcullis.host.testing;

import com.fasterxml.jackson.core.JsonPointer;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** Applies patches as a dispatcher does. */
public final class JsonPatch {
  private JsonPatch() {}

  /**
   * Applies a JSON Patch (RFC 6902).
   *
   * @param operations the array of its operations
   * @param document to which they apply; it is not changed
   * @return the document afterwards
   * @throws IllegalArgumentException if an operation cannot be applied
   */
  public static JsonNode apply(JsonNode operations, JsonNode document) {
    JsonNode out = document.deepCopy();
    for (JsonNode operation : operations) {
      out = applyOne(operation, out);
    }
    return out;
  }

  private static JsonNode applyOne(JsonNode operation, JsonNode document) {
    JsonPointer path = JsonPointer.compile(operation.path("path").asText());
    JsonNode value = operation.path("value").deepCopy();
    return switch (operation.path("op").asText()) {
      case "add" -> put(document, path, value, true);
      case "replace" -> {
        existing(document, path);
        yield put(document, path, value, false);
      }
      case "remove" -> remove(document, path);
      case "move" -> {
        JsonPointer from = JsonPointer.compile(operation.path("from").asText());
        JsonNode moved = existing(document, from);
        yield put(remove(document, from), path, moved, true);
      }
      case "copy" -> {
        JsonPointer from = JsonPointer.compile(operation.path("from").asText());
        yield put(document, path, existing(document, from).deepCopy(), true);
      }
      case "test" -> {
        if (!existing(document, path).equals(value)) {
          throw new IllegalArgumentException("a test failed: " + operation);
        }
        yield document;
      }
      default -> throw new IllegalArgumentException("unknown operation " + operation);
    };
  }

  private static JsonNode existing(JsonNode document, JsonPointer path) {
    JsonNode found = document.at(path);
    if (found.isMissingNode()) {
      throw new IllegalArgumentException("nothing is at " + path);
    }
    return found;
  }

  private static JsonNode put(JsonNode document, JsonPointer path, JsonNode value, boolean add) {
    if (path.matches()) {
      return value;
    }
    JsonNode parent = document.at(path.head());
    String name = path.last().getMatchingProperty();
    if (parent instanceof ObjectNode object) {
      object.set(name, value);
    } else if (parent instanceof ArrayNode list && add) {
      int index = name.equals("-") ? list.size() : path.last().getMatchingIndex();
      if (index < 0 || index > list.size()) {
        throw new IllegalArgumentException("no item can be at " + path);
      }
      list.insert(index, value);
    } else if (parent instanceof ArrayNode list) {
      list.set(path.last().getMatchingIndex(), value);
    } else {
      throw new IllegalArgumentException("nothing is at " + path.head());
    }
    return document;
  }

  private static JsonNode remove(JsonNode document, JsonPointer path) {
    existing(document, path);
    JsonNode parent = document.at(path.head());
    if (parent instanceof ObjectNode object) {
      object.remove(path.last().getMatchingProperty());
    } else if (parent instanceof ArrayNode list) {
      list.remove(path.last().getMatchingIndex());
    }
    return document;
  }
}
