import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type Deferred, deferred } from "../deferred.js";
import { Stage as WireStage } from "../gen/portcullis/admission/v1/admission_pb.js";
import {
  type ConnectRequest,
  ConnectRequestSchema,
  ConnectResponseSchema,
  State,
  Mode as WireMode,
  type Verdict as WireVerdict,
} from "../gen/portcullis/host/v1/host_pb.js";
import { wireStage, word } from "../hook.js";
import type { Host } from "../host.js";
import type { Mode, Stage } from "../request.js";
import type { StreamEvents } from "../stream.js";
import { admissionOf, type TestRequest } from "./requests.js";
import { type Verdict, verdictOf } from "./verdict.js";

/** How long a host may take for an answer beyond the time of its call, in milliseconds. */
const PATIENCE = 10_000;

/** What else a test may say of a call. */
export interface ReviewOptions {
  /** Needed if hooks of several stages have the name. */
  readonly stage?: Stage;
  /** 1 to ask again. */
  readonly round?: number;
  /** `decide` if absent. */
  readonly mode?: Mode;
  /** How long the call may take, in milliseconds; 10,000 if absent. It is the host's to keep. */
  readonly remainingMs?: number;
  /** Cancels the call when it aborts. */
  readonly signal?: AbortSignal;
}

/** A hook that the host offers. */
export interface OfferedHook {
  /** Its name in the configuration. */
  readonly name: string;
  /** What it is asked to do. */
  readonly stage: Stage;
  /** Whether it may be asked ahead of its turn. */
  readonly speculate: boolean;
}

/**
 * FakeDispatcher is a fake dispatcher with one host, for unit tests: no mesh, no certificates, no cluster. It puts every hook in rotation.
 * It matches nothing and knows no failure policies: it shows what a host answers, not what the mesh makes of it.
 */
export class FakeDispatcher implements AsyncDisposable {
  readonly #stop = new AbortController();
  readonly #hello = deferred();
  readonly #answers = new Map<bigint, Deferred<WireVerdict>>();
  #events: StreamEvents | undefined;
  #served: Promise<void> = Promise.resolve();
  #lastId = 0n;
  /** The hooks that the host offers. */
  hooks: readonly OfferedHook[] = [];

  private constructor() {}

  /** start runs a host in memory. Stop it at the end of the test, or say `await using`. */
  static async start(host: Host): Promise<FakeDispatcher> {
    const dispatcher = new FakeDispatcher();
    dispatcher.#served = dispatcher.#serve(host);
    dispatcher.#served.catch(() => {}); // stop tells, and hello here.
    await dispatcher.#hello.promise;
    return dispatcher;
  }

  /** review puts a request to a hook and returns its verdict. It rejects if the call ends without one. */
  async review<T extends object = object>(
    hook: string,
    request: TestRequest,
    options: ReviewOptions = {},
  ): Promise<Verdict<T>> {
    const { stage, round = 0, mode = "decide", remainingMs = PATIENCE, signal } = options;
    const offers = this.hooks.filter((offer) => offer.name === hook && (stage ?? offer.stage) === offer.stage);
    const [offer] = offers;
    if (!offer || offers.length > 1) {
      const names = this.hooks.map(({ name, stage }) => `${name} (${stage})`).join(", ");
      throw new Error(`the host offers ${offers.length} hooks of the name ${hook}, want one: it has ${names}`);
    }
    const callId = ++this.#lastId;
    const answer = deferred<WireVerdict>();
    this.#answers.set(callId, answer);
    const admission = admissionOf(request);
    const of = { stage: wireStage(offer.stage), mode: WireMode[mode.toUpperCase() as "DECIDE"] };
    const hooks = [{ name: hook, ...of, round, remainingMs, configuration: "testing" }];
    this.#send({ case: "review", value: { callId, hooks, request: admission } });
    const cancel = (): void => this.#send({ case: "cancel", value: { callId } });
    signal?.addEventListener("abort", cancel, { once: true });
    if (signal?.aborted) {
      cancel();
    }
    const timer = setTimeout(() => answer.reject(new Error(`hook ${hook} gives no verdict`)), remainingMs + PATIENCE);
    try {
      const { outcome } = await answer.promise;
      if (outcome.case !== "response") {
        const { message = "", reason = message } = { ...outcome.value } as { message?: string; reason?: string };
        throw new Error(`hook ${hook} gave no decision: ${outcome.case} ${reason}`.trim());
      }
      return verdictOf<T>(outcome.value, admission.object?.raw);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** stop drains the host and waits for it. It rejects if the host does not leave cleanly. */
  stop(): Promise<void> {
    this.#stop.abort();
    return this.#served;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #serve(host: Host): Promise<void> {
    let error: unknown;
    try {
      await host.serve((events) => {
        this.#events = events;
        return {
          send: (frame) => this.#take(fromBinary(ConnectRequestSchema, frame).frame),
          closeSend: () => void setImmediate(() => events.ended()),
          pause() {},
          resume() {},
          cancel() {},
        };
      }, this.#stop.signal);
    } catch (e) {
      error = e;
      throw e;
    } finally {
      const gone = error ?? new Error("the host has left");
      for (const { reject } of [this.#hello, ...this.#answers.values()]) {
        reject(gone);
      }
    }
  }

  #take(frame: ConnectRequest["frame"]): boolean {
    if (frame.case === "hello") {
      this.hooks = frame.value.hooks.map(({ name, stage, speculate }) => ({
        name,
        stage: word(WireStage, stage),
        speculate,
      }));
      const hooks = frame.value.hooks.map(({ name, stage }) => ({ name, stage, state: State.IN_ROTATION }));
      // Nothing is sent by itself, so silence must not end the session.
      const welcome = { dispatcherId: "testing", sessionId: "testing", protocol: 1, silenceMs: 2 ** 31 - 1, hooks };
      this.#send({ case: "welcome", value: welcome });
      this.#hello.resolve();
    }
    const verdicts = frame.case === "verdict" ? [frame.value] : frame.case === "verdicts" ? frame.value.verdicts : [];
    for (const verdict of verdicts) {
      this.#answers.get(verdict.callId)?.resolve(verdict);
      this.#answers.delete(verdict.callId);
    }
    return true;
  }

  /** Each frame in a turn of the event loop of its own, as from a socket. */
  #send(frame: NonNullable<MessageInitShape<typeof ConnectResponseSchema>["frame"]>): void {
    const encoded = toBinary(ConnectResponseSchema, create(ConnectResponseSchema, { frame }));
    setImmediate(() => this.#events?.frame(encoded));
  }
}
