package com.example.imagepolicy;

import com.fasterxml.jackson.databind.JsonNode;
import dev.portcullis.host.HookOption;
import dev.portcullis.host.Host;
import dev.portcullis.host.HostBuilder;
import dev.portcullis.host.Request;
import dev.portcullis.host.Response;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The hooks of the policy. */
final class Policy {
  private Policy() {}

  /** The host with its hooks. The caller says where they are served. */
  static HostBuilder newHost() {
    return Host.builder("imagepolicy")
        .validate("imagepolicy.example.com", Policy::byDigest)
        .mutate("team-label.example.com", Policy::teamLabel, HookOption.speculate());
  }

  /** Denies a Pod with an image that is not named by digest. */
  static Response byDigest(Request request) {
    if (request.object().isMissingNode()) { // DELETE
      return Response.allow();
    }
    for (Map.Entry<String, String> named : images(request.object()).entrySet()) {
      String image = named.getValue();
      if (!image.contains("@sha256:")) {
        return Response.deny("images are named by digest here: " + image)
            .cause(named.getKey(), "has no digest");
      }
    }
    return Response.allow();
  }

  /** The images of all containers of a Pod, each after the path of its field. */
  private static Map<String, String> images(JsonNode pod) {
    Map<String, String> images = new LinkedHashMap<>();
    for (String list : List.of("initContainers", "containers", "ephemeralContainers")) {
      JsonNode containers = pod.path("spec").path(list);
      for (int i = 0; i < containers.size(); i++) {
        images.put("spec." + list + "[" + i + "].image", containers.path(i).path("image").asText());
      }
    }
    return images;
  }

  /** Labels a Pod that has no team with its namespace. */
  static Response teamLabel(Request request) {
    if (request.object().isMissingNode()) { // DELETE
      return Response.allow();
    }
    if (request.object().at("/metadata/labels").has("team")) {
      return Response.allow();
    }
    return Response.change(
        request, pod -> pod.withObject("/metadata/labels").put("team", request.namespace()));
  }
}
