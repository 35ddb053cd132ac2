/** A promise that is settled from outside. */
export type Deferred<T> = PromiseWithResolvers<T>;

/** deferred makes one. Its rejection is never unhandled: it may come before, or without, anybody who waits. */
export function deferred<T = void>(): Deferred<T> {
  const made = Promise.withResolvers<T>();
  made.promise.catch(() => {});
  return made;
}
