import { setTimeout as sleep } from "node:timers/promises";
import { splitAddress } from "./address.js";
import type { Board } from "./board.js";
import { type DialChanges, DialPlan, type DialTarget, type Endpoint } from "./core/dial_plan.js";
import { CutOffError, HostError, messageOf } from "./error.js";
import type { DispatcherDrain, HookState, Welcome } from "./gen/portcullis/host/v1/host_pb.js";
import { BACKOFF_MAX, BACKOFF_MIN, RESOLVE_INTERVAL } from "./limits.js";
import type { Logger } from "./logger.js";
import { Session, type SessionListener, type SessionParts } from "./session.js";
import { explain, type Security } from "./tls.js";
import { dial } from "./transport.js";

/** What a manager needs of a host. */
export interface ManagerOptions {
  readonly dispatchers: readonly string[];
  readonly serverName: string;
  readonly tls: Security;
  readonly resolve: (host: string) => Promise<readonly string[]>;
  readonly parts: SessionParts;
  readonly board: Board;
}

/** Manager resolves the names of the dispatchers, and keeps a session to each dispatcher of the dial plan. */
export class Manager {
  readonly options: ManagerOptions;
  readonly #plan: DialPlan;
  readonly #loops = new Map<string, { stop: AbortController; done: Promise<void> }>(); // By key.
  #resolveNow = new AbortController(); // Aborted to resolve all names at once, and then replaced.
  #closed = false;
  #cutOff: CutOffError | undefined;

  constructor(options: ManagerOptions) {
    this.options = options;
    this.#plan = new DialPlan(options.dispatchers, options.serverName);
  }

  /** serve holds sessions until `stop` aborts and they have drained. It rejects if calls were cut off. */
  async serve(stop: AbortSignal): Promise<void> {
    const { parts, dispatchers } = this.options;
    await Promise.all([...new Set(dispatchers)].map((name) => this.#resolve(name, stop)));
    this.#closed = true;
    const began = Date.now();
    const inFlight = parts.runner.running;
    for (const loop of this.#loops.values()) {
      loop.stop.abort();
    }
    await Promise.all([...this.#loops.values()].map((loop) => loop.done));
    const drained = this.#cutOff === undefined;
    parts.logger.info({ drained, callsInFlight: inFlight, ms: Date.now() - began }, "host stopped");
    if (this.#cutOff) {
      throw this.#cutOff;
    }
  }

  /** change updates the dial plan, and starts and stops loops as it says. */
  change(update: (plan: DialPlan) => DialChanges): void {
    if (this.#closed) {
      return;
    }
    const { start, stop } = update(this.#plan);
    for (const key of stop) {
      this.#loops.get(key)?.stop.abort();
    }
    for (const target of start) {
      this.#start(target);
    }
  }

  /** resolveAll resolves all names at once: a dispatcher that is gone may be back at another address. */
  resolveAll(): void {
    this.#resolveNow.abort();
    this.#resolveNow = new AbortController();
  }

  /** cutOff notes a session whose calls did not finish in time. */
  cutOff(error: CutOffError): void {
    this.#cutOff = error;
  }

  #start(target: DialTarget): void {
    const stop = new AbortController();
    const done = new DispatcherLoop(target, this).run(stop.signal).then(() => {
      this.#loops.delete(target.key);
      this.change((plan) => plan.gone(target.key));
    });
    this.#loops.set(target.key, { stop, done });
  }

  /** resolve keeps the addresses of one name current. While it cannot be resolved the last addresses count. */
  async #resolve(name: string, stop: AbortSignal): Promise<void> {
    const host = splitAddress(name)?.host ?? "";
    let lastError = "";
    while (!stop.aborted) {
      const now = this.#resolveNow.signal;
      try {
        const ips = await bounded(this.options.resolve(host), RESOLVE_INTERVAL, stop);
        if (ips.length === 0) {
          throw new HostError("no addresses");
        }
        lastError = "";
        this.change((plan) => plan.resolved(name, ips));
      } catch (error) {
        if (messageOf(error) !== lastError && !stop.aborted) {
          lastError = messageOf(error);
          this.options.parts.logger.warn({ name, error: lastError }, "dispatchers cannot be resolved");
        }
      }
      await pause(RESOLVE_INTERVAL, stop, now);
    }
  }
}

/** DispatcherLoop keeps a session to one dispatcher: it dials, serves, and dials again. */
class DispatcherLoop implements SessionListener {
  readonly #target: DialTarget;
  readonly #manager: Manager;
  readonly #board: Board;
  readonly #logger: Logger;
  #at: Endpoint | undefined; // In use.
  #accepted = false; // The session in use was welcomed.
  #attempts = 0; // Since the last useful session.
  #lastError = ""; // That was logged.

  constructor(target: DialTarget, manager: Manager) {
    this.#target = target;
    this.#manager = manager;
    this.#board = manager.options.board;
    this.#logger = manager.options.parts.logger;
  }

  async run(stop: AbortSignal): Promise<void> {
    const { key, endpoints, delay } = this.#target;
    let wait = delay;
    for (let turn = 0; await pause(wait, stop); turn++) {
      const at = endpoints[turn % endpoints.length] as Endpoint;
      this.#at = at;
      this.#accepted = false;
      let error: unknown;
      try {
        await this.#serveOnce(at, stop);
      } catch (e) {
        error = e;
      }
      await this.#report(at.address, error, stop.aborted);
      this.#manager.change((plan) => plan.ended(key));
      wait = backoffDelay(this.#attempts, Math.random());
      this.#attempts++;
    }
  }

  /** Dials and holds one session. */
  async #serveOnce(at: Endpoint, stop: AbortSignal): Promise<void> {
    const { parts, tls } = this.#manager.options;
    const connection = await dial(tls, at, parts.hello.maxFrameBytes, stop);
    const session = new Session(parts, this);
    try {
      await session.serve(connection.open, stop);
    } finally {
      connection.close();
      if (session.useful) {
        this.#attempts = 0;
      }
    }
  }

  /** Logs the end of a session; of equal failures in a row, the first. */
  async #report(address: string, error: unknown, stopped: boolean): Promise<void> {
    const refused = error !== undefined && !this.#accepted && !stopped;
    const message = refused ? await explain(this.#manager.options.tls, error) : messageOf(error ?? "");
    if (error instanceof CutOffError) {
      this.#manager.cutOff(error);
      this.#logger.warn({ address, error: message }, "session drained in part");
    } else if (stopped) {
      this.#logger.debug({ address, error: message }, "session drained");
    } else if (this.#accepted) {
      this.#lastError = "";
      this.#manager.resolveAll();
      this.#logger.info({ address, error: message }, "session ended");
    } else if (error !== undefined && message !== this.#lastError) {
      this.#lastError = message;
      this.#logger.warn({ address, error: message }, "no session, trying on");
    }
  }

  welcomed(session: Session, w: Welcome): void {
    this.#accepted = true;
    this.#board.welcomed(session, w);
    this.#change((plan, at) => plan.welcomed(this.#target.key, at, w.dispatcherId, w.peers));
  }

  hookChanged(session: Session, state: HookState): void {
    this.#board.hookChanged(session, state);
  }

  leaving(session: Session, d: DispatcherDrain): void {
    this.#board.leaving(session, d);
    this.#change((plan, at) => plan.leaving(this.#target.key, at, d.peers));
  }

  ended(session: Session): void {
    this.#board.ended(session);
  }

  #change(update: (plan: DialPlan, at: Endpoint) => DialChanges): void {
    const at = this.#at;
    if (at) {
      this.#manager.change((plan) => update(plan, at));
    }
  }
}

/**
 * backoffDelay is the pause after `attempts` failures in a row: longer each time, and random by `chance`, 0 to 1, so that the hosts
 * of a dispatcher that restarts do not come back all at once.
 */
export function backoffDelay(attempts: number, chance: number): number {
  const most = Math.min(BACKOFF_MAX, 2 * BACKOFF_MIN * 2 ** attempts);
  return BACKOFF_MIN + chance * (most - BACKOFF_MIN);
}

/** bounded is the result of `work`, unless that takes too long or `stop` aborts. */
async function bounded<T>(work: Promise<T>, ms: number, stop: AbortSignal): Promise<T> {
  const over = new AbortController();
  const signal = AbortSignal.any([stop, over.signal]);
  const late = sleep(ms, undefined, { signal }).then(() => Promise.reject(new HostError("it took too long")));
  try {
    return await Promise.race([work, late]);
  } finally {
    over.abort();
  }
}

/** pause waits, and returns false if `stop` has aborted. `hurry` ends the pause early. */
async function pause(ms: number, stop: AbortSignal, hurry?: AbortSignal): Promise<boolean> {
  const signal = hurry ? AbortSignal.any([stop, hurry]) : stop;
  await sleep(ms, undefined, { signal }).catch(() => {});
  return !stop.aborted;
}
