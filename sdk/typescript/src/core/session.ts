import { create, fromBinary } from "@bufbuild/protobuf";
import { Stage } from "../gen/portcullis/admission/v1/admission_pb.js";
import {
  type Cancel,
  CancelledSchema,
  type Chunk,
  type DispatcherDrain,
  type Hello,
  type HookCall,
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
import { Assembly, Broken, checkHooks, outOfOrder } from "./assembly.js";
import { EarlyCancels } from "./early.js";
import { type Frame, Outbox } from "./outbox.js";
import { encodeVerdict, type Outcome, refused, shorten } from "./verdict.js";

/** The one version of the protocol that this SDK speaks. */
export const PROTOCOL = 1;

/** What a dispatcher and a host may take several of in a frame. */
export const CAPABILITY_BATCHES = "batches";
/** What a host takes large reviews in. */
export const CAPABILITY_CHUNKS = "chunks";

/** Why a call was refused that had waited for a slot, or whose cancellation came before it. */
export const REFUSED_CANCELLED = "cancelled before its start";
/** Why a call was refused whose time is over. */
export const REFUSED_NO_TIME = "no time left";

/** A call of one hook. A verdict ends it. */
export interface Call {
  /** The review; its request is shared by the calls of its hooks. */
  readonly review: Review;
  /** The part of the review for this hook. */
  readonly hook: HookCall;
  /** Index in Review.hooks. */
  readonly index: number;
  /** When the review was whole. */
  readonly received: number;
  /** When the verdict is due. */
  readonly deadline: number;
}

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

interface Deadline {
  readonly at: number;
  readonly reason: string;
  readonly cutOff?: boolean;
}

/**
 * SessionCore decides what one session does. It is pure: no clock, no I/O, no handler runs in it. Times come in as parameters, in
 * milliseconds of one clock.
 */
export class SessionCore {
  readonly #offers: ReadonlySet<string>;
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

  // Calls. The limit is the highest bound ever announced: the dispatcher may not know a lower one yet.
  readonly #calls = new Map<bigint, Map<number, Call>>(); // Without verdict, by call and index.
  #outstanding = 0;
  #limit: number;
  #announced: number;
  #highest = 0n; // Of all reviews.
  #lastWhole: bigint | undefined; // Of those that came whole.
  #lastStarted = 0n;
  readonly #early = new EarlyCancels();
  readonly #assembly: Assembly;
  #probing = 0;

  // The end.
  #draining = false;
  #finishing = false; // Nothing is sent after the frames in the outbox.
  #over = false;
  #drainUntil = Number.POSITIVE_INFINITY;
  #endUntil = Number.POSITIVE_INFINITY;

  constructor(now: number, options: SessionOptions) {
    const { hello } = options;
    this.#offers = new Set(hello.hooks.map((offer) => hookKey(offer.name, offer.stage)));
    this.#drainTimeout = options.drainTimeout;
    this.#opened = now;
    this.#lastFrame = now;
    this.#limit = hello.maxOutstanding;
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
    const live = this.#calls.get(call.review.callId);
    if (live?.get(call.index) !== call) {
      return;
    }
    live.delete(call.index);
    this.#outstanding--;
    if (live.size === 0) {
      this.#calls.delete(call.review.callId);
    }
    this.#verdict(call.review.callId, call.index, outcome, times);
    this.#finishWhenDrained(now);
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
    this.#limit = Math.max(this.#limit, maxOutstanding);
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
    const lastStartedCallId = this.#lastStarted;
    this.#send({ case: "drain", value: { $typeName: "portcullis.host.v1.HostDrain", lastStartedCallId } });
    this.#finishWhenDrained(now);
    return [];
  }

  /** wake is when tick has to be called; infinite if never. */
  wake(): number {
    return Math.min(...this.#deadlines().map((d) => d.at));
  }

  /** tick ends the session when a deadline has passed. */
  tick(now: number): Action[] {
    const passed = this.#deadlines().find((d) => now >= d.at);
    return passed ? this.#end(passed.reason, passed.cutOff) : [];
  }

  #end(reason: string, cutOff = false): Action[] {
    this.#over = true;
    this.#finishing = true;
    this.#outbox.drop();
    return [{ do: "end", reason, cutOff }];
  }

  #deadlines(): Deadline[] {
    if (this.#over) {
      return [];
    }
    return [
      this.#welcomed
        ? { at: this.#lastFrame + this.#silence, reason: "the dispatcher fell silent" }
        : { at: this.#opened + CONNECT_TIMEOUT, reason: "the dispatcher sent no welcome in time" },
      {
        at: this.#finishing ? Number.POSITIVE_INFINITY : this.#drainUntil,
        reason: "calls were still running when the time to drain was over",
        cutOff: true,
      },
      { at: this.#endUntil, reason: "the dispatcher did not end the stream" },
    ];
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

  /** Ids increase among the reviews that come whole, so that a call that comes again is noticed also after its end. */
  #whole(now: number, reviews: readonly Review[]): Action[] {
    for (const { callId } of reviews) {
      if (this.#lastWhole !== undefined && callId <= this.#lastWhole) {
        throw outOfOrder(callId, this.#lastWhole);
      }
      this.#lastWhole = callId;
    }
    return this.#reviews(now, now, reviews);
  }

  #chunk(now: number, c: Chunk): Action[] {
    if (this.#calls.has(c.callId)) {
      throw new Broken(`call ${c.callId} came twice`);
    }
    const whole = this.#assembly.add(now, c);
    this.#highest = max(this.#highest, c.callId);
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

  /** Starts the handlers of a review, and refuses the calls that cannot start. */
  #review(now: number, written: number, review: Review): Action[] {
    const id = review.callId;
    if (this.#calls.has(id) || this.#assembly.call === id) {
      throw new Broken(`call ${id} came twice`);
    }
    checkHooks(id, review.hooks.length);
    this.#highest = max(this.#highest, id);
    const cancelled = this.#early.take(now, this.#silence, id);
    const live = new Map<number, Call>();
    const started: Action[] = [];
    for (const [index, hook] of review.hooks.entries()) {
      const reason = this.#refusal(review, hook, cancelled(index));
      if (reason !== undefined) {
        this.#verdict(id, index, refused(reason));
        continue;
      }
      const call = { review, hook, index, received: now, deadline: written + hook.remainingMs };
      live.set(index, call);
      this.#outstanding++;
      started.push({ do: "start", call });
    }
    if (live.size > 0) {
      this.#calls.set(id, live);
      this.#lastStarted = max(this.#lastStarted, id);
    }
    return started;
  }

  #refusal(review: Review, hook: HookCall, cancelled: boolean): string | undefined {
    if (this.#draining) {
      return "draining";
    }
    if (!this.#offers.has(hookKey(hook.name, hook.stage))) {
      return "unknown hook";
    }
    if (review.request === undefined) {
      return "review without a request";
    }
    if (cancelled) {
      return REFUSED_CANCELLED;
    }
    if (hook.remainingMs === 0) {
      return REFUSED_NO_TIME;
    }
    return this.#outstanding >= this.#limit ? "overloaded" : undefined;
  }

  /** A cancellation before its review is remembered; one after the verdict is ignored. */
  #cancel(now: number, c: Cancel): Action[] {
    if (this.#assembly.call === c.callId) {
      return this.#cancelChunks(now, c);
    }
    const live = this.#calls.get(c.callId);
    if (!live) {
      if (c.callId > this.#highest) {
        this.#early.remember(now, this.#silence, c);
      }
      return [];
    }
    const named = c.hookIndexes.length === 0 ? [...live.keys()] : [...new Set(c.hookIndexes)];
    return named.flatMap((index) => {
      const call = live.get(index);
      return call ? [{ do: "cancel", call }] : [];
    });
  }

  /** If all hooks of an incomplete review are cancelled no more chunks come. Otherwise the others still need it. */
  #cancelChunks(now: number, c: Cancel): Action[] {
    if (!this.#assembly.covers(c)) {
      this.#early.remember(now, this.#silence, c);
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
    const stages = [Stage.VALIDATE, Stage.MUTATE];
    if (!stages.some((stage) => this.#offers.has(hookKey(probe.hook, stage)))) {
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
    const owed = this.#outstanding > 0 || (incomplete !== undefined && incomplete < this.#lastStarted);
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

/** hookKey names a hook: one name may be both a validating and a mutating hook. */
export function hookKey(name: string, stage: Stage): string {
  return `${stage}/${name}`;
}

function decode(schema: typeof IncomingSchema, encoded: Uint8Array, otherwise: string): Incoming;
function decode(schema: typeof ReviewSchema, encoded: Uint8Array, otherwise: string): Review;
function decode(
  schema: typeof IncomingSchema | typeof ReviewSchema,
  encoded: Uint8Array,
  otherwise: string,
): Incoming | Review {
  try {
    return fromBinary<typeof IncomingSchema | typeof ReviewSchema>(schema, encoded);
  } catch {
    throw new Broken(otherwise);
  }
}

function max(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}
