import { create, type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import {
  type Cancel,
  CancelledSchema,
  type Chunk,
  type DispatcherDrain,
  type Hello,
  type HookState,
  type Probe,
  type Verdict,
  VerdictSchema,
  type Welcome,
} from "../gen/portcullis/host/v1/host_pb.js";
import { type Incoming, IncomingSchema, type Review, ReviewSchema } from "../gen/portcullis/sdk/v1/frames_pb.js";
import {
  ALIVE_INTERVAL,
  CLOSE_TIMEOUT,
  CONNECT_TIMEOUT,
  DEFAULT_SILENCE,
  DEFAULT_VERDICT_BYTES,
  MAX_ERROR_BYTES,
  MAX_PROBES,
  MAX_WIRE_BYTES,
} from "../limits.js";
import { Assembly, Broken } from "./assembly.js";
import { type Call, Calls, type SessionView, STAGES } from "./calls.js";
import { type Frame, Outbox } from "./outbox.js";
import { encodeVerdict, type Outcome, refused as refusal, shorten } from "./verdict.js";

/** The one version of the protocol that this SDK speaks. */
export const PROTOCOL = 1;

const NEVER = Number.POSITIVE_INFINITY;

/** What a dispatcher and a host may take several of in a frame. */
export const CAPABILITY_BATCHES = "batches";
/** What a host takes large reviews in. */
export const CAPABILITY_CHUNKS = "chunks";

/** What the shell has to do after an event, in order. The frames to send are in the outbox. */
export type Action =
  | { readonly do: "welcome"; readonly welcome: Welcome }
  | { readonly do: "hookState"; readonly state: HookState }
  | { readonly do: "leaving"; readonly drain: DispatcherDrain }
  | { readonly do: "start"; readonly call: Call }
  | { readonly do: "cancel"; readonly call: Call }
  | { readonly do: "probe"; readonly probe: Probe }
  | { readonly do: "end"; readonly reason: string; readonly cutOff?: boolean };

/** What a session is told at its start. */
export interface SessionOptions {
  /** The first frame. */
  readonly hello: Hello;
  /** How long the calls in flight may take once the session drains. */
  readonly drainTimeout: number;
}

/**
 * SessionCore decides what one session does. It is pure: no clock, no I/O, no handler runs in it. Times come in as parameters, in
 * milliseconds of one clock.
 */
export class SessionCore {
  readonly #drainTimeout: number;
  readonly #outbox = new Outbox();

  // From the welcome.
  #welcomed = false;
  #silence = DEFAULT_SILENCE;
  #maxVerdict = DEFAULT_VERDICT_BYTES;

  // Life of the session.
  readonly #opened: number;
  #lastFrame: number;
  #owing: number | undefined; // Time of the first frame since the host's last one.
  #useful = false;
  #ignored = 0;

  readonly #calls: Calls;
  #announced: number; // The bound on outstanding calls.
  readonly #assembly: Assembly;
  #probing = 0;

  // The end.
  #draining = false;
  #finishing = false; // Nothing is sent after the frames in the outbox.
  #over = false;
  #drainUntil = NEVER;
  #endUntil = NEVER;

  constructor(now: number, options: SessionOptions) {
    const { hello } = options;
    this.#calls = new Calls(hello);
    this.#drainTimeout = options.drainTimeout;
    this.#opened = now;
    this.#lastFrame = now;
    this.#announced = hello.maxOutstanding;
    this.#assembly = new Assembly(hello.maxFrameBytes);
    this.#outbox.push({ case: "hello", value: hello });
  }

  /** How many frames wait to be sent. */
  get waiting(): number {
    return this.#outbox.waiting;
  }

  /** Whether the host closes its side of the stream behind the frames that wait. */
  get finishing(): boolean {
    return this.#finishing && !this.#over;
  }

  /** Whether a frame came after the welcome. */
  get useful(): boolean {
    return this.#useful;
  }

  /** How many frames of unknown types came. */
  get ignored(): number {
    return this.#ignored;
  }

  /** takeFrame removes the first frame to send; undefined if there is none. */
  takeFrame(): Uint8Array | undefined {
    return this.#outbox.take();
  }

  /** frame takes an encoded frame of the dispatcher. */
  frame(now: number, encoded: Uint8Array): Action[] {
    try {
      const actions = this.#received(now, encoded);
      this.#lastFrame = now;
      this.#alive(now);
      return actions;
    } catch (error) {
      if (error instanceof Broken) {
        return this.#end(`the dispatcher broke the contract: ${error.message}`);
      }
      throw error;
    }
  }

  /** finished takes how a call ended. Each call has one verdict, also a cancelled one: it alone frees the slot. */
  finished(now: number, call: Call, outcome: Outcome, times: { queueUs: number; handleUs: number }): void {
    if (this.#calls.finish(call)) {
      this.#verdict(call.review.callId, call.index, outcome, times);
      this.#finishWhenDrained(now);
    }
  }

  /** probed takes the result of a probe: why the hooks are not ready, or undefined if they are. */
  probed(seq: bigint, notReady: string | undefined): Action[] {
    this.#probing--;
    this.#probeResult(seq, notReady);
    return [];
  }

  /** credit announces a new bound on outstanding calls. */
  credit(maxOutstanding: number): Action[] {
    if (this.#draining || maxOutstanding === this.#announced) {
      return [];
    }
    this.#announced = maxOutstanding;
    this.#calls.raise(maxOutstanding);
    this.#send({ case: "credit", value: { $typeName: "portcullis.host.v1.Credit", maxOutstanding } });
    return [];
  }

  /** drain announces that the host takes no new calls. Those in flight finish. */
  drain(now: number): Action[] {
    if (this.#draining) {
      return [];
    }
    this.#draining = true;
    this.#drainUntil = now + this.#drainTimeout;
    const lastStartedCallId = this.#calls.lastStarted;
    this.#send({ case: "drain", value: { $typeName: "portcullis.host.v1.HostDrain", lastStartedCallId } });
    this.#finishWhenDrained(now);
    return [];
  }

  /** wake is when tick has to be called; infinite if never. */
  wake(): number {
    return this.#over ? NEVER : Math.min(this.#silentAt(), this.#cutOffAt(), this.#endUntil);
  }

  /** tick ends the session when a deadline has passed. */
  tick(now: number): Action[] {
    if (now < this.wake()) {
      return [];
    }
    if (now >= this.#silentAt()) {
      return this.#end(this.#welcomed ? "the dispatcher fell silent" : "the dispatcher sent no welcome in time");
    }
    return now >= this.#cutOffAt()
      ? this.#end("calls were still running when the time to drain was over", true)
      : this.#end("the dispatcher did not end the stream");
  }

  #silentAt(): number {
    return this.#welcomed ? this.#lastFrame + this.#silence : this.#opened + CONNECT_TIMEOUT;
  }

  #cutOffAt(): number {
    return this.#finishing ? NEVER : this.#drainUntil;
  }

  #end(reason: string, cutOff = false): Action[] {
    this.#over = true;
    this.#finishing = true;
    this.#outbox.drop();
    return [{ do: "end", reason, cutOff }];
  }

  #received(now: number, encoded: Uint8Array): Action[] {
    const { frame } = decode(IncomingSchema, encoded, "a frame cannot be decoded");
    if (frame.case === undefined) {
      this.#ignored++;
      return [];
    }
    if (frame.case === "welcome") {
      return this.#welcome(frame.value);
    }
    if (!this.#welcomed) {
      throw new Broken(`${frame.case} came before welcome`);
    }
    this.#useful = true;
    return this.#judge(now, frame, encoded.length);
  }

  #judge(now: number, frame: Incoming["frame"], size: number): Action[] {
    switch (frame.case) {
      case "review":
        return this.#whole(now, [frame.value]);
      case "reviews":
        if (size > MAX_WIRE_BYTES) {
          throw new Broken(`a frame of several reviews has ${size} bytes, this host takes ${MAX_WIRE_BYTES}`);
        }
        return this.#whole(now, frame.value.reviews);
      case "chunk":
        return this.#chunk(now, frame.value);
      case "cancel":
        return this.#cancel(now, frame.value);
      case "ping":
        this.#pong(frame.value.seq);
        return [];
      case "probe":
        return this.#probe(frame.value);
      case "hookState":
        return [{ do: "hookState", state: frame.value }];
      case "drain":
        this.#endUntil = Math.min(this.#endUntil, now + frame.value.graceMs + CLOSE_TIMEOUT);
        return [{ do: "leaving", drain: frame.value }];
      default:
        return [];
    }
  }

  /** A later Welcome has a new list of peers. */
  #welcome(w: Welcome): Action[] {
    if (w.protocol !== PROTOCOL) {
      return this.#end(`the dispatcher chose protocol ${w.protocol}, this host speaks ${PROTOCOL}`);
    }
    this.#welcomed = true;
    this.#silence = w.silenceMs || this.#silence;
    this.#maxVerdict = w.maxVerdictBytes || this.#maxVerdict;
    if (w.capabilities.includes(CAPABILITY_BATCHES)) {
      this.#outbox.allowBatches(this.#maxVerdict);
    }
    return [{ do: "welcome", welcome: w }];
  }

  #whole(now: number, reviews: readonly Review[]): Action[] {
    for (const { callId } of reviews) {
      this.#calls.cameWhole(callId);
    }
    return this.#reviews(now, now, reviews);
  }

  #chunk(now: number, c: Chunk): Action[] {
    this.#calls.cameInPart(c.callId);
    const whole = this.#assembly.add(now, c);
    if (!whole) {
      return [];
    }
    const review = decode(ReviewSchema, whole.encoded, `the chunks of call ${c.callId} are no review`);
    if (review.callId !== c.callId || review.hooks.length !== c.hooks) {
      throw new Broken(
        `the chunks of call ${c.callId} hold call ${review.callId} of ${review.hooks.length} hooks, not ${c.hooks}`,
      );
    }
    return this.#reviews(now, whole.began, [review]);
  }

  /** Starts handlers. Their time counts from `written`: the arrival of the reviews, or of the first chunk. */
  #reviews(now: number, written: number, reviews: readonly Review[]): Action[] {
    const actions = reviews.flatMap((review) => this.#review(now, written, review));
    this.#finishWhenDrained(now);
    return actions;
  }

  #review(now: number, written: number, review: Review): Action[] {
    if (this.#assembly.call === review.callId) {
      throw new Broken(`call ${review.callId} came twice`);
    }
    const { started, refused } = this.#calls.admit(this.#view(now), written, review);
    for (const { index, reason } of refused) {
      this.#verdict(review.callId, index, refusal(reason));
    }
    return started.map((call) => ({ do: "start", call }));
  }

  #view(now: number): SessionView {
    return { now, silence: this.#silence, draining: this.#draining };
  }

  #cancel(now: number, c: Cancel): Action[] {
    if (this.#assembly.call === c.callId) {
      return this.#cancelChunks(now, c);
    }
    return this.#calls.cancelled(this.#view(now), c).map((call) => ({ do: "cancel", call }));
  }

  /** If all hooks of an incomplete review are cancelled no more chunks come. Otherwise the others still need it. */
  #cancelChunks(now: number, c: Cancel): Action[] {
    if (!this.#assembly.covers(c)) {
      this.#calls.remember(this.#view(now), c);
      return [];
    }
    const hooks = this.#assembly.drop();
    for (let index = 0; index < hooks; index++) {
      this.#verdict(c.callId, index, { case: "cancelled", value: create(CancelledSchema) });
    }
    this.#finishWhenDrained(now);
    return [];
  }

  #probe(probe: Probe): Action[] {
    if (!STAGES.some((stage) => this.#calls.offers(probe.hook, stage))) {
      this.#probeResult(probe.seq, "unknown hook");
      return [];
    }
    if (this.#probing >= MAX_PROBES) {
      this.#probeResult(probe.seq, "too many probes at a time");
      return [];
    }
    this.#probing++;
    return [{ do: "probe", probe }];
  }

  /**
   * A draining session ends once all calls have their verdicts. An incomplete review needs one if a call with a greater id was
   * started: by HostDrain the dispatcher takes it as started too.
   */
  #finishWhenDrained(now: number): void {
    const incomplete = this.#assembly.call;
    const owed = this.#calls.outstanding > 0 || (incomplete !== undefined && incomplete < this.#calls.lastStarted);
    if (!this.#draining || this.#finishing || owed) {
      return;
    }
    this.#finishing = true;
    this.#endUntil = Math.min(this.#endUntil, now + CLOSE_TIMEOUT);
  }

  /**
   * Sends an unasked Pong when frames have come for a while and the host has sent none: on a slow link a Ping may be stuck behind
   * them. Without frames it sends nothing: a host that receives nothing must get no calls.
   */
  #alive(now: number): void {
    if (this.#outbox.waiting > 0) {
      return;
    }
    if (this.#owing === undefined) {
      this.#owing = now;
    } else if (now - this.#owing >= ALIVE_INTERVAL) {
      this.#pong(0n);
      this.#owing = now;
    }
  }

  #pong(seq: bigint): void {
    this.#send({ case: "pong", value: { $typeName: "portcullis.host.v1.Pong", seq } });
  }

  #probeResult(seq: bigint, notReady: string | undefined): void {
    const message = shorten((notReady ?? "").toWellFormed(), MAX_ERROR_BYTES);
    const result = { seq, ready: notReady === undefined, message };
    this.#send({ case: "probeResult", value: { $typeName: "portcullis.host.v1.ProbeResult", ...result } });
  }

  #verdict(callId: bigint, hookIndex: number, outcome: Outcome, times = { queueUs: 0, handleUs: 0 }): void {
    this.#owing = undefined;
    if (!this.#finishing) {
      const verdict: Verdict = create(VerdictSchema, { callId, hookIndex, outcome, ...times });
      this.#outbox.pushVerdict(encodeVerdict(verdict, this.#maxVerdict));
    }
  }

  #send(frame: Frame): void {
    this.#owing = undefined;
    if (!this.#finishing) {
      this.#outbox.push(frame);
    }
  }
}

function decode<T extends DescMessage>(schema: T, encoded: Uint8Array, otherwise: string): MessageShape<T> {
  try {
    return fromBinary(schema, encoded);
  } catch {
    throw new Broken(otherwise);
  }
}
