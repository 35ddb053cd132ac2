package com.example.imagepolicy;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.portcullis.host.testing.Case;
import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.v1.HookOffer;
import java.nio.file.Path;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Asks the hooks as a dispatcher does. */
class PolicyTest {
  private final FakeDispatcher dispatcher = FakeDispatcher.serving(Policy.newHost());

  @AfterEach
  void stop() {
    dispatcher.close();
  }

  /** The file has the same cases as the policy in other languages. */
  @TestFactory
  Stream<DynamicTest> thePolicyDecidesItsCases() {
    return Case.read(Path.of("cases.yaml")).stream()
        .map(c -> DynamicTest.dynamicTest(c.name(), () -> c.check(dispatcher)));
  }

  @Test
  void theMeshMayAskForTheLabelAheadOfItsTurn() {
    Map<String, Boolean> offers =
        dispatcher.session().hello().getHooksList().stream()
            .collect(Collectors.toMap(HookOffer::getName, HookOffer::getSpeculate));
    assertEquals(Map.of("imagepolicy.example.com", false, "team-label.example.com", true), offers);
  }
}
