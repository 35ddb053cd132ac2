import { hookKey } from "./core/calls.js";
import { deferred } from "./deferred.js";
import { Stage as WireStage } from "./gen/portcullis/admission/v1/admission_pb.js";
import {
  type DispatcherDrain,
  State,
  type Welcome,
  type HookState as WireState,
} from "./gen/portcullis/host/v1/host_pb.js";
import { word } from "./hook.js";
import { MAX_HOOK_STATES } from "./limits.js";
import type { Logger } from "./logger.js";
import type { Stage } from "./request.js";
import type { Session, SessionListener } from "./session.js";

/** How a hook stands with a dispatcher. It gets calls when it is `in_rotation`. */
export type HookState = "unknown_hook" | "not_authorized" | "pending" | "in_rotation" | "removing" | "removed";

/** A dispatcher's answer to the offer of a hook. */
export interface HookStatus {
  readonly name: string;
  readonly stage: Stage;
  /** Clusters for which the hook is in this state; none means all. */
  readonly clusters: readonly string[];
  readonly state: HookState;
  /** What to do about it. */
  readonly message: string;
}

/** A session that a dispatcher has accepted. */
export interface SessionStatus {
  /** Id of the session. */
  readonly id: string;
  /** Id of the dispatcher's process. */
  readonly dispatcher: string;
  /** Digest of the configuration that the dispatcher named last. */
  readonly revision: string;
  /** True when the dispatcher sends no new calls. */
  readonly leaving: boolean;
  /** The states that the dispatcher reported, in no order. */
  readonly hooks: readonly HookStatus[];
  /** Frames of types that this SDK does not know. */
  readonly ignoredFrames: number;
}

/** How a host stands with its dispatchers. */
export interface Status {
  /** The sessions, by the ids of their dispatchers. */
  readonly sessions: readonly SessionStatus[];
}

interface Noted {
  id: string;
  dispatcher: string;
  revision: string;
  leaving: boolean;
  readonly hooks: Map<string, HookStatus>;
}

/** Board collects and logs the states that dispatchers report on the sessions. */
export class Board implements SessionListener {
  readonly #logger: Logger;
  readonly #ready = deferred();
  readonly #sessions = new Map<Session, Noted>();
  readonly #logged = new Map<string, HookStatus>(); // The state of each hook that was logged last, of any session.
  #waiting: Set<string> | undefined; // For the rotation; undefined before expect.

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Resolves once every expected hook was in rotation. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** expect sets the hooks that make the host ready. Only the first call counts. */
  expect(hooks: Iterable<string>): void {
    this.#waiting ??= new Set(hooks);
  }

  /** Status now. */
  status(): Status {
    const sessions = [...this.#sessions].map(([session, { hooks, ...noted }]) => {
      return { ...noted, hooks: [...hooks.values()], ignoredFrames: session.ignoredFrames };
    });
    return { sessions: sessions.sort((a, b) => (a.dispatcher < b.dispatcher ? -1 : 1)) };
  }

  welcomed(session: Session, w: Welcome): void {
    let noted = this.#sessions.get(session);
    if (!noted) {
      noted = { id: "", dispatcher: "", revision: "", leaving: false, hooks: new Map() };
      this.#sessions.set(session, noted);
      this.#logger.info({ dispatcher: w.dispatcherId, session: w.sessionId }, "session opened");
    }
    noted.id = w.sessionId;
    noted.dispatcher = w.dispatcherId;
    noted.revision = w.revision;
    for (const state of w.hooks) {
      this.#note(noted, state);
    }
  }

  hookChanged(session: Session, state: WireState): void {
    const noted = this.#sessions.get(session);
    if (noted) {
      this.#note(noted, state);
    }
  }

  leaving(session: Session, _drain: DispatcherDrain): void {
    const noted = this.#sessions.get(session);
    if (noted) {
      noted.leaving = true;
    }
  }

  ended(session: Session): void {
    this.#sessions.delete(session);
  }

  #note(noted: Noted, wire: WireState): void {
    const { name, clusters, message } = wire;
    const next = {
      name,
      stage: word<Stage>(WireStage, wire.stage),
      clusters,
      state: word<HookState>(State, wire.state),
      message,
    };
    noted.revision = wire.revision || noted.revision;
    replace(noted.hooks, next);
    if (replace(this.#logged, next)) {
      this.#log(noted.dispatcher, next);
    }
    if (next.state === "in_rotation" && this.#waiting?.delete(hookKey(name, wire.stage)) && this.#waiting.size === 0) {
      this.#ready.resolve();
    }
  }

  /** A state in which the hook gets no calls is a warning. */
  #log(dispatcher: string, h: HookStatus): void {
    const level = h.state === "unknown_hook" || h.state === "not_authorized" ? "warn" : "info";
    const { name: hook, stage, state, message, clusters } = h;
    const more = {
      ...(message === "" ? {} : { explanation: message }),
      ...(clusters.length === 0 ? {} : { clusters }),
    };
    this.#logger[level]({ hook, stage, state, dispatcher, ...more }, "hook changed");
  }
}

/** replace replaces the state of a hook for the same clusters, and reports whether it changed. */
function replace(states: Map<string, HookStatus>, next: HookStatus): boolean {
  const key = JSON.stringify([next.name, next.stage, next.clusters]);
  const before = states.get(key);
  if (!before && states.size >= MAX_HOOK_STATES) {
    return false;
  }
  states.set(key, next);
  return before?.state !== next.state || before.message !== next.message;
}
