import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { encodeVerdict } from "../src/core/verdict.js";
import { denialIn, judgementOf } from "../src/decision.js";
import { AdmissionResponseSchema } from "../src/gen/portcullis/admission/v1/admission_pb.js";
import { VerdictSchema } from "../src/gen/portcullis/host/v1/host_pb.js";
import {
  allow,
  change,
  type Denial,
  Denied,
  type DenyOptions,
  deny,
  difference,
  HandlerError,
  Host,
  type Logger,
  patch,
  type Stage,
  silentLogger,
} from "../src/index.js";
import { newRequest } from "../src/testing/index.js";
import { createRequest, FrameDispatcher } from "./support/dispatcher.js";
import { randomNumbers } from "./support/random.js";

const STAGES: readonly Stage[] = ["validate", "mutate", "initialize"];

/** untyped is deny as JavaScript calls it. */
function untyped(message: unknown, options?: unknown): Denial {
  return deny(message as string, options as DenyOptions);
}

/** Has no text. */
const silent = {
  toString() {
    throw new Error("hunter2");
  },
};

function* broken(): Generator<string> {
  yield "first";
  throw new Error("hunter2");
}

/** An object whose member throws when it is read. */
function trap(member: string, more: object = {}): object {
  return Object.defineProperty(more, member, {
    enumerable: true,
    get() {
      throw new Error("hunter2");
    },
  });
}

/** What is sent of a denial. */
interface Sent {
  readonly message: string;
  readonly code: number;
  readonly reason: string;
  readonly causes: readonly (readonly [string, string, string])[];
  readonly warnings: readonly string[];
  readonly audit: Readonly<Record<string, string>>;
}

const revoked = Proxy.revocable({}, {});
revoked.revoke();

const cases: readonly [string, () => Denial, Partial<Sent>, string][] = [
  ["an error for a message", () => untyped(new RangeError("privileged")), { message: "privileged" }, ""],
  ["no message", () => untyped(undefined), { message: "" }, ""],
  ["null for a message", () => untyped(null), { message: "" }, ""],
  ["a number for a message", () => untyped(7), { message: "7" }, ""],
  ["a symbol for a message", () => untyped(Symbol("no")), { message: "Symbol(no)" }, ""],
  ["a message without a text", () => untyped(silent), { message: "" }, "message"],
  ["a message without a prototype", () => untyped(Object.create(null)), { message: "" }, "message"],
  ["no options", () => untyped("no", null), { message: "no", code: 403, reason: "Forbidden" }, ""],
  ["a code as a text", () => untyped("no", { code: "422" }), { code: 422, reason: "" }, ""],
  ["a code as a big integer", () => untyped("no", { code: 422n }), { code: 422 }, ""],
  ["a part of a code", () => deny("no", { code: 1.5 }), { code: 403 }, "code"],
  ["a code beyond 32 bits", () => deny("no", { code: 3e9 }), { code: 403, reason: "Forbidden" }, "code"],
  ["a code that is no number", () => deny("no", { code: Number.NaN }), { code: 403 }, ""],
  ["an infinite code", () => deny("no", { code: Number.POSITIVE_INFINITY }), { code: 403 }, "code"],
  ["the code of a system error", () => untyped("no", { code: "ENOENT" }), { code: 403 }, "code"],
  ["a symbol for a code", () => untyped("no", { code: Symbol("x") }), { code: 403 }, "code"],
  ["a code of success", () => deny("no", { code: 200 }), { code: 403 }, "code"],
  ["the code below all", () => deny("no", { code: 399 }), { code: 403 }, "code"],
  ["the least code", () => deny("no", { code: 400 }), { code: 400 }, ""],
  ["the greatest code", () => deny("no", { code: 599 }), { code: 599 }, ""],
  ["the code above all", () => deny("no", { code: 600 }), { code: 403 }, "code"],
  ["a negative code", () => deny("no", { code: -422 }), { code: 403 }, "code"],
  ["null for a code and a reason", () => untyped("no", { code: null, reason: null }), { reason: "Forbidden" }, ""],
  ["a number for a reason", () => untyped("no", { reason: 7 }), { reason: "7" }, ""],
  ["a text for warnings", () => untyped("no", { warnings: "ab" }), { warnings: ["ab"] }, ""],
  ["null among warnings", () => untyped("no", { warnings: [null, "w"] }), { warnings: ["w"] }, "warnings"],
  ["an error among warnings", () => untyped("no", { warnings: [new Error("w")] }), { warnings: ["w"] }, ""],
  ["a set of warnings", () => untyped("no", { warnings: new Set(["a", "b"]) }), { warnings: ["a", "b"] }, ""],
  ["warnings that break off", () => untyped("no", { warnings: broken() }), { warnings: ["first"] }, "warnings"],
  ["null for an audit log", () => untyped("no", { audit: null }), { audit: {} }, ""],
  ["a text for an audit log", () => untyped("no", { audit: "ab" }), { audit: {} }, "audit"],
  ["numbers in an audit log", () => untyped("no", { audit: { n: 3, k: "v" } }), { audit: { n: "3", k: "v" } }, ""],
  ["null in an audit log", () => untyped("no", { audit: { n: null, k: "v" } }), { audit: { k: "v" } }, "audit"],
  ["a map for an audit log", () => untyped("no", { audit: new Map([["k", 1]]) }), { audit: { k: "1" } }, ""],
  [
    "the key of a prototype in an audit log",
    () => untyped("no", { audit: JSON.parse('{"__proto__": "p", "k": "v"}') }),
    { message: "no" },
    "",
  ],
  ["an object for causes", () => untyped("no", { causes: {} }), { causes: [] }, "causes"],
  ["a cause for causes", () => untyped("no", { causes: { field: "f" } }), { causes: [["f", "", ""]] }, ""],
  [
    "null among causes",
    () => untyped("no", { causes: [null, { field: "f", message: "m" }] }),
    { causes: [["f", "m", ""]] },
    "causes",
  ],
  ["texts for causes", () => untyped("no", { causes: ["m", new Error("e")] }), { causes: causesOf("m", "e") }, ""],
  [
    "a cause that is not readable",
    () => untyped("no", { causes: [trap("field"), "m"] }),
    { causes: causesOf("m") },
    "causes",
  ],
  ["a cause that is gone", () => untyped("no", { causes: [revoked.proxy] }), { causes: [] }, "causes"],
  ["options that are not readable", () => untyped("no", trap("warnings")), { message: "no", code: 403 }, ""],
  [
    "a denial that is not readable",
    () => trap("audit", { allowed: false, message: "no", code: 422 }) as Denial,
    { message: "no", code: 422, audit: {} },
    "audit",
  ],
  ["lone surrogates", () => deny("\ud800", { audit: { "\ud800": "\udfff" } }), { audit: { "\ufffd": "\ufffd" } }, ""],
];

function causesOf(...messages: string[]): Sent["causes"] {
  return messages.map((message) => ["", message, ""]);
}

/** A log whose author has made a mistake. */
const brokenLog: Logger = { debug: fail, info() {}, warn: fail, error: fail };

function fail(): void {
  throw new Error("the disk is full");
}

suite("a denial stays one, whatever goes with it", () => {
  for (const [name, make, want, leftOut] of cases) {
    test(name, () => {
      for (const stage of STAGES) {
        const judgement = judgementOf(make(), stage);
        const { allowed, status, warnings, auditAnnotations } = fromBinary(
          AdmissionResponseSchema,
          toBinary(AdmissionResponseSchema, judgement.response),
        );
        assert.ok(status);
        const got: Sent = {
          message: status.message,
          code: status.code,
          reason: status.reason,
          causes: (status.details?.causes ?? []).map(({ field, message, reason }) => [field, message, reason]),
          warnings,
          audit: { ...auditAnnotations },
        };
        assert.deepEqual([allowed, status.status], [false, "Failure"]);
        assert.deepEqual({ ...got, ...want }, got);
        assert.equal(judgement.leftOut.join(), leftOut);
      }
    });
  }

  test("a permission is decorated likewise", () => {
    const { response } = judgementOf(allow({ warnings: [null, 7], audit: { n: 3 } } as never), "validate");
    assert.deepEqual([response.allowed, response.warnings, response.auditAnnotations], [true, ["7"], { n: "3" }]);
  });

  test("one that cannot be encoded is a bare one, and no other verdict is", () => {
    for (const code of [1.5, 3e9, Number.NaN]) {
      for (const allowed of [false, true]) {
        const response = create(AdmissionResponseSchema, { allowed, status: { message: "no", code } });
        const verdict = create(VerdictSchema, {
          callId: 7n,
          hookIndex: 3,
          outcome: { case: "response", value: response },
        });
        const { callId, hookIndex, outcome } = fromBinary(VerdictSchema, encodeVerdict(verdict, 1 << 20));
        assert.deepEqual([callId, hookIndex], [7n, 3]);
        if (allowed) {
          assert.ok(outcome.case === "error");
          assert.equal(outcome.value.message, "the verdict cannot be encoded");
        } else {
          assert.ok(outcome.case === "response");
          const { status } = outcome.value;
          assert.deepEqual([outcome.value.allowed, status?.code, status?.reason], [false, 403, "Forbidden"]);
        }
      }
    }
  });

  test("it has no more items than a dispatcher takes", () => {
    const warnings = Array(4096).fill("w");
    const { response, leftOut } = judgementOf(
      untyped("no", { causes: Array(5).fill("c"), warnings, audit: { k: "v" } }),
      "mutate",
    );
    const counts = [response.status?.details?.causes.length, response.warnings.length];
    assert.deepEqual([counts, response.auditAnnotations, leftOut], [[5, 4091], {}, ["warnings", "audit"]]);
    assert.deepEqual(judgementOf(deny("no", { warnings }), "mutate").leftOut, []);
  });

  test("one that is too large keeps its code and the start of its message", () => {
    const { response } = judgementOf(
      deny("x".repeat(300), { code: 422, reason: "Invalid", warnings: ["w".repeat(300)] }),
      "mutate",
    );
    const verdict = create(VerdictSchema, { callId: 7n, hookIndex: 3, outcome: { case: "response", value: response } });
    for (let limit = 100; limit < 600; limit++) {
      const encoded = encodeVerdict(verdict, limit);
      assert.ok(encoded.length <= limit, String(limit));
      const { callId, hookIndex, outcome } = fromBinary(VerdictSchema, encoded);
      assert.ok(outcome.case === "response" && !outcome.value.allowed, String(limit));
      const { code, message } = outcome.value.status ?? {};
      assert.deepEqual([callId, hookIndex, code, message?.slice(0, 9)], [7n, 3, 422, "x".repeat(9)], String(limit));
    }
  });

  test("what it lacks is logged, once a second", async () => {
    const logged: unknown[] = [];
    const log = ({ hook, err }: Readonly<Record<string, unknown>>, message: string) =>
      logged.push([message, hook, err]);
    const logger: Logger = { debug() {}, info() {}, warn: log, error: log };
    const host = new Host({ name: "test", logger }).validate("v", () => untyped("no", { code: 200, warnings: [null] }));
    await using mesh = await FrameDispatcher.start(host);
    for (let i = 0; i < 5; i++) {
      assert.equal((await mesh.review("v", createRequest({}))).status?.code, 403);
    }
    assert.deepEqual(logged, [["a part of the verdict cannot be sent", "v", "code, warnings"]]);
  });

  test("a log that throws costs no verdict", async () => {
    const host = new Host({ name: "test", logger: brokenLog })
      .validate("denies", () => deny("no", { code: 200 }))
      .validate("fails", () => {
        throw new Error("hunter2");
      });
    await using mesh = await FrameDispatcher.start(host);
    assert.equal((await mesh.review("denies", createRequest({}))).status?.message, "no");
    assert.equal((await mesh.ask("fails", createRequest({}))).outcome.case, "error");
  });
});

suite("a denial that is thrown", () => {
  const no = { code: 422, reason: "Invalid", causes: [{ field: "spec", message: "bad", reason: "FieldValueInvalid" }] };
  const denied = () => new Denied("no", no);
  const ways: readonly [string, unknown][] = [
    ["by itself", denied()],
    ["as the cause of an error", new Error("outer", { cause: new TypeError("inner", { cause: denied() }) })],
    ["as the cause of a bug", new TypeError("outer", { cause: denied() })],
    ["behind a failure", new HandlerError("registry is down", { cause: denied() })],
    ["in front of a failure", Object.assign(denied(), { cause: new HandlerError("registry is down") })],
    ["as a decision", deny("no", no)],
    ["of another copy of the package", Object.assign(new Error("no"), { denial: deny("no", no) })],
    ["behind what cannot be read", Object.assign(trap("denial", new Error("outer")), { cause: denied() })],
  ];

  test("is a denial at every stage, and so is one that is returned", async () => {
    const host = newHost();
    for (const [name, error] of ways) {
      const fails = () => {
        throw error;
      };
      host
        .validate(`validate ${name}`, fails)
        .mutate(`mutate ${name}`, async () => fails())
        .initialize(`initialize ${name}`, fails)
        .validate(`returns ${name}`, () => error as never);
    }
    host.initialize("returns", () => denied() as never);
    await using mesh = await FrameDispatcher.start(host);
    for (const { name } of (await mesh.hello).hooks) {
      const { allowed, status } = await mesh.review(name, createRequest({ kind: "Pod" }));
      assert.deepEqual([allowed, status?.message, status?.code, status?.reason], [false, "no", 422, "Invalid"], name);
      const [cause] = status?.details?.causes ?? [];
      assert.deepEqual([cause?.field, cause?.message, cause?.reason], ["spec", "bad", "FieldValueInvalid"], name);
    }
  });

  test("keeps its code without a text", () => {
    for (const thrown of [new Denied("", { code: 422 }), deny("", { code: 422 })]) {
      assert.equal(denialIn(thrown)?.code, 422);
    }
  });

  test("is a denial after the time of the call and after its cancellation", async () => {
    const cancel = new AbortController();
    const reasons: string[] = [];
    const wait = async ({ signal }: { signal: AbortSignal }) => {
      const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
      cancel.abort(); // The call has begun: else it would be refused.
      await aborted;
      reasons.push((signal.reason as DOMException).name);
      throw new Denied("no");
    };
    await using mesh = await FrameDispatcher.start(newHost().validate("v", wait).mutate("m", wait));
    assert.equal((await mesh.review("v", createRequest({}), { signal: cancel.signal })).status?.message, "no");
    assert.equal((await mesh.review("m", createRequest({}), { remainingMs: 1000 })).status?.message, "no");
    assert.deepEqual(reasons, ["AbortError", "TimeoutError"]);
  });

  test("has the texts of what it was given", () => {
    for (const [message, text] of [
      [7, "7"],
      [new Error("inner"), "inner"],
      [Symbol("s"), "Symbol(s)"],
      [silent, ""],
    ]) {
      const error = new Denied(message as string, trap("code") as DenyOptions);
      assert.equal(error.message, text);
      assert.equal(judgementOf(error.denial, "mutate").response.status?.message, text);
    }
  });

  test("and what is none stays a failure", async () => {
    let asked = 0;
    const circle: Error = Object.defineProperty(new Error("circle"), "cause", {
      get: () => (++asked < 10_000 ? circle : undefined), // A search without an end must not hang the test.
    });
    const errors: readonly unknown[] = [circle, revoked.proxy, trap("cause"), trap("allowed"), null, 7, {}, allow()];
    const host = newHost();
    for (const [i, error] of errors.entries()) {
      host.validate(`v${i}`, () => {
        throw error;
      });
    }
    await using mesh = await FrameDispatcher.start(host);
    for (const [i] of errors.entries()) {
      const { outcome } = await mesh.ask(`v${i}`, createRequest({}));
      assert.ok(outcome.case === "error", String(i));
      assert.equal(outcome.value.message, "handler failed", String(i));
    }
    assert.ok(asked < 10_000, "the search of a circle of causes ends");
  });
});

suite("a change", () => {
  const request = newRequest({ object: { spec: {} } });

  test("has no number that JSON has not", () => {
    for (const number of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const message = `the new object has ${number} as replicas: JSON has no such number`;
      const spec = { replicas: number };
      assert.throws(() => change(request, (object) => Object.assign(object, { spec })), { message });
      assert.throws(() => difference(request, { spec }), { message });
      assert.throws(() => patch([{ op: "replace", path: "/spec", value: spec }]), { message });
    }
  });

  test("waits for nothing", () => {
    assert.throws(() => change(request, async () => {}), { name: "HandlerError", message: /is async/ });
  });
});

suite("a denial of any values", () => {
  test("is one, within the limits", () => {
    const next = randomNumbers(7);
    const values: readonly unknown[] = [
      ...[undefined, null, "", "no", "\ud800", "\ud83d", "x".repeat(1 << 20), true, false, Number.NaN, 0, -1, 1.5, 3e9],
      ...[422, 2 ** 31, 10n ** 30n, Symbol("s"), () => "no", new Error("inner", { cause: new Error("innermost") })],
      ...[silent, Object.create(null), revoked.proxy, trap("message"), trap("field"), new Date(Number.NaN)],
      ...[new Uint8Array(9), new Map([["k", null]]), [["k", 1], null, "kv"], [[[]]], endless(), Array(5000).fill("w")],
      ...[Array(5).fill("x".repeat(1 << 20)), { __proto__: null, k: "v" }, { field: "f", reason: {}, message: silent }],
    ];
    const any = (): unknown => values[Math.floor(next() * values.length)];
    for (let i = 0; i < 3000; i++) {
      const options = { code: any(), reason: any(), causes: any(), warnings: any(), audit: any() };
      const denial =
        next() < 0.5 ? untyped(any(), options) : new Denied(any() as string, options as DenyOptions).denial;
      const stage = STAGES[i % 3] ?? "validate";
      const { response } = judgementOf(denial, stage);
      const verdict = create(VerdictSchema, { callId: 1n, outcome: { case: "response", value: response } });
      const encoded = encodeVerdict(verdict, 4 << 20);
      assert.ok(encoded.length <= 4 << 20);
      const { outcome } = fromBinary(VerdictSchema, encoded);
      assert.ok(outcome.case === "response" && !outcome.value.allowed);
      const { status, warnings, auditAnnotations } = outcome.value;
      assert.ok(status && status.code >= 400 && status.code <= 599);
      const decorations = warnings.length + Object.keys(auditAnnotations).length + (status.details?.causes.length ?? 0);
      assert.ok(decorations <= 4096);
    }
    assert.equal(overread, 0);
  });
});

/** How often more was read of {@link endless} than shows that there is more than a dispatcher takes. */
let overread = 0;

/** Has no end, for a reader that stops in time: a test of one that does not must not hang. */
function* endless(): Generator<string> {
  for (let i = 0; i <= 4096; i++) {
    yield "w";
  }
  overread++;
}

function newHost(): Host {
  return new Host({ name: "test", logger: silentLogger });
}
