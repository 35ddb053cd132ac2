package dev.portcullis.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/** Patches of objects that a handler has changed: "Changes" of docs/protocol.md. It is pure. */
final class Changes {
  /** How many levels of a document are compared. */
  private static final int MAX_DEPTH = 64;

  /** How many bytes a patch may have whatever the size of the object. */
  private static final int SMALL_PATCH = 64 << 10;

  private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

  private Changes() {}

  /** The value that raw becomes by the change from before to after. It may share parts of each. */
  static JsonNode merge(JsonNode raw, JsonNode before, JsonNode after) {
    return merge(raw, before, after, 0);
  }

  private static JsonNode merge(
      JsonNode raw, @Nullable JsonNode before, JsonNode after, int depth) {
    if (after.equals(before)) {
      return raw;
    }
    if (depth < MAX_DEPTH && raw.isObject() && after.isObject()) {
      return mergeMembers(raw, before, after, depth);
    }
    if (depth < MAX_DEPTH
        && raw.isArray()
        && after.isArray()
        && before != null
        && before.isArray()
        && raw.size() == before.size()) {
      return mergeItems(raw, before, after, depth);
    }
    return raw.isNull() ? added(before, after) : after;
  }

  private static JsonNode mergeMembers(
      JsonNode raw, @Nullable JsonNode before, JsonNode after, int depth) {
    ObjectNode merged = NODES.objectNode();
    merged.setAll((ObjectNode) raw);
    if (before != null) {
      before.fieldNames().forEachRemaining(name -> removeUnless(after.has(name), merged, name));
    }
    for (Map.Entry<String, JsonNode> member : after.properties()) {
      String name = member.getKey();
      JsonNode was = before == null ? null : before.get(name);
      JsonNode present = raw.get(name);
      if (member.getValue().equals(was)) {
        continue;
      }
      merged.set(
          name,
          present == null
              ? added(was, member.getValue())
              : merge(present, was, member.getValue(), depth + 1));
    }
    return merged;
  }

  private static void removeUnless(boolean stays, ObjectNode object, String name) {
    if (!stays) {
      object.remove(name);
    }
  }

  /** Items that stay keep their unknown members, wherever the handler put them. */
  private static JsonNode mergeItems(JsonNode raw, JsonNode before, JsonNode after, int depth) {
    ArrayNode merged = NODES.arrayNode(after.size());
    int[] origins = Items.origins(before, after);
    for (int i = 0; i < after.size(); i++) {
      int origin = origins[i];
      merged.add(
          origin < 0
              ? after.get(i)
              : merge(raw.get(origin), before.get(origin), after.get(i), depth + 1));
    }
    return merged;
  }

  /** The members that after adds to before: types write empty ones that raw should not get. */
  private static JsonNode added(@Nullable JsonNode before, JsonNode after) {
    if (before == null || !before.isObject() || !after.isObject()) {
      return after;
    }
    ObjectNode members = NODES.objectNode();
    for (Map.Entry<String, JsonNode> member : after.properties()) {
      JsonNode was = before.get(member.getKey());
      if (!member.getValue().equals(was)) {
        members.set(member.getKey(), added(was, member.getValue()));
      }
    }
    return members;
  }

  /** The JSON Patch that makes one document of another; empty if they are equal. */
  static ByteString difference(JsonNode from, JsonNode to) {
    ByteString patch = difference(from, to, MAX_DEPTH);
    return patch.size() <= SMALL_PATCH || patch.size() <= Json.write(to).size()
        ? patch
        : difference(from, to, 1);
  }

  private static ByteString difference(JsonNode from, JsonNode to, int depth) {
    Operations operations = new Operations();
    operations.value("", from, to, depth);
    return operations.list.isEmpty() ? ByteString.EMPTY : Json.write(operations.list);
  }

  /** Collects the operations of a patch. */
  private static final class Operations {
    private final ArrayNode list = NODES.arrayNode();

    void value(String path, JsonNode from, JsonNode to, int depth) {
      if (from.equals(to)) {
        return;
      }
      if (depth > 0 && from.isObject() && to.isObject()) {
        members(path, from, to, depth - 1);
      } else if (depth == 0
          || !from.isArray()
          || !to.isArray()
          || !items(path, from, to, depth - 1)) {
        write("replace", path, to);
      }
    }

    private void members(String path, JsonNode from, JsonNode to, int depth) {
      TreeSet<String> names = new TreeSet<>();
      from.fieldNames().forEachRemaining(names::add);
      to.fieldNames().forEachRemaining(names::add);
      for (String name : names) {
        JsonNode was = from.get(name);
        JsonNode is = to.get(name);
        String member = path + "/" + name.replace("~", "~0").replace("/", "~1");
        if (is == null) {
          remove(member);
        } else if (was == null) {
          write("add", member, is);
        } else {
          value(member, was, is, depth);
        }
      }
    }

    /** Writes the difference of two lists; nothing and false if items have changed places. */
    private boolean items(String path, JsonNode from, JsonNode to, int depth) {
      int[] origins = Items.origins(from, to);
      boolean[] kept = new boolean[from.size()];
      int last = -1;
      for (int origin : origins) {
        if (origin >= 0 && origin < last) {
          return false;
        }
        if (origin >= 0) {
          kept[origin] = true;
          last = origin;
        }
      }
      for (int i = from.size() - 1; i >= 0; i--) { // No index moves before it is used.
        if (!kept[i]) {
          remove(path + "/" + i);
        }
      }
      for (int i = 0; i < to.size(); i++) {
        if (origins[i] < 0) {
          write("add", path + "/" + i, to.get(i));
        } else {
          value(path + "/" + i, from.get(origins[i]), to.get(i), depth);
        }
      }
      return true;
    }

    private void write(String op, String path, JsonNode value) {
      list.addObject().put("op", op).put("path", path).set("value", value);
    }

    private void remove(String path) {
      list.addObject().put("op", "remove").put("path", path);
    }
  }

  /** Finds out which item of a list became which item of another one. */
  private static final class Items {
    /** The merge keys of the lists of Kubernetes. */
    private static final List<String> KEYS =
        List.of(
            "name",
            "mountPath",
            "devicePath",
            "containerPort",
            "port",
            "key",
            "ip",
            "topologyKey",
            "uid",
            "type");

    private final JsonNode from;
    private final JsonNode to;
    private final int[] origins;
    private final boolean[] taken;

    private Items(JsonNode from, JsonNode to) {
      this.from = from;
      this.to = to;
      origins = new int[to.size()];
      taken = new boolean[from.size()];
      Arrays.fill(origins, -1);
    }

    /** The index of the origin of each item of to; -1 for a new one. Each origin is taken once. */
    static int[] origins(JsonNode from, JsonNode to) {
      Items items = new Items(from, to);
      items.ends();
      items.by(item -> item);
      items.by(Items::key);
      for (int i = 0; i < items.origins.length; i++) {
        if (items.isFree(i, i) && isEmpty(to.get(i).get("name"))) {
          items.take(i, i);
        }
      }
      return items.origins;
    }

    /** Takes the equal items at the front, and then at the end. */
    private void ends() {
      int front = 0;
      while (front < Math.min(from.size(), to.size()) && from.get(front).equals(to.get(front))) {
        take(front, front);
        front++;
      }
      int i = from.size() - 1;
      int j = to.size() - 1;
      while (Math.min(i, j) >= front && from.get(i).equals(to.get(j))) {
        take(i--, j--);
      }
    }

    private interface Identity {
      @Nullable Object of(JsonNode item);
    }

    /** Takes items of the same identity: at the same position if there is one, else in order. */
    private void by(Identity identity) {
      HashMap<Object, ArrayList<Integer>> waiting = new HashMap<>();
      Object[] ids = new Object[from.size()];
      for (int i = from.size() - 1; i >= 0; i--) { // The last of each list is the first item.
        Object id = taken[i] ? null : identity.of(from.get(i));
        if (id != null) {
          ids[i] = id;
          waiting.computeIfAbsent(id, key -> new ArrayList<>()).add(i);
        }
      }
      Object[] wanted = new Object[to.size()];
      for (int i = 0; i < to.size(); i++) {
        wanted[i] = origins[i] < 0 ? identity.of(to.get(i)) : null;
        if (wanted[i] != null && isFree(i, i) && wanted[i].equals(ids[i])) {
          take(i, i);
        }
      }
      for (int i = 0; i < to.size(); i++) {
        List<Integer> candidates = wanted[i] == null ? null : waiting.get(wanted[i]);
        while (candidates != null && !candidates.isEmpty() && origins[i] < 0) {
          int origin = candidates.remove(candidates.size() - 1);
          if (!taken[origin]) {
            take(origin, i);
          }
        }
      }
    }

    private boolean isFree(int origin, int item) {
      return origins[item] < 0 && origin < taken.length && !taken[origin];
    }

    private void take(int origin, int item) {
      taken[origin] = true;
      origins[item] = origin;
    }

    /** The first merge key that an item has, with its value. */
    private static @Nullable Object key(JsonNode item) {
      for (String key : KEYS) {
        if (!isEmpty(item.get(key))) {
          return Map.entry(key, item.get(key));
        }
      }
      return null;
    }

    private static boolean isEmpty(@Nullable JsonNode value) {
      return value == null || (value.isTextual() && value.textValue().isEmpty());
    }
  }
}
