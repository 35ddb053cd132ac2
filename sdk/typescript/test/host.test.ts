import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import jsonpatch from "fast-json-patch";
import type { Pod } from "kubernetes-types/core/v1.js";
import { deferred } from "../src/deferred.js";
import { AdmissionRequestSchema, Stage } from "../src/gen/portcullis/admission/v1/admission_pb.js";
import {
  Mode,
  ReviewSchema,
  ReviewsSchema,
  State,
  type Verdict,
  WelcomeSchema,
} from "../src/gen/portcullis/host/v1/host_pb.js";
import { IncomingSchema } from "../src/gen/portcullis/sdk/v1/frames_pb.js";
import {
  allow,
  change,
  type Decision,
  deny,
  difference,
  HandlerError,
  Host,
  HostError,
  type HostOptions,
  type KubernetesObject,
  type Logger,
  patch,
  type Request,
  silentLogger,
} from "../src/index.js";
import { newRequest } from "../src/testing/index.js";
import { createRequest, FrameDispatcher, updateRequest } from "./support/dispatcher.js";
import { FakeClock } from "./support/fake_clock.js";
import { FakeStream } from "./support/fake_stream.js";

const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "shop" }, spec: {} };

function newHost(options: Partial<HostOptions> = {}): Host {
  return new Host({ name: "test", logger: silentLogger, ...options });
}

/** Lines collects what a host logs. */
function lines(): { logger: Logger; logged: string[] } {
  const logged: string[] = [];
  const log = (fields: Readonly<Record<string, unknown>>, message: string) => {
    logged.push(`${message} ${fields.err ?? fields.state ?? ""}`);
  };
  return { logged, logger: { debug() {}, info: log, warn: log, error: log } };
}

function patched(verdict: { patch: Uint8Array }, object: object): unknown {
  const operations = JSON.parse(new TextDecoder().decode(verdict.patch));
  return jsonpatch.applyPatch(structuredClone(object), operations).newDocument;
}

suite("decisions", () => {
  test("a typed object is denied with code, reason and causes", async () => {
    const host = newHost().validate<Pod>("v", ({ object }) =>
      object?.spec?.hostNetwork
        ? deny("no", { code: 422, reason: "Invalid", causes: [{ field: "spec.hostNetwork", message: "false" }] })
        : allow({ warnings: ["careful"], audit: { seen: "yes" } }),
    );
    await using mesh = await FrameDispatcher.start(host);
    const denied = await mesh.review("v", createRequest({ ...pod, spec: { hostNetwork: true } }));
    assert.equal(denied.allowed, false);
    assert.equal(denied.status?.code, 422);
    assert.equal(denied.status?.reason, "Invalid");
    assert.equal(denied.status?.details?.causes[0]?.field, "spec.hostNetwork");
    const allowed = await mesh.review("v", createRequest(pod));
    assert.deepEqual(
      [allowed.allowed, allowed.warnings, allowed.auditAnnotations],
      [true, ["careful"], { seen: "yes" }],
    );
  });

  test("what a handler changes becomes a patch of the bytes that came", async () => {
    const host = newHost()
      .mutate("m", (request) =>
        change(request, (object) => {
          object.metadata = { ...object.metadata, labels: { "a/b": request.namespace } };
        }),
      )
      .mutate("same", (request) => change(request, () => {}))
      .mutate("same with a warning", (request) => difference(request, request.copyObject(), { warnings: ["same"] }))
      .mutate("replaced", (request) => difference(request, { kind: "Other" }, { warnings: ["other"] }))
      .mutate("by-hand", () => patch([{ op: "add", path: "/x", value: 1 }]));
    await using mesh = await FrameDispatcher.start(host);
    const changed = await mesh.review("m", createRequest(pod));
    assert.equal(changed.patchType, "JSONPatch");
    assert.deepEqual(patched(changed, pod), { ...pod, metadata: { ...pod.metadata, labels: { "a/b": "shop" } } });
    assert.equal((await mesh.review("same", createRequest(pod))).patchType, "");
    const same = await mesh.review("same with a warning", createRequest(pod));
    assert.deepEqual([same.patchType, same.warnings], ["", ["same"]]);
    const replaced = await mesh.review("replaced", createRequest(pod));
    assert.deepEqual([patched(replaced, pod), replaced.warnings], [{ kind: "Other" }, ["other"]]);
    assert.deepEqual(patched(await mesh.review("by-hand", createRequest({})), {}), { x: 1 });
  });

  test("an object of a model is compared with what the model made of the request", async () => {
    /** It drops what it does not know, and writes a default and a date. */
    const model = ({ kind, spec = {} }: KubernetesObject) => ({ kind, spec, at: new Date(0), none: undefined });
    const host = newHost().mutate("m", (request) => {
      const before = model(request.copyObject());
      return difference(request, { ...before, kind: "Other", by: new Date(0) }, { before, audit: { k: "v" } });
    });
    await using mesh = await FrameDispatcher.start(host);
    const { patch: made, auditAnnotations } = await mesh.review("m", createRequest({ kind: "X", unknown: 1 }));
    assert.deepEqual(JSON.parse(new TextDecoder().decode(made)), [
      { op: "add", path: "/by", value: "1970-01-01T00:00:00.000Z" },
      { op: "replace", path: "/kind", value: "Other" },
    ]);
    assert.deepEqual(auditAnnotations, { k: "v" });
  });

  test("an integer that JavaScript rounds is left alone, and never written", async () => {
    const object = `{"kind":"X","big":9007199254740993,"huge":1${"0".repeat(40)},"n":1}`;
    const host = newHost()
      .mutate("leave", (request) => change(request, (x) => Object.assign(x, { n: 2 })))
      .mutate("write", (request) => change(request, (x) => Object.assign(x, { copy: [x.big] })))
      .mutate("write huge", (request) => change(request, (x) => Object.assign(x, { copy: { x: x.huge } })))
      .mutate("own", (request) => change(request, (x) => Object.assign(x, { own: 2 ** 54 })));
    await using mesh = await FrameDispatcher.start(host);
    const { patch: left } = await mesh.review("leave", createRequest(object));
    assert.equal(new TextDecoder().decode(left), '[{"op":"replace","path":"/n","value":2}]');
    const { patch: own } = await mesh.review("own", createRequest(object));
    assert.equal(new TextDecoder().decode(own), '[{"op":"add","path":"/own","value":18014398509481984}]');
    for (const hook of ["write", "write huge"]) {
      const { outcome } = await mesh.ask(hook, createRequest(object));
      assert.ok(outcome.case === "error", hook);
      assert.equal(outcome.value.message, "the patch of /copy holds an integer that JavaScript has rounded");
    }
  });

  test("a lone surrogate does not fail the frame", async () => {
    await using mesh = await FrameDispatcher.start(newHost().validate("v", () => deny("\ud800!")));
    assert.equal((await mesh.review("v", createRequest(pod))).status?.message, "\ufffd!");
  });
});

suite("failures", () => {
  const outcomes = async (thrown: unknown): Promise<Verdict["outcome"]> => {
    const host = newHost().validate("v", () => {
      throw thrown;
    });
    await using mesh = await FrameDispatcher.start(host);
    return (await mesh.ask("v", createRequest(pod))).outcome;
  };
  const cases: [string, unknown, string, boolean][] = [
    ["the text of a HandlerError goes out", new HandlerError("registry is down"), "registry is down", false],
    ["no other text does", new Error("hunter2"), "handler failed", false],
    ["anything may be thrown", "hunter2", "handler failed", false],
    ["a bug is told apart", new TypeError("x is not a function"), "handler panicked", true],
    [
      "fetch throws a TypeError that is no bug",
      new TypeError("fetch failed", { cause: new Error("x") }),
      "handler failed",
      false,
    ],
  ];
  for (const [name, thrown, message, panicked] of cases) {
    test(name, async () => {
      const outcome = await outcomes(thrown);
      assert.ok(outcome.case === "error");
      assert.deepEqual([outcome.value.message, outcome.value.panicked], [message, panicked]);
    });
  }

  test("the log has the error, at most once a second", async () => {
    const { logger, logged } = lines();
    const clock = new FakeClock();
    const stream = new FakeStream();
    const host = newHost({ logger, clock }).validate("v", () => {
      throw new Error("hunter2");
    });
    void host.serve(stream.open, new AbortController().signal);
    welcome(stream);
    for (const callId of [1n, 2n, 3n]) {
      review(stream, callId, "v", 9000);
      await clock.settle();
    }
    assert.equal(logged.filter((line) => line.includes("hunter2")).length, 1);
  });

  test("a request that cannot be decoded fails its call alone", async () => {
    const clock = new FakeClock();
    const stream = new FakeStream();
    let called = 0;
    const host = newHost({ clock }).validate("v", () => {
      called++;
      return allow();
    });
    void host.serve(stream.open, new AbortController().signal);
    welcome(stream);
    review(stream, 1n, "v", 9000, new Uint8Array([0xff, 0xff]));
    await clock.settle();
    const [verdict] = verdicts(stream);
    assert.ok(verdict?.outcome.case === "error");
    assert.equal(verdict.outcome.value.message, "the dispatcher sent a request that cannot be decoded");
    assert.equal(called, 0);
    review(stream, 2n, "v", 9000);
    await clock.settle();
    assert.equal(verdicts(stream)[0]?.outcome.case, "response");
  });
});

test("a host introduces itself by its options", async () => {
  const limits = { maxOutstanding: 3, maxFrameBytes: 1 << 20 };
  const host = newHost({ instance: "i1", zone: "z1", clusters: ["a", "b"], ...limits }).validate("v", () => allow());
  await using mesh = await FrameDispatcher.start(host);
  const { host: name, instance, zone, clusters, maxOutstanding, maxFrameBytes } = await mesh.hello;
  assert.deepEqual([name, instance, zone, clusters], ["test", "i1", "z1", ["a", "b"]]);
  assert.deepEqual({ maxOutstanding, maxFrameBytes }, limits);
});

suite("requests", () => {
  test("objects are decoded when they are asked for, and their bytes are untouched", async () => {
    const object = '{ "kind":"Pod" ,"n":1.0}';
    let seen: Request | undefined;
    const host = newHost().validate("v", (request) => {
      seen = request;
      return allow();
    });
    await using mesh = await FrameDispatcher.start(host);
    const asked = updateRequest("{}", object);
    asked.dryRun = true;
    const [trace, span] = ["11".repeat(16), "22".repeat(8)];
    await mesh.review("v", asked, {
      call: { round: 1, configuration: "c", mode: Mode.SHADOW, spanId: new Uint8Array(8).fill(0x33) },
      traceparent: `00-${trace}-${span}-01`,
    });
    assert.ok(seen);
    assert.equal(new TextDecoder().decode(seen.rawObject), object);
    assert.deepEqual(seen.object, { kind: "Pod", n: 1 });
    assert.equal(seen.object, seen.object);
    assert.notEqual(seen.copyObject(), seen.object);
    assert.deepEqual(
      [
        seen.oldObject,
        seen.operation,
        seen.username,
        seen.cluster,
        seen.dryRun,
        seen.round,
        seen.configuration,
        seen.stage,
      ],
      [{}, "UPDATE", "testing", "testing", true, 1, "c", "validate"],
    );
    assert.deepEqual([seen.hook, seen.mode, seen.traceparent], ["v", "shadow", `00-${trace}-${"33".repeat(8)}-01`]);
  });

  test("without an object there is nothing to change", () => {
    const request = newRequest({ oldObject: pod });
    assert.equal(request.object, undefined);
    assert.equal(request.rawObject, undefined);
    assert.equal(new TextDecoder().decode(request.rawOldObject), JSON.stringify(pod));
    assert.deepEqual(
      change(request, () => assert.fail("nothing is edited"), { warnings: ["w"] }),
      allow({ warnings: ["w"] }),
    );
    assert.throws(() => difference(request, {}), new HandlerError("the request has no object that could be changed"));
  });

  test("an object that is not JSON is a failure with a reason", () => {
    assert.throws(() => newRequest({ object: "{" }).object, new HandlerError("the object is not JSON"));
    assert.throws(() => newRequest({ object: "1" }).object, new HandlerError("the object is no JSON object"));
    const yaml = newRequest({ object: "a: b" });
    Object.assign(yaml.admission.object ?? {}, { contentType: "application/yaml" });
    assert.throws(() => yaml.object, new HandlerError("the object is application/yaml, want JSON"));
  });

  test("a review of 1 MB comes in chunks", async () => {
    const large = JSON.stringify({ ...pod, data: "x".repeat(1_000_000) });
    const host = newHost().validate("v", (r) => allow({ audit: { bytes: String(r.rawObject?.length) } }));
    await using mesh = await FrameDispatcher.start(host);
    assert.equal((await mesh.review("v", createRequest(large))).auditAnnotations.bytes, String(large.length));
  });
});

suite("time", () => {
  test("the signal aborts at the deadline and on cancel, with the usual reasons", async () => {
    const reasons: string[] = [];
    const host = newHost().validate("v", ({ signal, remainingMs }) => {
      assert.ok(remainingMs > 0);
      return new Promise<Decision>((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          reasons.push((signal.reason as DOMException).name);
          reject(signal.reason);
        });
        cancel.abort();
      });
    });
    const cancel = new AbortController();
    await using mesh = await FrameDispatcher.start(host);
    const cancelled = await mesh.ask("v", createRequest(pod), { signal: cancel.signal });
    const late = await mesh.ask("v", createRequest(pod), { remainingMs: 1000 });
    assert.deepEqual([cancelled.outcome.case, late.outcome.case], ["cancelled", "cancelled"]);
    assert.deepEqual(reasons, ["AbortError", "TimeoutError"]);
  });

  test("a decision counts also when it is late", async () => {
    const host = newHost().validate("v", ({ signal }) => {
      return new Promise<Decision>((resolve) => signal.addEventListener("abort", () => resolve(allow())));
    });
    await using mesh = await FrameDispatcher.start(host);
    assert.equal((await mesh.ask("v", createRequest(pod), { remainingMs: 1000 })).outcome.case, "response");
  });

  test("pings are answered between handlers that compute", async () => {
    let called = 0;
    const answered = deferred<number>(); // How many handlers were called before.
    const host = newHost().validate("v", () => {
      if (++called === 1) {
        void mesh.ping().then(() => answered.resolve(called));
      }
      for (const until = performance.now() + 4; performance.now() < until; ) {}
      return allow();
    });
    await using mesh = await FrameDispatcher.start(host);
    const call = { name: "v", stage: Stage.VALIDATE, remainingMs: 9000 };
    const reviews = Array.from({ length: 50 }, (_, i) => {
      return create(ReviewSchema, { callId: BigInt(i + 1000), hooks: [call], request: createRequest(pod) });
    });
    mesh.send({ case: "reviews", value: create(ReviewsSchema, { reviews }) });
    assert.ok((await answered.promise) < 50, "all handlers were called before the ping was answered");
  });

  test("a dispatcher that falls silent is hung up on", async () => {
    const clock = new FakeClock();
    const stream = new FakeStream();
    const host = newHost({ clock }).validate("v", () => allow());
    const served = host.serve(stream.open, new AbortController().signal);
    const value = create(WelcomeSchema, { sessionId: "s", dispatcherId: "d", protocol: 1, silenceMs: 700 });
    stream.give({ case: "welcome", value });
    const failed = assert.rejects(served, new HostError("the dispatcher fell silent"));
    await clock.advance(699);
    assert.equal(stream.cancelled, false);
    await clock.advance(1);
    await failed;
    assert.deepEqual([stream.cancelled, stream.closed], [true, false]);
  });

  test("a handler that keeps the event loop is logged", async () => {
    const { logger, logged } = lines();
    const clock = new FakeClock();
    const stream = new FakeStream();
    const host = newHost({ logger, clock }).validate("v", () => {
      clock.skip(300);
      return allow();
    });
    void host.serve(stream.open, new AbortController().signal);
    welcome(stream);
    review(stream, 1n, "v", 9000);
    await clock.settle();
    assert.ok(logged.some((line) => line.startsWith("handler blocked the event loop")));
  });
});

/** Welcomes a host, with more than 64 hours of silence. */
function welcome(stream: FakeStream): void {
  const value = create(WelcomeSchema, { sessionId: "s", dispatcherId: "d", protocol: 1, silenceMs: 2 ** 31 - 1 });
  stream.give({ case: "welcome", value });
}

const request = toBinary(AdmissionRequestSchema, createRequest(pod));

function review(stream: FakeStream, callId: bigint, name: string, remainingMs: number, encoded = request): void {
  const hooks = [{ name, stage: Stage.VALIDATE, remainingMs }];
  const frame = create(IncomingSchema, { frame: { case: "review", value: { callId, hooks, request: encoded } } });
  stream.giveBytes(toBinary(IncomingSchema, frame));
}

function verdicts(stream: FakeStream): Verdict[] {
  return stream.take().flatMap(({ frame }) => {
    return frame.case === "verdict" ? [frame.value] : frame.case === "verdicts" ? frame.value.verdicts : [];
  });
}

suite("capacity", () => {
  /** Two sessions of a host that takes two calls. */
  async function two() {
    const clock = new FakeClock();
    const release: (() => void)[] = [];
    const host = newHost({ clock, maxOutstanding: 2 }).validate("v", () => {
      return new Promise<Decision>((resolve) => release.push(() => resolve(allow())));
    });
    const streams = [new FakeStream(), new FakeStream()] as const;
    const ended = streams.map((stream) => {
      const done = host.serve(stream.open, new AbortController().signal).catch(() => {});
      welcome(stream);
      return done;
    });
    await clock.settle();
    return { clock, release, streams, ended };
  }

  test("it is divided over the sessions, and told by credit", async () => {
    const { streams, ended, clock } = await two();
    const [first, second] = streams;
    assert.deepEqual(
      first
        .take()
        .map(({ frame }) => (frame.case === "hello" || frame.case === "credit" ? frame.value.maxOutstanding : 0)),
      [2, 1],
    );
    const [hello] = second.take();
    assert.ok(hello?.frame.case === "hello" && hello.frame.value.maxOutstanding === 1);
    second.end();
    await clock.advance(0);
    await ended[1];
    const [credit] = first.take();
    assert.ok(credit?.frame.case === "credit" && credit.frame.value.maxOutstanding === 2);
  });

  test("a call beyond the slots waits, and is refused when its time is over or it is cancelled", async () => {
    const { clock, release, streams } = await two();
    const [first, second] = streams;
    first.take();
    review(first, 1n, "v", 9000);
    review(first, 2n, "v", 9000);
    second.take();
    review(second, 1n, "v", 100);
    await clock.settle();
    assert.equal(release.length, 2);
    await clock.advance(100);
    const [late] = verdicts(second);
    assert.ok(late?.outcome.case === "refused" && late.outcome.value.reason === "no time left");
    assert.equal(late.queueUs, 100_000);
    review(second, 2n, "v", 9000);
    await clock.settle();
    second.give({ case: "cancel", value: { $typeName: "portcullis.host.v1.Cancel", callId: 2n, hookIndexes: [] } });
    await clock.settle();
    const [cancelled] = verdicts(second);
    assert.ok(cancelled?.outcome.case === "refused" && cancelled.outcome.value.reason === "cancelled before its start");
    review(second, 3n, "v", 9000);
    await clock.settle();
    release[0]?.();
    await clock.settle();
    assert.equal(release.length, 3, "the slot of the first call goes to the one that waits");
  });

  test("a session that is lost aborts its handlers", async () => {
    const clock = new FakeClock();
    const stream = new FakeStream();
    let reason: unknown;
    const host = newHost({ clock }).validate("v", ({ signal }) => {
      return new Promise<Decision>((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          reason = signal.reason;
          reject(signal.reason);
        });
      });
    });
    const served = host.serve(stream.open, new AbortController().signal);
    welcome(stream);
    review(stream, 1n, "v", 9000);
    await clock.settle();
    stream.end(new HostError("gone"));
    await assert.rejects(served, new HostError("gone"));
    assert.equal((reason as Error).message, "the session is lost");
  });

  test("calls that outlast the time to drain are cut off", async () => {
    const clock = new FakeClock();
    const stream = new FakeStream();
    const stop = new AbortController();
    const host = newHost({ clock, drainTimeoutMs: 20 }).validate("v", () => new Promise<Decision>(() => {}));
    const failed = assert.rejects(host.serve(stream.open, stop.signal), { name: "CutOffError" });
    welcome(stream);
    review(stream, 1n, "v", 9000);
    await clock.settle();
    stop.abort();
    await clock.advance(20);
    await clock.advance(1000); // The handler does not return.
    await failed;
  });

  test("early cancellations are remembered in a bounded number, the oldest forgotten first", async () => {
    const clock = new FakeClock();
    const stream = new FakeStream();
    void newHost({ clock, maxOutstanding: 5000 })
      .validate("v", () => allow())
      .serve(stream.open, new AbortController().signal);
    welcome(stream);
    for (let callId = 1n; callId <= 1025n; callId++) {
      stream.give({ case: "cancel", value: { $typeName: "portcullis.host.v1.Cancel", callId, hookIndexes: [] } });
    }
    for (const callId of [1n, 2n, 1025n]) {
      review(stream, callId, "v", 9000);
    }
    await clock.settle();
    const outcomes = new Map(verdicts(stream).map((v) => [v.callId, v.outcome.case]));
    assert.deepEqual([outcomes.get(1n), outcomes.get(2n), outcomes.get(1025n)], ["response", "refused", "refused"]);
  });

  test("a dispatcher that does not read is not read from", async () => {
    const clock = new FakeClock();
    const stream = new FakeStream();
    void newHost({ clock })
      .validate("v", () => allow())
      .serve(stream.open, new AbortController().signal);
    welcome(stream);
    stream.writable = false;
    for (let seq = 1n; seq <= 1100n; seq++) {
      stream.give({ case: "ping", value: { $typeName: "portcullis.host.v1.Ping", seq } });
    }
    assert.equal(stream.paused, true);
    stream.drained();
    assert.equal(stream.paused, false);
    assert.equal(stream.take().filter(({ frame }) => frame.case === "pong").length, 1100);
  });
});

suite("readiness", () => {
  test("ready resolves once every hook is in rotation; status and log have the states", async () => {
    const { logger, logged } = lines();
    const host = newHost({ logger })
      .validate("a", () => allow())
      .mutate("b", () => allow(), { speculate: true });
    let ready = false;
    void host.ready().then(() => {
      ready = true;
    });
    await using mesh = await FrameDispatcher.start(host, {
      hooks: [
        { name: "a", stage: Stage.VALIDATE, state: State.IN_ROTATION },
        { name: "b", stage: Stage.MUTATE, state: State.NOT_AUTHORIZED, message: "no HookRoute" },
      ],
    });
    await mesh.ping();
    assert.equal(ready, false);
    const { hooks } = await mesh.hello;
    assert.deepEqual(
      hooks.map(({ name, stage, speculate }) => [name, stage, speculate]),
      [
        ["a", Stage.VALIDATE, false],
        ["b", Stage.MUTATE, true],
      ],
    );
    const state = { name: "b", stage: Stage.MUTATE, state: State.IN_ROTATION, revision: "r2" };
    mesh.send({ case: "hookState", value: state });
    await host.ready();
    const [session] = host.status().sessions;
    assert.deepEqual([session?.dispatcher, session?.revision, session?.leaving], ["testing", "r2", false]);
    assert.deepEqual(
      session?.hooks.map((h) => [h.stage, h.state]),
      [
        ["validate", "in_rotation"],
        ["mutate", "in_rotation"],
      ],
    );
    assert.deepEqual(
      logged.filter((line) => line.startsWith("hook changed")),
      ["hook changed in_rotation", "hook changed not_authorized", "hook changed in_rotation"],
    );
  });

  test("a probe asks the hook, for 5 s", async () => {
    const clock = new FakeClock();
    const stream = new FakeStream();
    const host = newHost({ clock })
      .validate("fails", () => allow(), { ready: () => Promise.reject(new Error("hunter2")) })
      .validate("hangs", () => allow(), { ready: () => new Promise(() => {}) });
    void host.serve(stream.open, new AbortController().signal);
    welcome(stream);
    const results = () => stream.take().flatMap(({ frame }) => (frame.case === "probeResult" ? [frame.value] : []));
    for (const [seq, hook] of [
      [1n, "fails"],
      [2n, "hangs"],
    ] as const) {
      stream.give({ case: "probe", value: { $typeName: "portcullis.host.v1.Probe", seq, hook } });
    }
    await clock.settle();
    assert.deepEqual(
      results().map((r) => [r.seq, r.ready, r.message]),
      [[1n, false, "the hook is not ready"]],
    );
    await clock.advance(5000);
    assert.deepEqual(
      results().map((r) => [r.seq, r.ready]),
      [[2n, false]],
    );
  });
});

suite("what a host refuses", () => {
  const handler = () => allow();
  const many = (count: number) => {
    const host = newHost();
    for (let i = 0; i < count; i++) {
      host.validate(`v${i}`, handler);
    }
  };
  const cases: [string, () => unknown, RegExp][] = [
    ["a host without a name", () => newHost({ name: "" }), /options.name is empty/],
    ["an address without a port", () => newHost({ dispatchers: ["mesh"] }), /want host:port/],
    ["a negative limit", () => newHost({ maxOutstanding: -1 }), /options.maxOutstanding is -1: want a whole number/],
    ["a limit of 0", () => newHost({ drainTimeoutMs: 0 }), /options.drainTimeoutMs is 0: want a whole number/],
    ["a text for a list", () => newHost({ clusters: "prod" as never }), /options.clusters is a text: want a list/],
    ["a misspelt operation", () => newHost().validate("a", { remove: handler } as never), /create, update and delete/],
    ["no operation", () => newHost().mutate("a", {}), /create, update and delete/],
    ["no function", () => newHost().mutate("a", { create: "x" } as never), /create, update and delete/],
    ["nothing", () => newHost().mutate("a", null as never), /create, update and delete/],
    ["one operation misspelt", () => newHost().mutate("a", { create: handler, d: handler } as never), /create, update/],
    ["a hook without a name", () => newHost().validate("", handler), /is empty/],
    ["a hook whose name is no Unicode", () => newHost().validate("\ud800", handler), /not valid Unicode/],
    ["a zone that is no Unicode", () => newHost({ zone: "\ud800" }), /not valid Unicode/],
    ["more hooks than a dispatcher takes", () => many(1025), /is one more than the 1024/],
    ["a limit beyond 32 bits", () => newHost({ maxFrameBytes: 2 ** 31 }), /options.maxFrameBytes is 2147483648/],
    ["a part of a limit", () => newHost({ maxOutstanding: 1.5 }), /options.maxOutstanding is 1.5/],
    ["a hook twice", () => newHost().validate("a", handler).validate("a", handler), /registered twice to validate/],
  ];
  for (const [name, wrong, message] of cases) {
    test(name, () => {
      assert.throws(wrong, (error) => error instanceof HostError && message.test(error.message));
    });
  }

  test("an older Node.js, of which npm only warns", () => {
    const versions = process.versions;
    const become = (value: object) => Object.defineProperty(process, "versions", { value, configurable: true });
    become({ ...versions, node: "20.20.2" });
    try {
      const message = "Node.js 20.20.2 is too old: @portcullis-mesh/host needs 22 or newer";
      assert.throws(() => newHost(), new HostError(message));
    } finally {
      become(versions);
    }
  });

  test("one hook may be both a validating and a mutating one, and none comes after the start", async () => {
    const host = newHost().validate("a", handler).mutate("a", handler);
    await using _mesh = await FrameDispatcher.start(host);
    assert.throws(() => host.validate("b", handler), /after the host had started/);
  });

  test("run without hooks, dispatchers or TLS", async () => {
    await assert.rejects(newHost().run(), /dispatchers is empty/);
    await assert.rejects(newHost({ dispatchers: ["a:1"] }).run(), /tls is not set/);
  });
});
