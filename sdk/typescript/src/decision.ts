import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Outcome } from "./core/verdict.js";
import { HandlerError } from "./error.js";
import { AdmissionResponseSchema } from "./gen/portcullis/admission/v1/admission_pb.js";
import type { StageName } from "./request.js";

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
  /** HTTP status that the client gets, 400 to 599; 403 if absent. */
  readonly code?: number;
  /** Machine-readable reason; `Forbidden` with 403, else none, if absent. */
  readonly reason?: string;
  /** The fields at fault. */
  readonly causes?: readonly Cause[];
}

/** Decision is what a handler returns: {@link allow}, {@link deny}, `patch`, `patchTo` and `change` make one. */
export type Decision = Allowed | Denied;

/** The write goes on. */
export interface Allowed extends Extras {
  readonly allowed: true;
  /** A JSON Patch (RFC 6902) against exactly the bytes of the object; never of a validating hook. Empty means no change. */
  readonly patch?: Uint8Array;
}

/** The write is refused. */
export interface Denied extends DenyOptions {
  readonly allowed: false;
  /** Tells the person whose write was refused why, and what to do. */
  readonly message: string;
}

/** allow lets the write go on. */
export function allow(extras: Extras = {}): Allowed {
  return { ...extras, allowed: true };
}

/** deny refuses the write, with 403 Forbidden unless `options` says otherwise, and a message for the person who made it. */
export function deny(message: string, options: DenyOptions = {}): Denied {
  return { ...options, allowed: false, message };
}

/** outcomeOf makes a decision the outcome of a call. It throws a HandlerError if the decision is not one. */
export function outcomeOf(decision: Decision, stage: StageName): Outcome {
  const response: MessageInitShape<typeof AdmissionResponseSchema> = {
    allowed: decision.allowed,
    auditAnnotations: auditOf(decision.audit),
    warnings: decision.warnings?.map(wellFormed) ?? [],
  };
  if (!decision.allowed) {
    response.status = statusOf(decision);
  } else if (decision.patch && decision.patch.length > 0) {
    checkPatch(decision.patch, stage);
    response.patch = decision.patch;
    response.patchType = "JSONPatch";
  }
  return { case: "response", value: create(AdmissionResponseSchema, response) };
}

function statusOf(d: Denied): NonNullable<MessageInitShape<typeof AdmissionResponseSchema>["status"]> {
  const code = d.code || 403;
  const causes = d.causes?.map((cause) => ({
    field: wellFormed(cause.field),
    message: wellFormed(cause.message),
    reason: wellFormed(cause.reason ?? ""),
  }));
  return {
    status: "Failure",
    message: wellFormed(d.message),
    reason: wellFormed(d.reason || (code === 403 ? "Forbidden" : "")),
    code,
    ...(causes && causes.length > 0 ? { details: { causes } } : {}),
  };
}

/** The dispatcher applies the patch, and finds other faults. */
function checkPatch(patch: Uint8Array, stage: StageName): void {
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

function auditOf(audit: Readonly<Record<string, string>> = {}): Record<string, string> {
  return Object.fromEntries(Object.entries(audit).map(([key, value]) => [wellFormed(key), wellFormed(value)]));
}

/** One lone surrogate would fail the frame, and with it the session of every other call. */
function wellFormed(text: string): string {
  return String(text).toWellFormed();
}
