package dev.portcullis.testhost;

import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.portcullis.host.HandlerException;
import dev.portcullis.host.HookOption;
import dev.portcullis.host.Host;
import dev.portcullis.host.HostBuilder;
import dev.portcullis.host.Tls;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A host whose handlers do what the objects of reviews ask for: {@code TestHost CONFIG.json}. */
public final class TestHost {
  private TestHost() {}

  /**
   * Serves until it is drained.
   *
   * @param args the file with the settings
   */
  public static void main(String[] args) {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    Control control = new Control(out);
    String error;
    try {
      Config config = Control.MAPPER.readValue(Path.of(args[0]).toFile(), Config.class);
      error = serve(host(config, control), control);
    } catch (IOException | RuntimeException | InterruptedException e) {
      e.printStackTrace();
      error = String.valueOf(e);
    }
    ObjectNode ended = Control.event("ended").put("error", error);
    control.say(ended);
    // A process that SIGTERM ends would exit with 143.
    Runtime.getRuntime().halt(error.isEmpty() ? 0 : 1);
  }

  private static String serve(Host host, Control control) throws InterruptedException {
    host.ready().thenRun(() -> control.say(Control.event("ready")));
    Thread input = new Thread(() -> obey(control, host), "input");
    input.setDaemon(true);
    input.start();
    host.start();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> drain(host), "drain"));
    return host.awaitTermination() ? "" : "calls were cut off";
  }

  /** Drains when the process is asked to end, and waits for main to end it. */
  private static void drain(Host host) {
    host.close();
    try {
      Thread.currentThread().join();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static void obey(Control control, Host host) {
    try {
      control.obey(
          new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)),
          host::drain);
    } catch (IOException e) {
      e.printStackTrace();
    }
    Runtime.getRuntime().halt(1);
  }

  private static Host host(Config config, Control control) {
    HostBuilder builder =
        Host.builder(config.name())
            .instance(config.instance())
            .zone(config.zone())
            .clusters(config.clusters().toArray(String[]::new))
            .dispatchers(config.dispatchers().toArray(String[]::new))
            .serverName(config.serverName())
            .tls(tls(config.tls()))
            .openTelemetry(OpenTelemetrySdk.builder().setTracerProvider(spans()).build());
    if (config.maxOutstanding() > 0) {
      builder.maxOutstanding(config.maxOutstanding());
    }
    if (config.maxFrameBytes() > 0) {
      builder.maxFrameBytes(config.maxFrameBytes());
    }
    if (config.drainTimeoutMs() > 0) {
      builder.drainTimeout(Duration.ofMillis(config.drainTimeoutMs()));
    }
    for (String hook : config.validate()) {
      builder.validate(hook, new ScriptHandler(hook, control), options(config, control, hook));
    }
    for (String hook : config.mutate()) {
      builder.mutate(hook, new ScriptHandler(hook, control), options(config, control, hook));
    }
    for (String hook : config.initialize()) {
      ScriptHandler handler = new ScriptHandler(hook, control);
      builder.initialize(
          hook, ObjectNode.class, handler::initialize, options(config, control, hook));
    }
    return builder.build();
  }

  /** Real spans, which are exported nowhere. */
  private static SdkTracerProvider spans() {
    return SdkTracerProvider.builder()
        .addSpanProcessor(SimpleSpanProcessor.create(SpanExporter.composite()))
        .build();
  }

  private static Tls tls(Config.@Nullable Files files) {
    return files == null
        ? Tls.plaintext()
        : Tls.files(Path.of(files.cert()), Path.of(files.key()), Path.of(files.ca()));
  }

  private static HookOption[] options(Config config, Control control, String hook) {
    List<HookOption> options = new ArrayList<>();
    if (config.speculate().contains(hook)) {
      options.add(HookOption.speculate());
    }
    if (config.unready().contains(hook)) {
      options.add(HookOption.ready(() -> checkReady(control, hook)));
    }
    return options.toArray(HookOption[]::new);
  }

  private static void checkReady(Control control, String hook) throws HandlerException {
    if (!control.isReady(hook)) {
      throw new HandlerException("not ready");
    }
  }
}
