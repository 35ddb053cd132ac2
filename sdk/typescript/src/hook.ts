import type { Decision } from "./decision.js";
import { Stage } from "./gen/portcullis/admission/v1/admission_pb.js";
import type { HandlerContext } from "./invocation.js";
import type { KubernetesObject, Request, StageName } from "./request.js";

/**
 * Handler judges one request for one hook. It returns a decision, or throws when it cannot judge. It is called again while earlier
 * calls still wait, and again for the same request: after a retry, or when the API server repeats a write.
 *
 * Handlers share the event loop with the sessions. One that computes for long keeps pings and all other calls waiting: see README.md
 * on worker threads.
 */
export type Handler<T extends object = KubernetesObject> = (
  request: Request<T>,
  context: HandlerContext,
) => Decision | Promise<Decision>;

/**
 * ReadyCheck returns when the hook can judge requests, for example when caches are filled, and throws when it cannot. The message of
 * a HandlerError tells the operator why. It has 5 s, until `signal` aborts.
 */
export type ReadyCheck = (signal: AbortSignal) => void | Promise<void>;

/** What else can be said of a hook. */
export interface HookOptions {
  /**
   * Agrees to calls whose verdicts may be discarded: the dispatcher may then ask a mutating hook before the hooks in front of it
   * have answered. Only for handlers without side effects.
   */
  readonly speculate?: boolean;
  /** A new hook gets its first call once this has returned. Without it a hook is ready as soon as the host is connected. */
  readonly ready?: ReadyCheck;
}

/** Hook is the registration for a name and stage. */
export interface Hook extends HookOptions {
  readonly name: string;
  readonly stage: StageName;
  readonly handler: Handler;
}

/** The stage in the contract. */
export function stageOf(name: StageName): Stage {
  return { initialize: Stage.INITIALIZE, mutate: Stage.MUTATE, validate: Stage.VALIDATE }[name];
}

/** The stage for people. */
export function stageName(stage: Stage): string {
  return (Stage[stage] ?? String(stage)).toLowerCase();
}
