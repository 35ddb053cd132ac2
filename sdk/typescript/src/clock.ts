/** Clock is the time and the event loop as a session sees them, so that tests can play both. */
export interface Clock {
  /** Milliseconds since some moment; they never go back. */
  now(): number;
  /** Calls `then` after `ms`; the result stops that. */
  after(ms: number, then: () => void): () => void;
  /** Calls `then` once the event loop has read and written what it can. */
  soon(then: () => void): void;
}

/** The longest time that setTimeout takes. */
const LONGEST = 2 ** 31 - 1;

/** The clock of the process. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, then) {
    const timer = setTimeout(then, Math.min(Math.max(0, Math.ceil(ms)), LONGEST));
    return () => clearTimeout(timer);
  },
  soon: (then) => void setImmediate(then),
};
