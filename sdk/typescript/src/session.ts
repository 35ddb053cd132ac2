import { create } from "@bufbuild/protobuf";
import type { Budget, BudgetMember } from "./budget.js";
import type { Clock } from "./clock.js";
import { type Call, hookKey, STAGES } from "./core/calls.js";
import { type Action, SessionCore } from "./core/session.js";
import type { Outcome } from "./core/verdict.js";
import { deferred } from "./deferred.js";
import { CutOffError, HostError, publicText } from "./error.js";
import {
  type DispatcherDrain,
  type Hello,
  HelloSchema,
  type HookState,
  type Probe,
  type Welcome,
} from "./gen/portcullis/host/v1/host_pb.js";
import type { Hook } from "./hook.js";
import { type CallTimes, Invocation } from "./invocation.js";
import { MAX_OUTBOX, PROBE_TIMEOUT } from "./limits.js";
import type { Logger } from "./logger.js";
import { lazyRequest } from "./request.js";
import type { Runner } from "./runner.js";
import type { OpenStream, Stream, StreamEvents } from "./stream.js";

/** What a session tells about its dispatcher. */
export interface SessionListener {
  welcomed(session: Session, welcome: Welcome): void;
  hookChanged(session: Session, state: HookState): void;
  leaving(session: Session, drain: DispatcherDrain): void;
  ended(session: Session): void;
}

/** What the sessions of a host share. */
export interface SessionParts {
  readonly hello: Hello; // Without the share.
  readonly hooks: ReadonlyMap<string, Hook>;
  readonly drainTimeout: number;
  readonly budget: Budget;
  readonly runner: Runner;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Session is the shell around a SessionCore: it moves frames, keeps the timer and starts handlers. */
export class Session implements StreamEvents, BudgetMember {
  readonly #parts: SessionParts;
  readonly #listener: SessionListener;
  readonly #core: SessionCore;
  readonly #running = new Map<Call, Invocation>();
  readonly #ending = deferred();
  #stream: Stream | undefined;
  #writable = true;
  #paused = false;
  #closed = false; // Our side of the stream.
  #over = false;
  #flushing = false;
  #timer: { at: number; stop: () => void } | undefined;

  constructor(parts: SessionParts, listener: SessionListener) {
    this.#parts = parts;
    this.#listener = listener;
    parts.budget.add(this);
    const hello = create(HelloSchema, { ...parts.hello, maxOutstanding: parts.budget.share });
    this.#core = new SessionCore(parts.clock.now(), { hello, drainTimeout: parts.drainTimeout });
  }

  /** Whether the dispatcher sent anything after its welcome. */
  get useful(): boolean {
    return this.#core.useful;
  }

  /** How many frames of unknown types came. */
  get ignoredFrames(): number {
    return this.#core.ignored;
  }

  /** serve serves until the stream ends, and rejects if that is not clean. When `stop` aborts the session drains. */
  async serve(open: OpenStream, stop: AbortSignal): Promise<void> {
    const leave = () => this.#step((core, now) => core.drain(now));
    try {
      this.#stream = open(this);
      stop.addEventListener("abort", leave);
      if (stop.aborted) {
        leave();
      }
      this.#flush();
      this.#schedule();
      await this.#ending.promise;
    } finally {
      stop.removeEventListener("abort", leave);
      this.#close();
    }
  }

  /** frame takes a frame of the dispatcher. Not for callers other than the stream. */
  frame(encoded: Uint8Array): void {
    this.#step((core, now) => core.frame(now, encoded));
    this.#throttle();
  }

  /** writable goes on sending. Not for callers other than the stream. */
  writable(): void {
    this.#writable = true;
    this.#flush();
    this.#throttle();
  }

  /** ended ends the session. Not for callers other than the stream. */
  ended(error?: Error): void {
    if (error) {
      this.#ending.reject(error);
    } else {
      this.#ending.resolve();
    }
  }

  /** shareChanged announces the share of the budget. */
  shareChanged(): void {
    this.#step((core) => core.credit(this.#parts.budget.share));
  }

  /** Changes the state, sends, and does what has to be done. */
  #step(change: (core: SessionCore, now: number) => Action[]): void {
    if (this.#over) {
      return;
    }
    const actions = change(this.#core, this.#parts.clock.now());
    this.#flush();
    this.#schedule();
    this.#start(actions);
    for (const action of actions) {
      this.#do(action);
    }
  }

  #do(action: Action): void {
    switch (action.do) {
      case "welcome":
        this.#listener.welcomed(this, action.welcome);
        return;
      case "hookState":
        this.#listener.hookChanged(this, action.state);
        return;
      case "leaving":
        this.#parts.budget.remove(this);
        this.#listener.leaving(this, action.drain);
        return;
      case "cancel":
        this.#running.get(action.call)?.abort("the dispatcher cancelled the call");
        return;
      case "probe":
        void this.#probe(action.probe);
        return;
      case "end":
        this.#ending.reject(new (action.cutOff ? CutOffError : HostError)(action.reason));
        this.#close();
        return;
      case "start":
    }
  }

  #start(actions: readonly Action[]): void {
    const started: Invocation[] = [];
    let last: { call: Call; request: Invocation["request"] } | undefined;
    for (const action of actions) {
      const hook = action.do === "start" && this.#hookOf(action.call);
      if (action.do !== "start" || !hook) {
        continue;
      }
      const { call } = action;
      // The hooks of a review share its request.
      const shared = last?.call.review === call.review ? last.request : lazyRequest(call.review.request);
      last = { call, request: shared };
      const invocation = new Invocation(call, hook, shared, this.#parts.clock, (outcome, times) =>
        this.#finish(call, outcome, times),
      );
      this.#running.set(call, invocation);
      started.push(invocation);
    }
    this.#parts.runner.add(started);
  }

  #hookOf(call: Call): Hook | undefined {
    return this.#parts.hooks.get(hookKey(call.hook.name, call.hook.stage));
  }

  /** Takes a verdict. It is sent with those of the other handlers that return in this turn of the event loop. */
  #finish(call: Call, outcome: Outcome, times: CallTimes): void {
    this.#running.delete(call);
    if (this.#over) {
      return;
    }
    this.#core.finished(this.#parts.clock.now(), call, outcome, times);
    this.#schedule();
    if (!this.#flushing) {
      this.#flushing = true;
      this.#parts.clock.soon(() => {
        this.#flushing = false;
        this.#flush();
      });
    }
  }

  #flush(): void {
    while (this.#stream && this.#writable && !this.#closed) {
      const frame = this.#core.takeFrame();
      if (frame) {
        this.#writable = this.#stream.send(frame);
      } else if (this.#core.finishing) {
        this.#closed = true;
        this.#stream.closeSend();
      } else {
        return;
      }
    }
  }

  /** A dispatcher that does not read is not read from either. */
  #throttle(): void {
    const behind = this.#core.waiting > MAX_OUTBOX;
    if (behind === this.#paused || this.#over) {
      return;
    }
    this.#paused = behind;
    if (behind) {
      this.#stream?.pause();
    } else {
      this.#stream?.resume();
    }
  }

  /** Sees to it that tick is called in time. A timer that is early is left: tick finds nothing then. */
  #schedule(): void {
    const { clock } = this.#parts;
    const at = this.#core.wake();
    if (this.#over || !Number.isFinite(at) || (this.#timer && this.#timer.at <= at)) {
      return;
    }
    this.#timer?.stop();
    const stop = clock.after(at - clock.now(), () => {
      // A busy event loop may be late for frames that have come: they are read first.
      clock.soon(() => {
        this.#timer = undefined;
        this.#step((core, now) => core.tick(now));
      });
    });
    this.#timer = { at, stop };
  }

  async #probe(probe: Probe): Promise<void> {
    const notReady = await this.#notReady(probe.hook);
    this.#step((core) => core.probed(probe.seq, notReady));
  }

  /** Why the hooks of a name are not ready; undefined if they are. */
  async #notReady(name: string): Promise<string | undefined> {
    const { clock, hooks, logger } = this.#parts;
    const late = new AbortController();
    const timeout = deferred<never>();
    late.signal.onabort = () => timeout.reject(late.signal.reason);
    const stop = clock.after(PROBE_TIMEOUT, () =>
      late.abort(new DOMException("the probe took too long", "TimeoutError")),
    );
    try {
      for (const stage of STAGES) {
        await Promise.race([hooks.get(hookKey(name, stage))?.ready?.(late.signal), timeout.promise]);
      }
      return undefined;
    } catch (error) {
      logger.warn({ hook: name, err: error }, "hook is not ready");
      return publicText(error, "the hook is not ready");
    } finally {
      stop();
    }
  }

  #close(): void {
    if (this.#over) {
      return;
    }
    this.#over = true;
    this.#timer?.stop();
    this.#parts.budget.remove(this);
    this.#stream?.cancel();
    for (const invocation of this.#running.values()) {
      invocation.abort("the session is lost");
    }
    this.#listener.ended(this);
  }
}
