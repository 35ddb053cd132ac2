/** What is in a verdict: outcomes of calls, and how they are made to fit what a dispatcher takes. Pure. */

import { create, toBinary } from "@bufbuild/protobuf";
import { AdmissionResponseSchema } from "../gen/portcullis/admission/v1/admission_pb.js";
import { HandlerErrorSchema, RefusedSchema, type Verdict, VerdictSchema } from "../gen/portcullis/host/v1/host_pb.js";
import { MAX_ERROR_BYTES } from "../limits.js";

/** How a call ended. */
export type Outcome = Verdict["outcome"];

/** Bounds what a frame holds beside its verdict. */
export const FRAME_OVERHEAD = 16;

const CUT_OFF = " ... (cut)";

/** refused says that a handler was never started. */
export function refused(reason: string): Outcome {
  return { case: "refused", value: create(RefusedSchema, { reason }) };
}

/** failure says that a handler gave no verdict. */
export function failure(message: string, panicked = false): Outcome {
  const text = shorten(message.toWellFormed(), MAX_ERROR_BYTES);
  return { case: "error", value: create(HandlerErrorSchema, { message: text, panicked }) };
}

/**
 * encodeVerdict encodes a verdict in at most `limit` bytes, with its frame. It throws nothing: a denial that cannot be encoded becomes a
 * bare one, any other verdict a failure.
 */
export function encodeVerdict(verdict: Verdict, limit: number): Uint8Array {
  try {
    const encoded = toBinary(VerdictSchema, verdict);
    const size = encoded.length + FRAME_OVERHEAD;
    return size <= limit ? encoded : toBinary(VerdictSchema, fit(verdict, size, limit));
  } catch {
    return toBinary(VerdictSchema, bare(verdict));
  }
}

function bare({ callId, hookIndex, outcome }: Verdict): Verdict {
  const status = { status: "Failure", reason: "Forbidden", code: 403 };
  const left: Outcome = isDenial(outcome)
    ? { case: "response", value: create(AdmissionResponseSchema, { status }) }
    : failure("the verdict cannot be encoded");
  return create(VerdictSchema, { callId, hookIndex, outcome: left });
}

function isDenial(outcome: Outcome): outcome is Extract<Outcome, { case: "response" }> {
  return outcome.case === "response" && !outcome.value.allowed;
}

/**
 * fit makes a verdict small enough. A denial stays a denial: it loses all but its message, then the end of the message. Any other
 * verdict becomes a failure.
 */
function fit(verdict: Verdict, size: number, limit: number): Verdict {
  const { callId, hookIndex, queueUs, handleUs, outcome } = verdict;
  const small = create(VerdictSchema, { callId, hookIndex, queueUs, handleUs });
  if (!isDenial(outcome)) {
    small.outcome = failure(`a verdict of ${size} bytes is larger than the ${limit} that the dispatcher takes`);
    return small;
  }
  const status = { status: "Failure", message: "", code: outcome.value.status?.code ?? 0 };
  small.outcome = { case: "response", value: create(AdmissionResponseSchema, { status }) };
  // The lengths of the nested messages grow with the text.
  const remaining = limit - toBinary(VerdictSchema, small).length - 2 * FRAME_OVERHEAD;
  status.message = shorten(outcome.value.status?.message ?? "", remaining);
  small.outcome = { case: "response", value: create(AdmissionResponseSchema, { status }) };
  return small;
}

/** shorten cuts text to at most `limit` bytes of UTF-8, between characters. */
export function shorten(text: string, limit: number): string {
  const encoded = Buffer.from(text);
  if (encoded.length <= limit) {
    return text;
  }
  let cut = limit - CUT_OFF.length;
  if (cut <= 0) {
    return "";
  }
  while (cut > 0 && ((encoded[cut] ?? 0) & 0xc0) === 0x80) {
    cut--;
  }
  return encoded.toString("utf8", 0, cut) + CUT_OFF;
}
