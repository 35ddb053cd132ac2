import type { Cancel } from "../gen/portcullis/host/v1/host_pb.js";
import { MAX_EARLY_CANCELS } from "../limits.js";

interface EarlyCancel {
  readonly call: bigint;
  readonly hooks: readonly number[]; // None means all.
  readonly at: number;
}

/**
 * EarlyCancels remembers cancellations that came before their reviews, for `lifetime` and in a bounded number: at the bound it forgets
 * the oldest, whose handlers run to their deadlines. Pure; times are in milliseconds.
 */
export class EarlyCancels {
  #list: EarlyCancel[] = []; // Oldest first.
  #size = 0; // Of all in the list: each, and each hook that it names.

  /** remember adds a cancellation. */
  remember(now: number, lifetime: number, cancel: Cancel): void {
    this.#forget(now - lifetime);
    const added = { call: cancel.callId, hooks: cancel.hookIndexes, at: now };
    if (sizeOf(added) > MAX_EARLY_CANCELS) {
      return;
    }
    while (this.#size + sizeOf(added) > MAX_EARLY_CANCELS) {
      this.#dropOldest();
    }
    this.#list.push(added);
    this.#size += sizeOf(added);
  }

  /** take removes the cancellations of a call, and returns a test for whether one of them names a hook. */
  take(now: number, lifetime: number, call: bigint): (hook: number) => boolean {
    this.#forget(now - lifetime);
    const of = this.#list.filter((e) => e.call === call);
    if (of.length > 0) {
      this.#list = this.#list.filter((e) => e.call !== call);
      this.#size -= of.reduce((sum, e) => sum + sizeOf(e), 0);
    }
    return (hook) => of.some((e) => e.hooks.length === 0 || e.hooks.includes(hook));
  }

  #forget(before: number): void {
    for (let first = this.#list[0]; first !== undefined && first.at < before; first = this.#list[0]) {
      this.#dropOldest();
    }
  }

  #dropOldest(): void {
    const oldest = this.#list.shift();
    this.#size -= oldest ? sizeOf(oldest) : 0;
  }
}

function sizeOf(e: EarlyCancel): number {
  return 1 + e.hooks.length;
}
