/**
 * HandlerError is a failure with a text for the operator of the mesh. A handler throws one, or an error whose `cause` is one, to
 * explain in public why there is no verdict. The text of any other error stays in the process. It is no denial: failurePolicy decides.
 *
 * `message` goes into logs, traces and explanations of the mesh, but not to the client of the cluster. It must hold no secrets. `cause`
 * is logged by this process and goes nowhere else.
 */
export class HandlerError extends Error {
  override readonly name: string = "HandlerError";
}

/** HostError is why a host cannot start, or why its sessions ended. */
export class HostError extends Error {
  override readonly name: string = "HostError";
}

/** CutOffError says that calls were still running when the time to drain was over. */
export class CutOffError extends HostError {
  override readonly name: string = "CutOffError";
}

/** MAX_CAUSES bounds the chain of causes that is searched: it may be a circle. */
const MAX_CAUSES = 100;

/** causes are an error and its causes. It throws nothing, whatever was thrown. */
export function* causes(error: unknown): Generator<Error> {
  try {
    for (let e = error, depth = 0; e instanceof Error && depth < MAX_CAUSES; e = e.cause, depth++) {
      yield e;
    }
  } catch {
    // A proxy or a getter: it has no causes that can be read.
  }
}

/** publicText is the text of a HandlerError, also of one that is a cause, else a text without internals. */
export function publicText(error: unknown, otherwise: string): string {
  for (const e of causes(error)) {
    if (e instanceof HandlerError && messageOf(e) !== "") {
      return messageOf(e);
    }
  }
  return otherwise;
}

/**
 * isBug tells a mistake in a handler from a failure: the engine throws these for code that is wrong. A TypeError with a cause is
 * what fetch throws when the network fails.
 */
export function isBug(error: unknown): boolean {
  const [first, cause] = causes(error);
  const bug = first instanceof TypeError || first instanceof ReferenceError || first instanceof RangeError;
  return bug && cause === undefined && first.cause === undefined;
}

/** messageOf is the text of anything that was thrown; empty if it has none. */
export function messageOf(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return "";
  }
}
