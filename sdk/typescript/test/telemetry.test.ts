import assert from "node:assert/strict";
import { after, suite, test } from "node:test";
import { context, metrics, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { allow, Host, silentLogger } from "../src/index.js";
import { parentOf, remoteSpan } from "../src/telemetry.js";
import { createRequest, FrameDispatcher } from "./support/dispatcher.js";

const spans = new InMemorySpanExporter();
const readings = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
const reader = new PeriodicExportingMetricReader({ exporter: readings, exportIntervalMillis: 1 << 30 });
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }));
metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
after(() => reader.shutdown());

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const CALL = "00f067aa0ba902b7";
const traceparent = `00-${TRACE}-b7ad6b7169203331-01`;
const spanId = Buffer.from(CALL, "hex");

suite("telemetry", () => {
  test("the span of a handler is a child of its call, and the parent of what the handler does", async () => {
    let inside: string | undefined;
    const host = new Host({ name: "test", logger: silentLogger }).validate("v", async (request) => {
      await Promise.resolve();
      inside = trace.getActiveSpan()?.spanContext().spanId;
      if (request.name === "bad") {
        throw new Error("hunter2");
      }
      return allow();
    });
    {
      await using mesh = await FrameDispatcher.start(host);
      await mesh.review("v", createRequest({ kind: "Pod" }), { traceparent, call: { spanId } });
      await mesh.ask("v", createRequest({ metadata: { name: "bad" } }), { traceparent });
    }
    const [good, bad] = spans.getFinishedSpans();
    assert.ok(good && bad);
    assert.equal(good.name, "handle v");
    assert.equal(good.spanContext().traceId, TRACE);
    assert.equal(good.parentSpanContext?.spanId, CALL);
    assert.equal(bad.parentSpanContext?.spanId, "b7ad6b7169203331");
    assert.equal(inside, bad.spanContext().spanId);
    assert.deepEqual(
      [good.attributes["portcullis.hook"], good.attributes["portcullis.allowed"], good.attributes["k8s.cluster.name"]],
      ["v", true, "testing"],
    );
    assert.equal(bad.status.message, "handler failed");
  });

  test("calls are counted by hook and outcome, and handlers measured", async () => {
    await reader.forceFlush();
    const found = readings.getMetrics().flatMap((m) => m.scopeMetrics.flatMap((s) => s.metrics));
    const points = (name: string) => found.find((m) => m.descriptor.name === name)?.dataPoints ?? [];
    assert.deepEqual(
      points("portcullis.host.calls").map((p) => [
        p.attributes["portcullis.hook"],
        p.attributes["portcullis.outcome"],
        p.value,
      ]),
      [
        ["v", "allowed", 1],
        ["v", "failed", 1],
      ],
    );
    const [time] = points("portcullis.host.handler.duration");
    assert.ok(typeof time?.value === "object" && "count" in time.value && time.value.count === 2);
  });

  test("telemetry that throws costs no verdict", async () => {
    const fail = () => {
      throw new Error("the disk is full");
    };
    const processor = { onStart() {}, onEnd: fail, forceFlush: async () => {}, shutdown: async () => {} };
    const tracerProvider = new BasicTracerProvider({ spanProcessors: [processor] });
    const meter = { createCounter: () => ({ add: fail }), createHistogram: () => ({ record: fail }) };
    const meterProvider = { getMeter: () => meter } as never;
    const options = { name: "test", logger: silentLogger };
    for (const providers of [{ tracerProvider }, { meterProvider }]) {
      const host = new Host({ ...options, ...providers }).validate("v", () => allow());
      await using mesh = await FrameDispatcher.start(host);
      assert.equal((await mesh.review("v", createRequest({}))).allowed, true);
    }
  });

  test("a traceparent that is none, or names nothing, makes no parent", () => {
    const none = new Uint8Array();
    assert.equal(parentOf("", spanId), "");
    assert.equal(parentOf("00-zz-zz-01", spanId), "");
    assert.equal(parentOf(traceparent, none), traceparent);
    assert.equal(parentOf(traceparent, spanId), `00-${TRACE}-${CALL}-01`);
    assert.equal(remoteSpan("", ""), undefined);
    assert.equal(remoteSpan(`00-${"0".repeat(32)}-${CALL}-01`, ""), undefined);
    assert.equal(remoteSpan(traceparent, "a=b")?.traceState?.get("a"), "b");
  });

  test("options name other providers", async () => {
    const own = new InMemorySpanExporter();
    const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(own)] });
    const seen: string[] = [];
    const host = new Host({ name: "test", logger: silentLogger, tracerProvider }).validate("v", ({ traceparent }) => {
      seen.push(traceparent);
      throw new Error("hunter2");
    });
    {
      await using mesh = await FrameDispatcher.start(host);
      await mesh.ask("v", createRequest({}), { traceparent, call: { spanId } });
    }
    const [span] = own.getFinishedSpans();
    assert.deepEqual(seen, [`00-${TRACE}-${CALL}-01`]);
    assert.equal(span?.events.find(({ name }) => name === "exception")?.attributes?.["exception.message"], "hunter2");
  });
});
