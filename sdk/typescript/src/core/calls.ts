import { Stage } from "../gen/portcullis/admission/v1/admission_pb.js";
import type { Cancel, Hello, HookCall } from "../gen/portcullis/host/v1/host_pb.js";
import type { Review } from "../gen/portcullis/sdk/v1/frames_pb.js";
import { Broken, checkHooks, outOfOrder } from "./assembly.js";
import { EarlyCancels } from "./early.js";

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

/** A call that was not started, and why. */
export interface Refusal {
  readonly index: number;
  readonly reason: string;
}

/** What Calls needs to know of its session. */
export interface SessionView {
  readonly now: number;
  /** How long early cancellations are remembered. */
  readonly silence: number;
  readonly draining: boolean;
}

/** Calls are the calls of a session that have no verdict yet. It decides which ones start. Pure. */
export class Calls {
  readonly #offers: ReadonlySet<string>;
  readonly #live = new Map<bigint, Map<number, Call>>(); // By call and index.
  readonly #early = new EarlyCancels();
  #limit: number; // The highest bound ever announced: the dispatcher may not know a lower one yet.
  #outstanding = 0;
  #highest = 0n; // Of all reviews.
  #lastWhole: bigint | undefined; // Of those that came whole.
  #lastStarted = 0n;

  constructor(hello: Hello) {
    this.#offers = new Set(hello.hooks.map((offer) => hookKey(offer.name, offer.stage)));
    this.#limit = hello.maxOutstanding;
  }

  /** How many calls have no verdict yet. */
  get outstanding(): number {
    return this.#outstanding;
  }

  /** The greatest id of a call that was started. */
  get lastStarted(): bigint {
    return this.#lastStarted;
  }

  /** raise sets the bound, if it is higher than before. */
  raise(limit: number): void {
    this.#limit = Math.max(this.#limit, limit);
  }

  /** offers reports whether the host offers a hook. */
  offers(name: string, stage: Stage): boolean {
    return this.#offers.has(hookKey(name, stage));
  }

  /** cameWhole notes a review in one piece. Their ids increase, so that one that comes again is noticed also after its end. */
  cameWhole(id: bigint): void {
    if (this.#lastWhole !== undefined && id <= this.#lastWhole) {
      throw outOfOrder(id, this.#lastWhole);
    }
    this.#lastWhole = id;
  }

  /** cameInPart notes a chunk of a review. */
  cameInPart(id: bigint): void {
    this.#checkNew(id);
    this.#highest = max(this.#highest, id);
  }

  /** admit starts the calls of a review, and refuses those that cannot start. Their time counts from `written`. */
  admit(session: SessionView, written: number, review: Review): { started: Call[]; refused: Refusal[] } {
    const id = review.callId;
    this.#checkNew(id);
    checkHooks(id, review.hooks.length);
    this.#highest = max(this.#highest, id);
    const cancelled = this.#early.take(session.now, session.silence, id);
    const started: Call[] = [];
    const refused: Refusal[] = [];
    for (const [index, hook] of review.hooks.entries()) {
      const reason = session.draining ? "draining" : this.#refusal(review, hook, cancelled(index));
      if (reason !== undefined) {
        refused.push({ index, reason });
        continue;
      }
      started.push({ review, hook, index, received: session.now, deadline: written + hook.remainingMs });
      this.#outstanding++;
    }
    if (started.length > 0) {
      this.#live.set(id, new Map(started.map((call) => [call.index, call])));
      this.#lastStarted = max(this.#lastStarted, id);
    }
    return { started, refused };
  }

  /** cancelled returns the calls that a cancellation names. One before its review is remembered, one after the verdict ignored. */
  cancelled(session: SessionView, c: Cancel): Call[] {
    const live = this.#live.get(c.callId);
    if (!live) {
      if (c.callId > this.#highest) {
        this.remember(session, c);
      }
      return [];
    }
    const named = c.hookIndexes.length === 0 ? [...live.keys()] : [...new Set(c.hookIndexes)];
    return named.flatMap((index) => live.get(index) ?? []);
  }

  /** remember keeps a cancellation for a review that has not come whole. */
  remember(session: SessionView, c: Cancel): void {
    this.#early.remember(session.now, session.silence, c);
  }

  /** finish ends a call, and reports whether it had not ended before. */
  finish(call: Call): boolean {
    const live = this.#live.get(call.review.callId);
    if (live?.get(call.index) !== call) {
      return false;
    }
    live.delete(call.index);
    this.#outstanding--;
    if (live.size === 0) {
      this.#live.delete(call.review.callId);
    }
    return true;
  }

  /** Ids are never reused: a second review of a live call would leave the two sides with different calls in flight. */
  #checkNew(id: bigint): void {
    if (this.#live.has(id)) {
      throw new Broken(`call ${id} came twice`);
    }
  }

  #refusal(review: Review, hook: HookCall, cancelled: boolean): string | undefined {
    if (!this.offers(hook.name, hook.stage)) {
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
}

/** The stages that a hook can belong to. */
export const STAGES: readonly Stage[] = [Stage.INITIALIZE, Stage.MUTATE, Stage.VALIDATE];

/** hookKey names a hook: hooks of several stages may have one name. */
export function hookKey(name: string, stage: Stage): string {
  return `${stage}/${name}`;
}

function max(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}
