package com.example.imagepolicy;

import com.fasterxml.jackson.databind.JsonNode;
import dev.portcullis.host.Call;
import dev.portcullis.host.HookOptions;
import dev.portcullis.host.Host;
import dev.portcullis.host.HostBuilder;
import dev.portcullis.host.Request;
import dev.portcullis.host.Response;
import dev.portcullis.host.Tls;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A host with two hooks: images are named by digest, and what has no team gets its namespace's. A
 * beginning for hosts of your own.
 */
public final class ImagePolicy {
  private ImagePolicy() {}

  /** Serves the hooks until SIGTERM or SIGINT. */
  public static void main(String[] args) throws InterruptedException {
    Map<String, String> flags =
        new HashMap<>(Map.of("--cert", "tls.crt", "--key", "tls.key", "--ca", "ca.crt"));
    for (int i = 0; i + 1 < args.length; i += 2) {
      flags.put(args[i], args[i + 1]);
    }
    if (!flags.containsKey("--dispatchers")) {
      System.err.println(
          "usage: imagepolicy --dispatchers HOST:PORT[,...] [--cert F] [--key F] [--ca F]");
      System.exit(2);
    }
    host()
        .dispatchers(flags.get("--dispatchers").split(","))
        .tls(
            Tls.files(
                Path.of(flags.get("--cert")),
                Path.of(flags.get("--key")),
                Path.of(flags.get("--ca"))))
        .build()
        .run();
  }

  /** The host with its hooks, apart from where they are served. */
  static HostBuilder host() {
    return Host.builder("imagepolicy")
        .validate("imagepolicy.example.com", ImagePolicy::byDigest)
        .mutate("team-label.example.com", ImagePolicy::teamLabel, HookOptions.speculate());
  }

  /** Denies a Pod with an image that is not named by digest. */
  static Response byDigest(Call call, Request request) {
    JsonNode spec = request.object().path("spec"); // Missing on DELETE.
    for (String kind : List.of("initContainers", "containers", "ephemeralContainers")) {
      JsonNode containers = spec.path(kind);
      for (int i = 0; i < containers.size(); i++) {
        String image = containers.path(i).path("image").asText();
        if (!image.contains("@sha256:")) {
          return Response.deny("images are named by digest here: " + image)
              .cause("spec." + kind + "[" + i + "].image", "has no digest");
        }
      }
    }
    return Response.allow();
  }

  /** Labels what has no team with its namespace. */
  static Response teamLabel(Call call, Request request) {
    if (request.object().at("/metadata/labels").has("team")) {
      return Response.allow();
    }
    return Response.change(
        request, object -> object.withObject("/metadata/labels").put("team", request.namespace()));
  }
}
