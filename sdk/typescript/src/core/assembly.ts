import type { Cancel, Chunk } from "../gen/portcullis/host/v1/host_pb.js";
import { MAX_REVIEW_HOOKS } from "../limits.js";

/** Broken is a violation of the contract by the dispatcher. It ends the session. */
export class Broken extends Error {
  override readonly name: string = "Broken";
}

interface Partial {
  readonly call: bigint;
  readonly total: number;
  readonly hooks: number;
  readonly began: number;
  buffer: Buffer;
  have: number;
}

/** Assembly joins the chunks of a review. Pure. Its buffer grows with what has come: a large total alone takes no memory. */
export class Assembly {
  readonly #limit: number; // Of the size of a review.
  #last: bigint | undefined; // Id of the review that came last in chunks.
  #review: Partial | undefined;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** The id of the review that has come in part; undefined if there is none. */
  get call(): bigint | undefined {
    return this.#review?.call;
  }

  /** add returns the encoded review and when its first chunk came, if the chunk completes it. */
  add(now: number, c: Chunk): { encoded: Uint8Array; began: number } | undefined {
    this.#review ??= this.#begin(now, c);
    const r = this.#review;
    if (c.callId !== r.call) {
      throw new Broken(`a chunk of call ${c.callId} came while call ${r.call} was incomplete`);
    }
    if (c.totalBytes !== BigInt(r.total) || c.hooks !== r.hooks) {
      throw new Broken(`the chunks of call ${r.call} do not agree on its size`);
    }
    if (c.data.length === 0) {
      throw new Broken(`a chunk of call ${r.call} was empty`);
    }
    if (r.have + c.data.length > r.total) {
      throw new Broken(`the chunks of call ${r.call} are longer than the ${r.total} bytes that they say`);
    }
    append(r, c.data);
    if (r.have < r.total) {
      return undefined;
    }
    this.#review = undefined;
    return { encoded: r.buffer.subarray(0, r.total), began: r.began };
  }

  #begin(now: number, c: Chunk): Partial {
    if (c.totalBytes > BigInt(this.#limit)) {
      throw new Broken(`call ${c.callId} has ${c.totalBytes} bytes, this host takes ${this.#limit}`);
    }
    checkHooks(c.callId, c.hooks);
    if (this.#last !== undefined && c.callId <= this.#last) {
      throw outOfOrder(c.callId, this.#last);
    }
    this.#last = c.callId;
    return {
      call: c.callId,
      total: Number(c.totalBytes),
      hooks: c.hooks,
      began: now,
      buffer: Buffer.alloc(0),
      have: 0,
    };
  }

  /** covers reports whether a cancellation names every hook of the incomplete review. */
  covers(c: Cancel): boolean {
    const hooks = this.#review?.hooks ?? 0;
    return c.hookIndexes.length === 0 || new Set(c.hookIndexes.filter((i) => i < hooks)).size === hooks;
  }

  /** drop forgets the incomplete review, and returns its number of hooks. */
  drop(): number {
    const hooks = this.#review?.hooks ?? 0;
    this.#review = undefined;
    return hooks;
  }
}

function append(r: Partial, data: Uint8Array): void {
  const need = r.have + data.length;
  if (need > r.buffer.length) {
    const grown = Buffer.alloc(Math.min(r.total, Math.max(need, 2 * r.buffer.length)));
    r.buffer.copy(grown, 0, 0, r.have);
    r.buffer = grown;
  }
  r.buffer.set(data, r.have);
  r.have = need;
}

/** checkHooks throws if a review asks more hooks than one may. */
export function checkHooks(call: bigint, hooks: number): void {
  if (hooks > MAX_REVIEW_HOOKS) {
    throw new Broken(`call ${call} asks ${hooks} hooks, more than ${MAX_REVIEW_HOOKS}`);
  }
}

/** outOfOrder says that the id of a review is not greater than that of the one before. */
export function outOfOrder(call: bigint, last: bigint): Broken {
  return new Broken(`call ${call} came after call ${last}: each comes once, in the order of their ids`);
}
