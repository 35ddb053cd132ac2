import type { Clock } from "./clock.js";
import { type Call, REFUSED_CANCELLED, REFUSED_NO_TIME } from "./core/calls.js";
import type { Outcome } from "./core/verdict.js";
import type { AdmissionRequest } from "./gen/portcullis/admission/v1/admission_pb.js";
import type { Hook } from "./hook.js";
import type { CallTime } from "./request.js";

/** How long a call waited for its handler, and how long the handler took. */
export interface CallTimes {
  readonly queueUs: number;
  readonly handleUs: number;
}

/** Invocation is one handler's run for one verdict. Its signal and timer are made only if something asks for them. */
export class Invocation implements CallTime {
  readonly call: Call;
  readonly hook: Hook;
  /** The request; it throws if that cannot be decoded. */
  readonly request: () => AdmissionRequest;
  readonly #clock: Clock;
  readonly #done: (outcome: Outcome, times: CallTimes) => void;
  #aborted: DOMException | undefined;
  #controller: AbortController | undefined;
  #stopTimer: (() => void) | undefined;

  constructor(
    call: Call,
    hook: Hook,
    request: () => AdmissionRequest,
    clock: Clock,
    done: (outcome: Outcome, times: CallTimes) => void,
  ) {
    this.call = call;
    this.hook = hook;
    this.request = request;
    this.#clock = clock;
    this.#done = done;
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.isOver()) {
        this.#controller.abort(this.#aborted);
      } else {
        this.#stopTimer = this.#clock.after(this.call.deadline - this.#clock.now(), () => this.#expire());
      }
    }
    return this.#controller.signal;
  }

  get remainingMs(): number {
    return Math.max(0, this.call.deadline - this.#clock.now());
  }

  /** Whether the deadline has passed, or the call was cancelled. */
  isOver(): boolean {
    if (!this.#aborted && this.#clock.now() >= this.call.deadline) {
      this.#aborted = new DOMException("the time of the call is over", "TimeoutError");
    }
    return this.#aborted !== undefined;
  }

  /** abort says that the verdict is no longer wanted. */
  abort(why: string): void {
    this.#aborted ??= new DOMException(why, "AbortError");
    this.#controller?.abort(this.#aborted);
  }

  /** Why a call that is over was not started. */
  get refusal(): string {
    return this.#aborted?.name === "TimeoutError" ? REFUSED_NO_TIME : REFUSED_CANCELLED;
  }

  /** finish hands over how the call ended. */
  finish(outcome: Outcome, times: CallTimes): void {
    this.#stopTimer?.();
    this.#done(outcome, times);
  }

  /** A timer may fire a little early. */
  #expire(): void {
    if (this.isOver()) {
      this.#controller?.abort(this.#aborted);
    } else {
      this.#stopTimer = this.#clock.after(this.call.deadline - this.#clock.now(), () => this.#expire());
    }
  }
}
