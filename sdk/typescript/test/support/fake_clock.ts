import { setImmediate as turn } from "node:timers/promises";
import type { Clock } from "../../src/clock.js";

/** FakeClock stands still until a test lets time pass. */
export class FakeClock implements Clock {
  #now = 0;
  #timers: { at: number; then: () => void }[] = [];
  #soon: (() => void)[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, then: () => void): () => void {
    const timer = { at: this.#now + Math.max(0, ms), then };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((t) => t !== timer);
    };
  }

  soon(then: () => void): void {
    this.#soon.push(then);
  }

  /** skip lets time pass while something computes: no timer fires. */
  skip(ms: number): void {
    this.#now += ms;
  }

  /** settle runs everything that can run without time passing. */
  async settle(): Promise<void> {
    do {
      for (const then of this.#soon.splice(0)) {
        then();
      }
      await turn(); // All promises that can settle have settled.
      await turn();
    } while (this.#soon.length > 0);
  }

  /** advance lets time pass, from timer to timer. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await this.settle();
    for (let next = this.#next(until); next; next = this.#next(until)) {
      this.#timers = this.#timers.filter((t) => t !== next);
      this.#now = Math.max(this.#now, next.at);
      next.then();
      await this.settle();
    }
    this.#now = until;
  }

  #next(until: number): { at: number; then: () => void } | undefined {
    return this.#timers.filter((t) => t.at <= until).sort((a, b) => a.at - b.at)[0];
  }
}
