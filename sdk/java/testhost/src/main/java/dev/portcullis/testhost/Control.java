package dev.portcullis.testhost;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;

/** The control channel: lines of JSON on standard input and output. Safe for concurrent use. */
final class Control {
  static final JsonMapper MAPPER = JsonMapper.builder().build();

  private final PrintStream out;
  private final Map<String, CountDownLatch> holds = new ConcurrentHashMap<>();
  private final Set<String> ready = ConcurrentHashMap.newKeySet();

  Control(PrintStream out) {
    this.out = out;
  }

  /** Is open until the name is released. */
  CountDownLatch hold(String name) {
    return holds.computeIfAbsent(name, n -> new CountDownLatch(1));
  }

  boolean isReady(String hook) {
    return ready.contains(hook);
  }

  static ObjectNode event(String name) {
    return JsonNodeFactory.instance.objectNode().put("event", name);
  }

  /** Prints an event as one line. */
  synchronized void say(ObjectNode event) {
    out.println(event);
    out.flush();
  }

  /** Carries out commands until the input ends. */
  void obey(BufferedReader in, Runnable drain) throws IOException {
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode command = MAPPER.readTree(line);
      switch (command.path("do").asText()) {
        case "release" -> hold(command.path("name").asText()).countDown();
        case "ready" -> ready.add(command.path("hook").asText());
        case "drain" -> drain.run();
        default -> System.err.println("unknown command " + line);
      }
    }
  }
}
