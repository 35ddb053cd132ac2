import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { suite, test } from "node:test";
import { clone, equals, fromBinary, toJsonString } from "@bufbuild/protobuf";
import {
  type ConnectRequest,
  ConnectRequestSchema,
  type Verdict,
  VerdictSchema,
} from "../src/gen/portcullis/host/v1/host_pb.js";
import { allow, type Decision, deny, type Handler, HandlerError, Host, patch, silentLogger } from "../src/index.js";
import { FakeClock } from "./support/fake_clock.js";
import { FakeStream } from "./support/fake_stream.js";

/** The transcripts of the repository, see hostsdk/protocol_test.go. */
const VECTORS = join(import.meta.dirname, "../../../../sdk/conformance/vectors");

interface Vector {
  readonly name: string;
  readonly about: string;
  readonly steps: readonly Step[];
}

interface Step {
  readonly do: "host" | "send" | "advance" | "release" | "drain" | "end";
  readonly hooks?: readonly string[];
  readonly maxOutstanding?: number;
  readonly drainTimeoutMs?: number;
  readonly frames?: readonly string[];
  readonly text?: readonly string[];
  readonly ms?: number;
  readonly hook?: string;
  readonly code?: string;
  readonly expect: readonly Expected[];
}

interface Expected {
  readonly frame?: string;
  readonly text?: string;
  readonly started?: string;
  readonly closed?: boolean;
  readonly ended?: string;
}

/** What happened in a step. Verdicts may come in any order and in any number of frames. */
interface Happened {
  readonly started: string[];
  readonly frames: string[];
  readonly verdicts: string[];
  readonly closed: boolean;
  readonly ended: string | undefined;
}

/** Stage is one host and its dispatcher. */
class Stage {
  readonly #clock = new FakeClock();
  readonly #stream = new FakeStream();
  readonly #stop = new AbortController();
  readonly #held = new Map<string, (() => void)[]>();
  #started: string[] = [];
  #closed = false;
  #ended: string | undefined;

  async play(step: Step): Promise<Happened> {
    switch (step.do) {
      case "host":
        this.#enter(step);
        break;
      case "send":
        for (const frame of step.frames ?? []) {
          this.#stream.giveBytes(Buffer.from(frame, "hex"));
        }
        break;
      case "advance":
        await this.#clock.advance(step.ms ?? 0);
        break;
      case "release":
        for (const release of this.#held.get(step.hook ?? "")?.splice(0) ?? []) {
          release();
        }
        break;
      case "drain":
        this.#stop.abort();
        break;
      case "end":
        this.#stream.end(step.code === undefined ? undefined : new Error(step.code));
    }
    await this.#clock.settle();
    return this.#happened();
  }

  #enter(step: Step): void {
    const host = new Host({
      name: "imagepolicy",
      instance: "imagepolicy-1",
      logger: silentLogger,
      clock: this.#clock,
      ...(step.maxOutstanding ? { maxOutstanding: step.maxOutstanding } : {}),
      ...(step.drainTimeoutMs ? { drainTimeoutMs: step.drainTimeoutMs } : {}),
    });
    for (const name of step.hooks ?? []) {
      const handler = this.#handler(name);
      if (name === "patch") {
        host.mutate(name, handler);
      } else if (name === "initialize") {
        host.initialize(name, (_, request) => handler(request));
      } else if (name === "unready") {
        host.validate(name, handler, {
          ready() {
            throw new HandlerError("cache is empty");
          },
        });
      } else {
        host.validate(name, handler);
      }
    }
    host.serve(this.#stream.open, this.#stop.signal).then(
      () => {
        this.#ended = "cleanly";
      },
      () => {
        this.#ended = "in error";
      },
    );
  }

  /** What a hook does is in its name. */
  #handler(name: string): Handler {
    return (request) => {
      switch (name) {
        case "allow":
        case "unready":
          return allow();
        case "deny":
          return deny("no", { causes: [{ field: "spec.image", message: "latest" }] });
        case "deny-at-length":
          return deny("no ".repeat(100));
        case "patch":
        case "initialize":
        case "stray-patch":
          return patch(request.rawObject ?? new Uint8Array(), { warnings: [`patched in round ${request.round}`] });
        case "name-configuration":
          return allow({ audit: { configuration: request.configuration } });
        case "name-mode":
          return allow({ audit: { mode: `MODE_${request.mode.toUpperCase()}` } });
        case "fail":
          throw new Error("password is hunter2");
        case "fail-in-public":
          throw new Error("wrapped", {
            cause: new HandlerError("registry is down", { cause: new Error("password is hunter2") }),
          });
        case "panic":
          throw new TypeError("password is hunter2");
        case "exit": // JavaScript has no goroutine to end: any other bug.
          throw new RangeError("password is hunter2");
        case "stubborn": // Answers when it is released, whatever its signal says.
          return this.#hold(name);
        case "wait": // Answers when it is released, and heeds its signal.
          return this.#hold(name, request.signal);
        default: // "say-nothing"
          return undefined as unknown as Decision;
      }
    };
  }

  #hold(hook: string, signal?: AbortSignal): Promise<Decision> {
    this.#started.push(hook);
    return new Promise((resolve, reject) => {
      this.#held.set(hook, [...(this.#held.get(hook) ?? []), () => resolve(allow())]);
      signal?.addEventListener("abort", () => reject(signal.reason));
    });
  }

  /** A session that ends without an error but closes its side first says so once. */
  #happened(): Happened {
    const closed = this.#stream.closed && !this.#closed;
    this.#closed ||= closed;
    const ended = this.#ended;
    this.#ended = undefined;
    return { started: this.#started.splice(0).sort(), closed, ended, ...sorted(this.#stream.take()) };
  }
}

/** The verdicts of frames, and the other frames, comparable. */
function sorted(frames: readonly ConnectRequest[]): { frames: string[]; verdicts: string[] } {
  const verdicts: Verdict[] = [];
  const others: string[] = [];
  for (const { frame } of frames) {
    if (frame.case === "verdict") {
      verdicts.push(frame.value);
    } else if (frame.case === "verdicts") {
      verdicts.push(...frame.value.verdicts);
    } else {
      others.push(
        toJsonString(ConnectRequestSchema, { $typeName: ConnectRequestSchema.typeName, frame: plain(frame) }),
      );
    }
  }
  return { frames: others, verdicts: verdicts.map((v) => toJsonString(VerdictSchema, v)).sort() };
}

/** Hello names the SDK, which differs. */
function plain(frame: ConnectRequest["frame"]): ConnectRequest["frame"] {
  return frame.case === "hello" ? { ...frame, value: { ...frame.value, sdk: "", sdkVersion: "" } } : frame;
}

function expected(step: Step): Happened {
  const frames = step.expect.flatMap(({ frame }) =>
    frame === undefined ? [] : [fromBinary(ConnectRequestSchema, Buffer.from(frame, "hex"))],
  );
  const ended = step.expect.find((e) => e.ended !== undefined)?.ended;
  return {
    started: step.expect.flatMap(({ started }) => started ?? []).sort(),
    closed: step.expect.some((e) => e.closed),
    ended: ended === undefined ? undefined : ended === "" ? "cleanly" : "in error",
    ...sorted(frames.map(withoutGoroutine)),
  };
}

/** A handler that ends its goroutine is Go's alone. */
function withoutGoroutine(frame: ConnectRequest): ConnectRequest {
  const copy = clone(ConnectRequestSchema, frame);
  const outcome = copy.frame.case === "verdict" ? copy.frame.value.outcome : undefined;
  if (outcome?.case === "error" && outcome.value.message === "handler ended its goroutine") {
    outcome.value.message = "handler panicked";
    assert.ok(!equals(ConnectRequestSchema, copy, frame));
  }
  return copy;
}

suite("transcripts of the protocol", () => {
  const files = readdirSync(VECTORS).filter((name) => name.endsWith(".json"));
  assert.ok(files.length >= 29, `only ${files.length} transcripts in ${VECTORS}`);
  for (const file of files) {
    const vector = JSON.parse(readFileSync(join(VECTORS, file), "utf8")) as Vector;
    test(`${vector.name}: ${vector.about}`, async () => {
      const stage = new Stage();
      for (const [i, step] of vector.steps.entries()) {
        const happened = await stage.play(step);
        assert.deepEqual(happened, expected(step), `step ${i}: ${step.do} ${step.text?.join("\n") ?? ""}`);
      }
    });
  }
});
