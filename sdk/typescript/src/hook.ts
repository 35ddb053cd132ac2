import { allow, type Decision } from "./decision.js";
import { HandlerError, HostError } from "./error.js";
import { Stage as WireStage } from "./gen/portcullis/admission/v1/admission_pb.js";
import { difference } from "./patch.js";
import type { CreateRequest, DeleteRequest, KubernetesObject, Request, Stage, UpdateRequest } from "./request.js";

/** A value, at once or later. */
export type Awaitable<T> = T | Promise<T>;

/**
 * Handler judges one request for one hook. It returns a decision, or throws a `Denied`, or another error when it cannot judge. It is called
 * again while earlier calls still wait, and again for the same request: after a retry, or when the API server repeats a write.
 *
 * Handlers share the event loop with the sessions. One that computes for long keeps pings and all other calls waiting: see README.md
 * on worker threads.
 */
export type Handler<T extends object = KubernetesObject> = (request: Request<T>) => Awaitable<Decision>;

/** Handlers for each operation, whose objects are there. An operation without one is allowed. */
export interface Handlers<T extends object = KubernetesObject> {
  /** Judges an object that is created. */
  readonly create?: (request: CreateRequest<T>) => Awaitable<Decision>;
  /** Judges a change of an object. */
  readonly update?: (request: UpdateRequest<T>) => Awaitable<Decision>;
  /** Judges the end of an object. */
  readonly delete?: (request: DeleteRequest<T>) => Awaitable<Decision>;
}

/**
 * Initializer completes an object before it is created. It returns the object as it should be, which may be the one that it was given
 * and has changed, or a decision: `deny` for an object that must not be created. It throws as a handler does. It is called again for the
 * same object, as it was before, when the replica that had it is lost.
 */
export type Initializer<T extends object = KubernetesObject> = (
  object: T,
  request: Request<T>,
) => Awaitable<T | Decision>;

/**
 * ReadyCheck returns when the hook can judge requests, for example when caches are filled, and throws when it cannot. The message of
 * a HandlerError tells the operator why. It has 5 s, until `signal` aborts.
 */
export type ReadyCheck = (signal: AbortSignal) => void | Promise<void>;

/** What else can be said of a hook. */
export interface HookOptions {
  /** A new hook gets its first call once this has returned. Without it a hook is ready as soon as the host is connected. */
  readonly ready?: ReadyCheck;
}

/** What else can be said of a mutating hook. */
export interface MutateOptions extends HookOptions {
  /**
   * Agrees to calls whose verdicts may be discarded: the dispatcher may then ask the hook before the hooks in front of it have answered.
   * Only for handlers without side effects.
   */
  readonly speculate?: boolean;
}

/** Hook is the registration for a name and stage. */
export interface Hook extends MutateOptions {
  readonly name: string;
  readonly stage: Stage;
  readonly handler: Handler<never>;
}

/** The documents that the handler of an operation gets. */
const DOCUMENTS = { create: ["object"], update: ["object", "oldObject"], delete: ["oldObject"] } as const;

/** handlerOf is the handler of what an author has registered. It throws a HostError if that is none. */
export function handlerOf<T extends object>(given: Handler<T> | Handlers<T>): Handler<T> {
  if (typeof given === "function") {
    return given;
  }
  const operations = Object.keys(DOCUMENTS) as (keyof Handlers)[];
  const known = operations.map((operation) => given?.[operation]).filter((handler) => handler !== undefined);
  const strays = Object.entries(given ?? {}).filter(([name, f]) => typeof f === "function" && !(name in DOCUMENTS));
  if (known.length === 0 || strays.length > 0 || known.some((handler) => typeof handler !== "function")) {
    throw new HostError("a handler is a function, or an object of functions create, update and delete");
  }
  return (request) => {
    const operation = request.operation.toLowerCase() as keyof Handlers;
    const handler = Object.hasOwn(DOCUMENTS, operation) ? given[operation] : undefined;
    if (!handler) {
      return allow();
    }
    for (const document of DOCUMENTS[operation]) {
      if (request[document] === undefined) {
        throw new HandlerError(`the request to ${operation} came without its ${document}`);
      }
    }
    return (handler as Handler<T>).call(given, request);
  };
}

/** initializing is the handler of an initializer: it decides by the difference that the initializer makes. */
export function initializing<T extends object>(initializer: Initializer<T>): Handler<T> {
  return async (request) => {
    const { object } = request;
    if (!object) {
      throw new HandlerError("the request has no object to be initialized: it creates none");
    }
    const initialized: unknown = await initializer(object, request);
    if (initialized instanceof Error) {
      throw initialized;
    }
    if (typeof initialized !== "object" || initialized === null) {
      throw new HandlerError("the initializer returned no object");
    }
    return isDecision(initialized) ? initialized : difference(request, initialized);
  };
}

/** An object of Kubernetes has a kind, and a decision has none. */
function isDecision(value: object): value is Decision {
  return "allowed" in value && typeof value.allowed === "boolean" && !("kind" in value);
}

/** The stage in the contract. */
export function wireStage(stage: Stage): WireStage {
  return WireStage[stage.toUpperCase() as "MUTATE"];
}

/** word is a value of an enumeration of the contract, for people. */
export function word<T extends string>(names: Readonly<Record<number, string>>, value: number): T {
  return (names[value] ?? String(value)).toLowerCase() as T;
}
