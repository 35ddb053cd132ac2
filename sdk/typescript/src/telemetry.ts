import {
  type Attributes,
  type Context,
  type Counter,
  context,
  createTraceState,
  type Histogram,
  isSpanContextValid,
  type MeterProvider,
  metrics,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import type { Outcome } from "./core/verdict.js";
import type { Review } from "./gen/portcullis/sdk/v1/frames_pb.js";
import type { Request, Stage } from "./request.js";

const SCOPE = "@portcullis-mesh/host";

/** What telemetry goes to; the providers that the program has registered with OpenTelemetry if absent. */
export interface Providers {
  /** Makes the spans of handlers. */
  readonly tracerProvider?: TracerProvider;
  /** Counts calls and measures handlers. */
  readonly meterProvider?: MeterProvider;
}

/** Telemetry makes the spans of handlers and counts calls. */
export class Telemetry {
  readonly #tracer: Tracer;
  readonly #calls: Counter;
  readonly #time: Histogram;

  constructor({ tracerProvider = trace, meterProvider = metrics }: Providers) {
    this.#tracer = tracerProvider.getTracer(SCOPE);
    const meter = meterProvider.getMeter(SCOPE);
    this.#calls = meter.createCounter("portcullis.host.calls", {
      unit: "{call}",
      description: "Calls of hooks, by how they ended",
    });
    this.#time = meter.createHistogram("portcullis.host.handler.duration", {
      unit: "s",
      description: "Time that handlers took",
    });
  }

  /** called counts a call, and measures its handler if that was called. */
  called(hook: string, stage: Stage, outcome: Outcome, handleMs: number | undefined): void {
    const attributes: Attributes = { "portcullis.hook": hook, "portcullis.stage": stage };
    this.#calls.add(1, { ...attributes, "portcullis.outcome": wordOf(outcome) });
    if (handleMs !== undefined) {
      this.#time.record(handleMs / 1000, attributes);
    }
  }

  /** start starts the span of a handler, as a child of the span of its call in the dispatcher. */
  start(request: Request, review: Review, queuedMs: number): HandlerSpan {
    const remote = remoteSpan(request.traceparent, review.tracestate);
    const parent = remote ? trace.setSpanContext(ROOT_CONTEXT, remote) : ROOT_CONTEXT;
    const now = Date.now();
    const options = { kind: SpanKind.SERVER, startTime: now - queuedMs };
    const span = this.#tracer.startSpan(`handle ${request.hook}`, options, parent);
    if (span.isRecording()) {
      span.addEvent("queued", now);
      span.setAttributes({
        "portcullis.hook": request.hook,
        "portcullis.stage": request.stage,
        "k8s.cluster.name": request.cluster,
        "portcullis.queue.duration": queuedMs / 1000,
        "portcullis.call": Number(review.callId),
      });
    }
    return new HandlerSpan(span, trace.setSpan(parent, span));
  }
}

/** HandlerSpan is the span of one call. */
export class HandlerSpan {
  readonly #span: Span;
  readonly #context: Context;

  constructor(span: Span, within: Context) {
    this.#span = span;
    this.#context = within;
  }

  /** run runs a handler within the span. */
  run<T>(handler: () => T): T {
    return context.with(this.#context, handler);
  }

  /** end ends the span of a call that has ended. */
  end(outcome: Outcome, error?: unknown): void {
    if (this.#span.isRecording()) {
      if (outcome.case === "response") {
        this.#span.setAttribute("portcullis.allowed", outcome.value.allowed);
      } else {
        const message = outcome.case === "error" ? outcome.value.message : wordOf(outcome);
        this.#span.setStatus({ code: SpanStatusCode.ERROR, message });
      }
      if (error instanceof Error) {
        this.#span.recordException(error);
      }
    }
    this.#span.end();
  }
}

function wordOf(outcome: Outcome): string {
  switch (outcome.case) {
    case "response":
      return outcome.value.allowed ? "allowed" : "denied";
    case "error":
      return outcome.value.panicked ? "panicked" : "failed";
    default:
      return outcome.case ?? "failed";
  }
}

/** parentOf is the traceparent of a call: that of its review may be shared by the calls of several hooks. Empty if it is none. */
export function parentOf(traceparent: string, spanId: Uint8Array): string {
  const [, trace, span, flags] = /^([0-9a-f]{2}-[0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})/.exec(traceparent) ?? [];
  return trace ? `${trace}-${spanId.length === 8 ? Buffer.from(spanId).toString("hex") : span}-${flags}` : "";
}

/** remoteSpan is the span of a call in the dispatcher. */
export function remoteSpan(traceparent: string, tracestate: string): SpanContext | undefined {
  const [, traceId = "", spanId = "", flags = ""] = traceparent.split("-");
  const remote: SpanContext = {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16) & TraceFlags.SAMPLED,
    isRemote: true,
    ...(tracestate === "" ? {} : { traceState: createTraceState(tracestate) }),
  };
  return isSpanContextValid(remote) ? remote : undefined;
}
