import { create } from "@bufbuild/protobuf";
import { Decoration, FORBIDDEN } from "./decoration.js";
import { causes, HandlerError, messageOf } from "./error.js";
import { type AdmissionResponse, AdmissionResponseSchema } from "./gen/portcullis/admission/v1/admission_pb.js";
import type { Stage } from "./request.js";

/** One field at fault. */
export interface Cause {
  /** Its path, for example `spec.containers[0].image`. */
  readonly field: string;
  /** For a person. */
  readonly message: string;
  /** Machine-readable, for example `FieldValueInvalid`. */
  readonly reason?: string;
}

/** What goes with every decision. */
export interface Extras {
  /** Shown to the client, one line each; 120 characters or fewer is good manners. */
  readonly warnings?: readonly string[];
  /** Added to the audit log: short keys without "/". Values are visible to all readers of that log. */
  readonly audit?: Readonly<Record<string, string>>;
}

/** What goes with a denial. */
export interface DenyOptions extends Extras {
  /** HTTP status that the client gets, 400 to 599; 403 if absent, or any other. */
  readonly code?: number;
  /** Machine-readable reason; `Forbidden` with 403, else none, if absent. */
  readonly reason?: string;
  /** The fields at fault. */
  readonly causes?: readonly Cause[];
}

/** Decision is what a handler returns: {@link allow}, {@link deny}, `change`, `difference` and `patch` make one. */
export type Decision = Allowed | Denial;

/** The write goes on. */
export interface Allowed extends Extras {
  readonly allowed: true;
  /** A JSON Patch (RFC 6902) against exactly the bytes of the object; never of a validating hook. Empty means no change. */
  readonly patch?: Uint8Array;
}

/** The write is denial. */
export interface Denial extends DenyOptions {
  readonly allowed: false;
  /** Tells the person whose write was denied why, and what to do. */
  readonly message: string;
}

/** allow lets the write go on. */
export function allow(extras: Extras = {}): Allowed {
  return { ...extras, allowed: true };
}

/**
 * deny denies the write, with 403 Forbidden unless `options` says otherwise, and a message for the person who made it. It is a denial
 * whatever it is given: other values than the types allow are sent as their texts, and what has none is left out and logged.
 */
export function deny(message: string, options: DenyOptions = {}): Denial {
  try {
    return { ...options, allowed: false, message };
  } catch {
    return { allowed: false, message }; // A getter has thrown.
  }
}

/**
 * Denied is a denial that is thrown, with what {@link deny} takes: a handler of any stage may throw it, also from deep inside, and also
 * as the `cause` of another error. It stays a denial when the time of the call is over.
 */
export class Denied extends Error {
  override readonly name: string = "Denied";
  /** The decision. */
  readonly denial: Denial;

  constructor(message: string, options: DenyOptions = {}) {
    super(messageOf(message));
    this.denial = deny(message, options);
  }
}

/**
 * denialIn is the denial that was thrown: as a {@link Denied}, also as a cause, or as what {@link deny} makes. Else undefined. A program may
 * have two copies of the package, so that the class does not decide.
 */
export function denialIn(thrown: unknown): Denial | undefined {
  for (const e of [{ denial: thrown }, ...causes(thrown)]) {
    try {
      const denial = (e as Partial<Denied>).denial;
      if (denial?.allowed === false) {
        return denial;
      }
    } catch {
      // It cannot be read.
    }
  }
  return undefined;
}

/** Judgement is a decision as it is sent. */
export interface Judgement {
  readonly response: AdmissionResponse;
  /** Names what the author gave and could not be sent. */
  readonly leftOut: readonly string[];
}

/** judgementOf makes a decision fit for the wire. It throws a HandlerError if the decision is not one; a denial always is. */
export function judgementOf(decision: Decision, stage: Stage): Judgement {
  const decoration = new Decoration();
  const { allowed } = decision; // Once: it may be a getter.
  const more = allowed ? patchOf(decision as Allowed, stage) : { status: statusOf(decision as Denial, decoration) };
  const response = create(AdmissionResponseSchema, {
    ...more,
    allowed,
    warnings: decoration.texts("warnings", () => decision.warnings),
    auditAnnotations: decoration.audit(() => decision.audit),
  });
  return { response, leftOut: [...decoration.leftOut] };
}

function statusOf(denial: Denial, decoration: Decoration) {
  const code = decoration.code(() => denial.code);
  const causes = decoration.causes(() => denial.causes);
  return {
    status: "Failure",
    message: decoration.text("message", () => denial.message),
    reason: decoration.text("reason", () => denial.reason) || (code === FORBIDDEN ? "Forbidden" : ""),
    code,
    ...(causes.length > 0 ? { details: { causes } } : {}),
  };
}

function patchOf({ patch }: Allowed, stage: Stage) {
  if (!patch || patch.length === 0) {
    return {};
  }
  checkPatch(patch, stage);
  return { patch, patchType: "JSONPatch" };
}

/** The dispatcher applies the patch, and finds other faults. */
function checkPatch(patch: Uint8Array, stage: Stage): void {
  if (stage === "validate") {
    throw new HandlerError("a validating hook returned a patch");
  }
  let operations: unknown;
  try {
    operations = JSON.parse(new TextDecoder().decode(patch));
  } catch {
    operations = undefined;
  }
  if (!Array.isArray(operations)) {
    throw new HandlerError("the patch is not a JSON Patch: want a JSON array of operations");
  }
}
