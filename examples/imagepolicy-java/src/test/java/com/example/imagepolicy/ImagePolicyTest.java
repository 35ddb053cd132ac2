package com.example.imagepolicy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.portcullis.admission.v1.AdmissionResponse;
import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.testing.Requests;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Asks the hooks as a dispatcher does. */
class ImagePolicyTest {
  private static final String PINNED = "{\"image\": \"nginx@sha256:0a\"}";
  private static final String LOOSE = "{\"image\": \"nginx:1.29\"}";

  private final FakeDispatcher mesh = FakeDispatcher.serving(ImagePolicy.host());

  @AfterEach
  void stop() {
    mesh.close();
  }

  private static String pod(String spec) {
    return "{\"apiVersion\": \"v1\", \"kind\": \"Pod\","
        + " \"metadata\": {\"name\": \"a\", \"namespace\": \"shop\"}, \"spec\": {"
        + spec
        + "}}";
  }

  private AdmissionResponse validate(String object) {
    return mesh.review("imagepolicy.example.com", Requests.create(object));
  }

  @Test
  void aPodWithPinnedImagesIsAllowed() {
    assertTrue(validate(pod("\"containers\": [" + PINNED + "]")).getAllowed());
  }

  @ParameterizedTest
  @CsvSource({"initContainers", "containers", "ephemeralContainers"})
  void everyImageOfAPodIsLookedAt(String kind) {
    AdmissionResponse denial = validate(pod("\"" + kind + "\": [" + PINNED + ", " + LOOSE + "]"));
    assertEquals("images are named by digest here: nginx:1.29", denial.getStatus().getMessage());
    assertEquals(403, denial.getStatus().getCode());
    assertEquals(
        "spec." + kind + "[1].image", denial.getStatus().getDetails().getCauses(0).getField());
  }

  @Test
  void aDeletionIsAllowed() {
    String loose = pod("\"containers\": [" + LOOSE + "]");
    assertTrue(mesh.review("imagepolicy.example.com", Requests.delete(loose)).getAllowed());
    assertTrue(mesh.review("team-label.example.com", Requests.delete(loose)).getPatch().isEmpty());
  }

  @Test
  void whatHasNoTeamGetsItsNamespace() {
    AdmissionResponse verdict =
        mesh.review("team-label.example.com", Requests.create(pod("\"containers\": []")));
    assertEquals(
        "[{\"op\":\"add\",\"path\":\"/metadata/labels\",\"value\":{\"team\":\"shop\"}}]",
        verdict.getPatch().toStringUtf8());
  }

  @Test
  void whatHasATeamKeepsIt() {
    String labelled = "{\"kind\": \"Pod\", \"metadata\": {\"labels\": {\"team\": \"x\"}}}";
    assertTrue(
        mesh.review("team-label.example.com", Requests.create(labelled)).getPatch().isEmpty());
  }
}
