package dev.portcullis.host;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.google.protobuf.InvalidProtocolBufferException;
import dev.portcullis.host.v1.ConnectRequest;
import dev.portcullis.host.v1.ConnectResponse;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** A transcript of a session: what a dispatcher sends, and what a host does then. */
@JsonIgnoreProperties(ignoreUnknown = true)
record Vector(String name, List<Step> steps) {
  /** One thing that the dispatcher does, or the user of the host, or time. */
  @JsonIgnoreProperties(ignoreUnknown = true)
  record Step(
      String action,
      List<String> hooks,
      int maxOutstanding,
      long drainTimeoutMs,
      List<String> frames,
      long ms,
      @Nullable String hook,
      @Nullable String code,
      List<Event> expect) {
    Step(
        @JsonProperty("do") String action,
        @Nullable List<String> hooks,
        int maxOutstanding,
        long drainTimeoutMs,
        @Nullable List<String> frames,
        long ms,
        @Nullable String hook,
        @Nullable String code,
        List<Event> expect) {
      this.action = action;
      this.hooks = hooks == null ? List.of() : hooks;
      this.maxOutstanding = maxOutstanding;
      this.drainTimeoutMs = drainTimeoutMs;
      this.frames = frames == null ? List.of() : frames;
      this.ms = ms;
      this.hook = hook;
      this.code = code;
      this.expect = expect;
    }

    List<ConnectResponse> messages() throws InvalidProtocolBufferException {
      List<ConnectResponse> out = new ArrayList<>();
      for (String hex : frames) {
        out.add(ConnectResponse.parseFrom(HexFormat.of().parseHex(hex)));
      }
      return out;
    }
  }

  /** One thing that the host does: one member is set. */
  @JsonIgnoreProperties(ignoreUnknown = true)
  record Event(
      @Nullable String started, @Nullable String frame, boolean closed, @Nullable String ended) {
    ConnectRequest message() throws InvalidProtocolBufferException {
      return ConnectRequest.parseFrom(HexFormat.of().parseHex(String.valueOf(frame)));
    }
  }

  static Stream<Vector> all() throws IOException {
    JsonMapper mapper = JsonMapper.builder().build();
    try (Stream<Path> files = Files.list(Repository.path("sdk/conformance/vectors"))) {
      List<Path> sorted = files.filter(f -> f.toString().endsWith(".json")).sorted().toList();
      List<Vector> out = new ArrayList<>();
      for (Path file : sorted) {
        out.add(mapper.readValue(file.toFile(), Vector.class));
      }
      return out.stream();
    }
  }
}
