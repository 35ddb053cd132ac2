package com.example.imagepolicy;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.portcullis.admission.v1.AdmissionRequest;
import dev.portcullis.host.testing.Answer;
import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.HookOffer;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Asks the hooks as a dispatcher does. */
class PolicyTest {
  private static final JsonMapper MAPPER = JsonMapper.builder().build();

  private final FakeDispatcher dispatcher = FakeDispatcher.serving(Policy.newHost());

  @AfterEach
  void stop() {
    dispatcher.close();
  }

  /** Those of the same policy in other languages. */
  static Stream<Arguments> cases() throws IOException {
    JsonNode cases = MAPPER.readTree(Path.of("cases.json").toFile());
    return StreamSupport.stream(cases.spliterator(), false)
        .map(c -> Arguments.of(c.path("name").asText(), c));
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("cases")
  void thePolicyDecidesItsCases(String name, JsonNode c) {
    Answer answer = dispatcher.review(c.path("hook").asText(), request(c));
    assertEquals(c.path("verdict"), verdict(answer), name);
  }

  private static AdmissionRequest request(JsonNode c) {
    String object = c.path("object").toString();
    String old = c.path("oldObject").toString();
    return switch (c.path("operation").asText()) {
      case "CREATE" -> Requests.create(object);
      case "UPDATE" -> Requests.update(old, object);
      default -> Requests.delete(old);
    };
  }

  private static ObjectNode verdict(Answer answer) {
    ObjectNode verdict = MAPPER.createObjectNode().put("allowed", answer.allowed());
    if (!answer.allowed()) {
      ObjectNode status = verdict.putObject("status");
      status.put("code", answer.code());
      status.put("message", answer.message());
      ArrayNode causes = status.putArray("causes");
      for (Answer.Cause cause : answer.causes()) {
        causes.addObject().put("field", cause.field()).put("message", cause.message());
      }
    }
    if (!answer.patch().isEmpty()) {
      verdict.set("patch", answer.patch());
    }
    return verdict;
  }

  @Test
  void theMeshMayAskForTheLabelAheadOfItsTurn() {
    Map<String, Boolean> offers =
        dispatcher.session().hello().getHooksList().stream()
            .collect(Collectors.toMap(HookOffer::getName, HookOffer::getSpeculate));
    assertEquals(Map.of("imagepolicy.example.com", false, "team-label.example.com", true), offers);
  }
}
