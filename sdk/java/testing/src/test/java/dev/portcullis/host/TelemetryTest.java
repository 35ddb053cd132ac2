package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.protobuf.ByteString;
import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.testing.FakeSession;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Review;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.data.LongPointData;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.time.Duration;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The spans and metrics of handlers. */
class TelemetryTest {
  private static final String TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";

  @Test
  void theSpanOfAHandlerIsAChildOfTheCallInTheDispatcher() {
    InMemorySpanExporter spans = InMemorySpanExporter.create();
    InMemoryMetricReader metrics = InMemoryMetricReader.create();
    OpenTelemetrySdk telemetry =
        OpenTelemetrySdk.builder()
            .setTracerProvider(
                SdkTracerProvider.builder()
                    .addSpanProcessor(SimpleSpanProcessor.create(spans))
                    .build())
            .setMeterProvider(SdkMeterProvider.builder().registerMetricReader(metrics).build())
            .build();
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            Host.builder("test")
                .openTelemetry(telemetry)
                .validate(
                    "a",
                    request ->
                        Response.deny("no")
                            .audit("span", Span.current().getSpanContext().getSpanId())))) {
      FakeSession session = mesh.session();
      HookCall call =
          session.call("a", Duration.ofSeconds(60)).toBuilder()
              .setSpanId(ByteString.copyFrom(HexFormat.of().parseHex("00f067aa0ba902b8")))
              .build();
      Review.Builder review =
          Review.newBuilder()
              .setTraceparent("00-" + TRACE + "-00f067aa0ba902b7-01")
              .addHooks(call)
              .setRequest(Requests.create("{}"));
      String inHandler =
          session.post(review).get(0).join().getResponse().getAuditAnnotationsOrThrow("span");

      SpanData span = spans.getFinishedSpanItems().get(0);
      assertEquals("handle a", span.getName());
      assertEquals(TRACE, span.getTraceId());
      assertEquals("00f067aa0ba902b8", span.getParentSpanId());
      assertEquals(inHandler, span.getSpanId());
      assertEquals(false, span.getAttributes().get(AttributeKey.booleanKey("portcullis.allowed")));
      assertEquals("queued", span.getEvents().get(0).getName());
    }
    Collection<MetricData> collected = metrics.collectAllMetrics();
    assertEquals(
        List.of("portcullis.host.calls", "portcullis.host.handler.duration"),
        collected.stream().map(MetricData::getName).sorted().toList());
    assertEquals(
        List.of("denied"),
        collected.stream()
            .flatMap(metric -> metric.getLongSumData().getPoints().stream())
            .map(point -> point.getAttributes().get(AttributeKey.stringKey("portcullis.outcome")))
            .toList());
  }

  @Test
  void callsAreCountedByHookAndOutcome() {
    InMemoryMetricReader metrics = InMemoryMetricReader.create();
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            Host.builder("test")
                .openTelemetry(
                    OpenTelemetrySdk.builder()
                        .setMeterProvider(
                            SdkMeterProvider.builder().registerMetricReader(metrics).build())
                        .build())
                .validate("allow", request -> Response.allow())
                .validate("deny", request -> Response.deny("no"))
                .validate(
                    "fail",
                    request -> {
                      throw new IllegalStateException("down");
                    })
                .validate(
                    "panic",
                    request -> {
                      throw new AssertionError("bug");
                    }))) {
      for (String hook : List.of("allow", "deny", "fail", "panic", "deny")) {
        mesh.session().ask(hook, Requests.create("{}"));
      }
    }
    assertEquals(
        Map.of("allow allowed", 1L, "deny denied", 2L, "fail failed", 1L, "panic panicked", 1L),
        metrics.collectAllMetrics().stream()
            .flatMap(metric -> metric.getLongSumData().getPoints().stream())
            .collect(
                Collectors.toMap(
                    point ->
                        point.getAttributes().get(AttributeKey.stringKey("portcullis.hook"))
                            + " "
                            + point
                                .getAttributes()
                                .get(AttributeKey.stringKey("portcullis.outcome")),
                    LongPointData::getValue)));
  }
}
