import type { Clock } from "./clock.js";
import { failure, type Outcome, refused } from "./core/verdict.js";
import { type Decision, denialIn, judgementOf } from "./decision.js";
import { HandlerError, isBug, messageOf, publicText } from "./error.js";
import { Mode as WireMode } from "./gen/portcullis/host/v1/host_pb.js";
import { type Hook, word } from "./hook.js";
import type { Invocation } from "./invocation.js";
import { BLOCKED, COMPLAINT_INTERVAL, SLICE } from "./limits.js";
import type { Logger } from "./logger.js";
import { type Mode, Request } from "./request.js";
import { type HandlerSpan, parentOf, type Telemetry } from "./telemetry.js";

/**
 * Runner calls handlers, at most as many at a time as it has slots, for all sessions of a host. Calls beyond that wait, within their
 * deadlines. Between handlers it lets the event loop read and write, so that pings are answered however many calls there are.
 */
export class Runner {
  #free: number;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #telemetry: Telemetry;
  readonly #queue = new Set<Invocation>(); // In order.
  readonly #complaints = new Map<Hook, { last: number; unlogged: number }>();
  #pumping = false;
  #running = 0;
  #idle: (() => void)[] = [];

  constructor(slots: number, clock: Clock, logger: Logger, telemetry: Telemetry) {
    this.#free = slots;
    this.#clock = clock;
    this.#logger = logger;
    this.#telemetry = telemetry;
  }

  /** How many handlers run. */
  get running(): number {
    return this.#running;
  }

  /** add queues calls. */
  add(calls: Iterable<Invocation>): void {
    for (const call of calls) {
      this.#queue.add(call);
    }
    this.#pumpSoon();
  }

  /** whenIdle calls `then` when no handler runs. */
  whenIdle(then: () => void): void {
    if (this.#running === 0) {
      then();
    } else {
      this.#idle.push(then);
    }
  }

  #pumpSoon(): void {
    if (!this.#pumping && this.#queue.size > 0) {
      this.#pumping = true;
      this.#clock.soon(() => this.#pump());
    }
  }

  #pump(): void {
    this.#pumping = false;
    const began = this.#clock.now();
    for (const call of this.#queue) {
      if (call.isOver()) {
        this.#refuse(call);
      } else if (this.#free === 0) {
        this.#wait(call);
      } else if (this.#clock.now() - began > SLICE) {
        break;
      } else {
        this.#queue.delete(call);
        void this.#call(call);
      }
    }
    if (this.#free > 0) {
      this.#pumpSoon();
    }
  }

  /** A call without a slot is refused when its time is over. */
  #wait(call: Invocation): void {
    call.signal.onabort ??= () => {
      if (this.#queue.has(call)) {
        this.#refuse(call);
      }
    };
  }

  #refuse(call: Invocation): void {
    this.#queue.delete(call);
    const queueUs = this.#microsecondsSince(call.call.received);
    this.#end(call, refused(call.refusal), { queueUs, handleUs: 0 });
  }

  async #call(call: Invocation): Promise<void> {
    this.#free--;
    this.#running++;
    const started = this.#clock.now();
    const outcome = await this.#handle(call, started);
    this.#free++;
    this.#running--;
    const queueUs = microseconds(started - call.call.received);
    this.#end(call, outcome, { queueUs, handleUs: this.#microsecondsSince(started) }, this.#clock.now() - started);
    this.#pumpSoon();
    if (this.#running === 0) {
      for (const then of this.#idle.splice(0)) {
        then();
      }
    }
  }

  #end(call: Invocation, outcome: Outcome, times: { queueUs: number; handleUs: number }, handleMs?: number): void {
    aside(() => this.#telemetry.called(call.hook.name, call.hook.stage, outcome, handleMs));
    call.finish(outcome, times);
  }

  /**
   * handle returns how a call ended:
   *
   *     the handler returned a decision      the decision, also when the call is over
   *     it threw a denial                    the denial, also when the call is over
   *     it threw what the engine throws      error, panicked
   *     it threw, and the call is over       cancelled
   *     it threw                             error: the text of a HandlerError, else "handler failed"
   *     it returned something else           error, with the reason
   *     the request is malformed             error, with the reason; the handler was not called
   */
  async #handle(call: Invocation, started: number): Promise<Outcome> {
    let span: HandlerSpan | undefined;
    let thrown: unknown;
    let outcome: Outcome;
    try {
      const request = requestOf(call);
      const queued = started - call.call.received;
      span = this.#telemetry.start(request, call.call.review, queued);
      const within = span;
      const decision = await decided(() =>
        within.run(() => this.#timed(call, () => call.hook.handler(request as Request<never>))),
      );
      const { response, leftOut } = judgementOf(decision, call.hook.stage);
      outcome = { case: "response", value: response };
      if (leftOut.length > 0) {
        this.#complain(call, "a part of the verdict cannot be sent", leftOut.join(", "));
      }
    } catch (error) {
      thrown = error;
      outcome = this.#failed(call, error);
    }
    aside(() => span?.end(outcome, thrown));
    return outcome;
  }

  #failed(call: Invocation, error: unknown): Outcome {
    if (isBug(error)) {
      this.#complain(call, "handler failed", error);
      return failure("handler panicked", true);
    }
    if (call.isOver()) {
      return { case: "cancelled", value: { $typeName: "portcullis.host.v1.Cancelled" } };
    }
    this.#complain(call, "handler failed", error);
    return failure(publicText(error, "handler failed"));
  }

  /** timed logs a handler that keeps the event loop for itself. */
  #timed<R>(call: Invocation, handler: () => R): R {
    const began = this.#clock.now();
    try {
      return handler();
    } finally {
      const took = this.#clock.now() - began;
      if (took >= BLOCKED) {
        const fields = { hook: call.hook.name, ms: Math.round(took) };
        aside(() => this.#logger.warn(fields, "handler blocked the event loop: use a worker thread"));
      }
    }
  }

  /** complain logs a fault of a hook, at most once in COMPLAINT_INTERVAL. */
  #complain(call: Invocation, message: string, err: unknown): void {
    const now = this.#clock.now();
    const before = this.#complaints.get(call.hook);
    if (before && now - before.last < COMPLAINT_INTERVAL) {
      before.unlogged++;
      return;
    }
    this.#complaints.set(call.hook, { last: now, unlogged: 0 });
    const { hook, stage, cluster, uid } = subjectOf(call);
    const unlogged = before?.unlogged ?? 0;
    aside(() => this.#logger.error({ hook, stage, cluster, uid, err, unlogged }, message));
  }

  #microsecondsSince(began: number): number {
    return microseconds(this.#clock.now() - began);
  }
}

/** aside does what no verdict may depend on: logs and telemetry are the author's, and what they throw is theirs to tell. */
function aside(tell: () => void): void {
  try {
    tell();
  } catch {
    // There is no other place to say so.
  }
}

function requestOf(call: Invocation): Request {
  const { hook, call: of } = call;
  const info = {
    hook: hook.name,
    stage: hook.stage,
    configuration: of.hook.configuration,
    round: of.hook.round,
    mode: word<Mode>(WireMode, of.hook.mode),
    traceparent: parentOf(of.review.traceparent, of.hook.spanId),
  };
  const request = new Request(call.request, info, call);
  try {
    void request.admission;
  } catch (cause) {
    throw new HandlerError("the dispatcher sent a request that cannot be decoded", { cause });
  }
  return request;
}

/** decided is the decision of a handler, which may also throw a denial. An error that it returns is as good as thrown. */
async function decided(handler: () => Decision | Promise<Decision>): Promise<Decision> {
  let decision: Decision | undefined;
  try {
    decision = await handler();
    if (decision instanceof Error) {
      throw decision;
    }
  } catch (error) {
    decision = denialIn(error);
    if (!decision) {
      throw error;
    }
  }
  if (typeof decision?.allowed !== "boolean") {
    throw new HandlerError("the handler returned neither a response nor an error");
  }
  return decision;
}

function subjectOf(call: Invocation): { hook: string; stage: string; cluster: string; uid: string } {
  const { name: hook, stage } = call.hook;
  try {
    const { cluster, uid } = call.request();
    return { hook, stage, cluster, uid };
  } catch (error) {
    return { hook, stage, cluster: "", uid: messageOf(error) };
  }
}

function microseconds(ms: number): number {
  return Math.min(Math.max(0, Math.round(ms * 1000)), 2 ** 32 - 1);
}
