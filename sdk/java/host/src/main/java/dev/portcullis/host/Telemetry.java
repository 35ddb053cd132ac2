package dev.portcullis.host;

import com.google.protobuf.ByteString;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Review;
import dev.portcullis.host.v1.Verdict;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.propagation.TextMapGetter;
import java.time.Instant;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** The spans and metrics of handlers. Safe for concurrent use. */
final class Telemetry {
  private static final String SCOPE = "dev.portcullis.host";
  private static final int SPAN_ID_BYTES = 8;
  private static final int SPAN_START = 36;
  private static final int SPAN_END = 52;
  private static final double NANOS = TimeUnit.SECONDS.toNanos(1);

  private static final AttributeKey<String> HOOK = AttributeKey.stringKey("portcullis.hook");
  private static final AttributeKey<String> STAGE = AttributeKey.stringKey("portcullis.stage");
  private static final AttributeKey<String> CLUSTER = AttributeKey.stringKey("k8s.cluster.name");
  private static final AttributeKey<Double> QUEUE =
      AttributeKey.doubleKey("portcullis.queue.duration");
  private static final AttributeKey<Long> CALL = AttributeKey.longKey("portcullis.call");
  private static final AttributeKey<Boolean> ALLOWED =
      AttributeKey.booleanKey("portcullis.allowed");
  private static final AttributeKey<String> OUTCOME = AttributeKey.stringKey("portcullis.outcome");

  private final Tracer tracer;
  private final LongCounter calls;
  private final DoubleHistogram durations;

  Telemetry(OpenTelemetry openTelemetry) {
    tracer = openTelemetry.getTracer(SCOPE, Limits.SDK_VERSION);
    Meter meter = openTelemetry.meterBuilder(SCOPE).build();
    calls =
        meter
            .counterBuilder("portcullis.host.calls")
            .setDescription("Calls that were answered, by hook and outcome.")
            .setUnit("{call}")
            .build();
    durations =
        meter
            .histogramBuilder("portcullis.host.handler.duration")
            .setDescription("Time that handlers took.")
            .setUnit("s")
            .build();
  }

  /**
   * Starts the span of a handler as a child of the call's span in the dispatcher. It begins when
   * the review was received, and the event "queued" is when the handler is called.
   */
  Span start(Invocation invocation, long queued) {
    Span span =
        tracer
            .spanBuilder("handle " + invocation.hook().id().name())
            .setParent(parent(invocation))
            .setSpanKind(SpanKind.SERVER)
            .setStartTimestamp(Instant.now().minusNanos(queued))
            .startSpan();
    if (span.isRecording()) {
      span.addEvent("queued");
      span.setAllAttributes(attributes(invocation.hook().id()));
      span.setAttribute(CLUSTER, invocation.review().getRequest().getCluster());
      span.setAttribute(QUEUE, queued / NANOS);
      span.setAttribute(CALL, invocation.callId());
    }
    return span;
  }

  /** Ends the span of a handler, and says how it ended. */
  void end(Span span, Verdict.Builder verdict, @Nullable Throwable thrown) {
    if (span.isRecording()) {
      if (verdict.hasResponse()) {
        span.setAttribute(ALLOWED, verdict.getResponse().getAllowed());
      } else {
        span.setStatus(StatusCode.ERROR, outcome(verdict));
      }
      if (thrown != null) {
        span.recordException(thrown);
      }
    }
    span.end();
  }

  /** Counts a call that is answered. */
  void count(Invocation invocation, Verdict.Builder verdict, long handled) {
    Attributes hook = attributes(invocation.hook().id());
    calls.add(1, hook.toBuilder().put(OUTCOME, outcome(verdict)).build());
    if (!verdict.hasRefused()) {
      durations.record(handled / NANOS, hook);
    }
  }

  private static Attributes attributes(HookId hook) {
    return Attributes.of(HOOK, hook.name(), STAGE, HookId.stageName(hook.stage()));
  }

  private static String outcome(Verdict.Builder verdict) {
    return switch (verdict.getOutcomeCase()) {
      case RESPONSE -> verdict.getResponse().getAllowed() ? "allowed" : "denied";
      case CANCELLED -> "cancelled";
      case REFUSED -> "refused";
      default -> verdict.getError().getPanicked() ? "panicked" : "failed";
    };
  }

  private static Context parent(Invocation invocation) {
    Review review = invocation.review();
    return W3CTraceContextPropagator.getInstance()
        .extract(
            Context.root(),
            Map.of(
                "traceparent", traceparent(review, invocation.call()),
                "tracestate", review.getTracestate()),
            MapGetter.INSTANCE);
  }

  /**
   * The call's span in the dispatcher. The traceparent of a review is that of all its hooks; the
   * span of the call of one is named beside it.
   */
  static String traceparent(Review review, HookCall call) {
    String shared = review.getTraceparent(); // VERSION-TRACE-SPAN-FLAGS
    ByteString span = call.getSpanId();
    return shared.length() < SPAN_END || span.size() != SPAN_ID_BYTES
        ? shared
        : shared.substring(0, SPAN_START)
            + HexFormat.of().formatHex(span.toByteArray())
            + shared.substring(SPAN_END);
  }

  private enum MapGetter implements TextMapGetter<Map<String, String>> {
    INSTANCE;

    @Override
    public @Nullable String get(@Nullable Map<String, String> carrier, String key) {
      return carrier == null ? null : carrier.get(key);
    }
  }
}
