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

/** StatusError is how a dispatcher ended a stream. */
export class StatusError extends HostError {
  override readonly name: string = "StatusError";
  /** The name of the status of gRPC, for example `ABORTED`. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** CutOffError says that calls were still running when the time to drain was over. */
export class CutOffError extends HostError {
  override readonly name: string = "CutOffError";
}

/** publicText is the text of a HandlerError, also of one that is a cause, else a text without internals. */
export function publicText(error: unknown, otherwise: string): string {
  for (let e = error, depth = 0; e instanceof Error && depth < 16; e = e.cause, depth++) {
    if (e instanceof HandlerError && e.message !== "") {
      return e.message;
    }
  }
  return otherwise;
}

/**
 * isBug tells a mistake in a handler from a failure: the engine throws these for code that is wrong. A TypeError with a cause is
 * what fetch throws when the network fails.
 */
export function isBug(error: unknown): boolean {
  return (
    (error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError) &&
    error.cause === undefined
  );
}

/** messageOf is the text of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
