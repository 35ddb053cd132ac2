/** A promise that is settled from outside. Node.js 20 has no Promise.withResolvers. */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (reason: unknown) => void;
}

/** deferred makes one. Its rejection is never unhandled: it may come before, or without, anybody who waits. */
export function deferred<T = void>(): Deferred<T> {
  let settle: Pick<Deferred<T>, "resolve" | "reject"> | undefined;
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject };
  });
  promise.catch(() => {});
  return { promise, ...(settle as unknown as Pick<Deferred<T>, "resolve" | "reject">) };
}
