import type { Decision } from "./decision.js";
import { HandlerError } from "./error.js";
import type { Handler } from "./hook.js";
import type { HandlerContext } from "./invocation.js";
import { difference } from "./patch.js";
import type { KubernetesObject, Request } from "./request.js";

/**
 * Initializer completes an object before it is created. It returns the object as it should be, which may be the one that it was given
 * and has changed, or a decision: `deny` for an object that must not be created. It throws when it cannot tell. It is called again for the
 * same object, as it was before, when the replica that had it is lost.
 */
export type Initializer<T extends object = KubernetesObject> = (
  object: T,
  request: Request<T>,
  context: HandlerContext,
) => T | Decision | Promise<T | Decision>;

/** initializing is the handler of an initializer: it decides by the difference that the initializer makes. */
export function initializing<T extends object>(initializer: Initializer<T>): Handler<T> {
  return async (request, context) => {
    const { object } = request;
    if (!object) {
      throw new HandlerError("the request has no object to be initialized: it creates none");
    }
    const initialized: unknown = await initializer(object, request, context);
    if (initialized instanceof Error) {
      throw initialized;
    }
    if (typeof initialized !== "object" || initialized === null) {
      throw new HandlerError("the initializer returned no object");
    }
    return isDecision(initialized) ? initialized : difference(request, initialized as T);
  };
}

/** An object of Kubernetes has a kind, and a decision has none. */
function isDecision(value: object): value is Decision {
  return "allowed" in value && typeof value.allowed === "boolean" && !("kind" in value);
}
