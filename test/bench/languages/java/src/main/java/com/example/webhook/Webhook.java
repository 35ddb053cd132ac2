package com.example.webhook;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/**
 * The policy of examples/imagepolicy-java as an ordinary validating webhook, with Spring Boot on
 * Tomcat.
 */
@SpringBootApplication
@RestController
public class Webhook {
  /** Serves the webhook until SIGTERM or SIGINT. */
  public static void main(String[] args) {
    Map<String, String> flags = new HashMap<>();
    for (int i = 0; i + 1 < args.length; i += 2) {
      flags.put(args[i], args[i + 1]);
    }
    SpringApplication app = new SpringApplication(Webhook.class);
    app.setDefaultProperties(
        Map.of(
            "server.address", "127.0.0.1",
            "server.port", flags.get("--port"),
            "server.ssl.certificate", "file:" + flags.get("--cert"),
            "server.ssl.certificate-private-key", "file:" + flags.get("--key"),
            // Its default closes a connection after a hundred reviews.
            "server.tomcat.max-keep-alive-requests", "-1",
            "logging.level.root", "warn"));
    app.run();
  }

  /** Denies a Pod with an image that is not named by digest. */
  @PostMapping("/validate")
  public JsonNode validate(@RequestBody JsonNode review) {
    ObjectNode answer = JsonNodeFactory.instance.objectNode();
    answer.put("apiVersion", "admission.k8s.io/v1").put("kind", "AdmissionReview");
    ObjectNode response = answer.putObject("response");
    response.put("uid", review.at("/request/uid").asText()).put("allowed", true);
    JsonNode spec = review.at("/request/object/spec"); // Missing on DELETE.
    for (String kind : List.of("initContainers", "containers", "ephemeralContainers")) {
      for (JsonNode container : spec.path(kind)) {
        String image = container.path("image").asText();
        if (!image.contains("@sha256:")) {
          response.put("allowed", false);
          response
              .putObject("status")
              .put("message", "images are named by digest here: " + image);
          return answer;
        }
      }
    }
    return answer;
  }
}
