import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type Deferred, deferred } from "../../src/deferred.js";
import type { AdmissionRequest, AdmissionResponse, Stage } from "../../src/gen/portcullis/admission/v1/admission_pb.js";
import {
  type ConnectRequest,
  type ConnectResponse,
  ConnectResponseSchema,
  type Hello,
  type HookCallSchema,
  type HostDrain,
  type ProbeResult,
  ReviewSchema,
  State,
  type Verdict,
  WelcomeSchema,
} from "../../src/gen/portcullis/host/v1/host_pb.js";

/** How long a host may take for an answer, in milliseconds. */
export const PATIENCE = 10_000;

/** The largest review that is sent whole to a host that takes chunks, and how much of a larger one is in each chunk. */
const MAX_WHOLE = 128 << 10;
const CHUNK = 64 << 10;

/** What a test may ask for with a request. */
export interface AskOptions {
  /** How long the call may take, in milliseconds; {@link PATIENCE} if absent. It is the host's to keep. */
  readonly remainingMs?: number;
  /** Cancels the call when it aborts. The host still owes a verdict. */
  readonly signal?: AbortSignal;
  /** The part of the call for the hook: round, mode, configuration. */
  readonly call?: MessageInitShape<typeof HookCallSchema>;
  /** W3C traceparent of the review. */
  readonly traceparent?: string;
}

/**
 * FakeSession is a session with one host, seen from the dispatcher. It accepts every hook that the host offers, and puts it in
 * rotation. It matches nothing and knows no failure policies: it shows what a host answers, not what the mesh makes of it.
 */
export class FakeSession {
  readonly #send: (frame: Uint8Array) => void;
  readonly #welcome: MessageInitShape<typeof WelcomeSchema>;
  readonly #hello = deferred<Hello>();
  readonly #drain = deferred<HostDrain>();
  readonly #ended = deferred<Error | undefined>();
  readonly #waiting = new Map<string, Deferred<ConnectRequest["frame"]>>();
  #offers: Hello["hooks"] = [];
  #chunks = false;
  #credit = 0;
  #lastId = 0n;

  /** A session that sends encoded frames by `send`. `welcome` adds to the answer to Hello. */
  constructor(send: (frame: Uint8Array) => void, welcome: MessageInitShape<typeof WelcomeSchema> = {}) {
    this.#send = send;
    this.#welcome = welcome;
  }

  /** How the host introduced itself. */
  get hello(): Promise<Hello> {
    return patient(this.#hello.promise, "the host says no hello");
  }

  /** How many calls the host takes now. */
  get credit(): number {
    return this.#credit;
  }

  /** Resolves with the host's good-bye. */
  get drained(): Promise<HostDrain> {
    return patient(this.#drain.promise, "the host does not drain");
  }

  /** Resolves when the host sends no more: with undefined if it has closed its side, as after a drain. */
  get ended(): Promise<Error | undefined> {
    return patient(this.#ended.promise, "the host does not leave");
  }

  /** send writes any frame to the host. */
  send(frame: NonNullable<MessageInitShape<typeof ConnectResponseSchema>["frame"]>): void {
    const message: ConnectResponse = create(ConnectResponseSchema, { frame });
    this.#send(toBinary(ConnectResponseSchema, message));
  }

  /** review puts a request to a hook and returns its decision. It rejects if the call ends without one. */
  async review(hook: string, request: AdmissionRequest, options: AskOptions = {}): Promise<AdmissionResponse> {
    const { outcome } = await this.ask(hook, request, options);
    if (outcome.case !== "response") {
      const more =
        outcome.case === "error"
          ? `: ${outcome.value.message}`
          : outcome.case === "refused"
            ? `: ${outcome.value.reason}`
            : "";
      throw new Error(`hook ${hook} gave no decision: ${outcome.case}${more}`);
    }
    return outcome.value;
  }

  /** ask puts a request to a hook and returns how the call ended. */
  async ask(hook: string, request: AdmissionRequest, options: AskOptions = {}): Promise<Verdict> {
    await this.#hello.promise;
    const callId = this.#nextId();
    const { remainingMs = PATIENCE, signal, call = {}, traceparent = "" } = options;
    const answer = this.#expect(`verdict ${callId}`);
    const hooks = [{ name: hook, stage: this.#stageOf(hook), remainingMs, configuration: "testing", ...call }];
    this.#post(create(ReviewSchema, { callId, hooks, request, traceparent }));
    const cancel = (): void => this.send({ case: "cancel", value: { callId } });
    signal?.addEventListener("abort", cancel, { once: true });
    if (signal?.aborted) {
      cancel();
    }
    try {
      const frame = await patient(answer, `the host gives no verdict for ${hook}`, remainingMs + PATIENCE);
      if (frame.case !== "verdict") {
        throw new Error("another frame than a verdict");
      }
      return frame.value;
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** ping asks for a sign of life. */
  async ping(): Promise<void> {
    const seq = this.#nextId();
    const answer = this.#expect(`pong ${seq}`);
    this.send({ case: "ping", value: { seq } });
    await patient(answer, "the host answers no ping");
  }

  /** probe asks whether a hook is ready. */
  async probe(hook: string): Promise<ProbeResult> {
    const seq = this.#nextId();
    const answer = this.#expect(`probe ${seq}`);
    this.send({ case: "probe", value: { seq, hook } });
    const frame = await patient(answer, "the host answers no probe");
    if (frame.case !== "probeResult") {
      throw new Error("another frame than the result of a probe");
    }
    return frame.value;
  }

  /** take is a frame of the host. For whoever carries the frames. */
  take({ frame }: ConnectRequest): void {
    switch (frame.case) {
      case "hello":
        this.#accept(frame.value);
        break;
      case "verdict":
        this.#verdict(frame.value);
        break;
      case "verdicts":
        for (const verdict of frame.value.verdicts) {
          this.#verdict(verdict);
        }
        break;
      case "pong":
        this.#answer(`pong ${frame.value.seq}`, frame);
        break;
      case "probeResult":
        this.#answer(`probe ${frame.value.seq}`, frame);
        break;
      case "credit":
        this.#credit = frame.value.maxOutstanding;
        break;
      case "drain":
        this.#drain.resolve(frame.value);
    }
  }

  /** end says that the host sends no more. For whoever carries the frames. */
  end(error?: Error): void {
    this.#ended.resolve(error);
    const gone = new Error("the host has left", { cause: error });
    this.#hello.reject(gone);
    this.#drain.reject(gone);
    for (const { reject } of this.#waiting.values()) {
      reject(gone);
    }
    this.#waiting.clear();
  }

  #accept(hello: Hello): void {
    this.#offers = hello.hooks;
    this.#chunks = hello.capabilities.includes("chunks");
    this.#credit = hello.maxOutstanding;
    const welcome = create(WelcomeSchema, {
      sessionId: `session of ${hello.instance}`,
      dispatcherId: "testing",
      protocol: 1,
      revision: "testing",
      silenceMs: 2 ** 31 - 1, // Nothing is sent by itself, so silence must not end the session.
      maxVerdictBytes: 4 << 20,
      hooks: hello.hooks.map(({ name, stage }) => ({ name, stage, state: State.IN_ROTATION })),
      ...this.#welcome,
    });
    this.send({ case: "welcome", value: welcome });
    this.#hello.resolve(hello);
  }

  /** A large review goes in chunks, if the host takes them. */
  #post(review: MessageInitShape<typeof ReviewSchema> & { callId: bigint }): void {
    const encoded = toBinary(ReviewSchema, create(ReviewSchema, review));
    if (encoded.length <= MAX_WHOLE || !this.#chunks) {
      this.send({ case: "review", value: create(ReviewSchema, review) });
      return;
    }
    const { callId } = review;
    for (let at = 0; at < encoded.length; at += CHUNK) {
      const data = encoded.subarray(at, at + CHUNK);
      this.send({ case: "chunk", value: { callId, totalBytes: BigInt(encoded.length), hooks: 1, data } });
    }
  }

  #stageOf(hook: string): Stage {
    const stages = this.#offers.filter(({ name }) => name === hook).map(({ stage }) => stage);
    const [stage] = stages;
    if (stage === undefined) {
      throw new Error(`the host does not offer hook ${hook}`);
    }
    if (stages.length > 1) {
      throw new Error(`hook ${hook} is offered for several stages: send a review frame instead`);
    }
    return stage;
  }

  #nextId(): bigint {
    this.#lastId++;
    return this.#lastId;
  }

  #expect(key: string): Promise<ConnectRequest["frame"]> {
    const answer = deferred<ConnectRequest["frame"]>();
    this.#waiting.set(key, answer);
    return answer.promise;
  }

  #verdict(value: Verdict): void {
    this.#answer(`verdict ${value.callId}`, { case: "verdict", value });
  }

  #answer(key: string, frame: ConnectRequest["frame"]): void {
    this.#waiting.get(key)?.resolve(frame);
    this.#waiting.delete(key);
  }
}

/** patient is the result of a promise, which may not take too long. */
export async function patient<T>(promise: Promise<T>, otherwise: string, ms = PATIENCE): Promise<T> {
  const late = deferred<never>();
  const timer = setTimeout(() => late.reject(new Error(`${otherwise} in ${ms} ms`)), ms);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
