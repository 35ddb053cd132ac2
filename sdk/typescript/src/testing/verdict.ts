import { isDeepStrictEqual } from "node:util";
import type { Operation } from "../changes.js";
import type { Cause } from "../decision.js";
import type { AdmissionResponse } from "../gen/portcullis/admission/v1/admission_pb.js";

/** What a hook answers. */
export interface Verdict<T extends object = object> {
  /** Whether the write goes on. */
  readonly allowed: boolean;
  /** HTTP status of a denial; 0 if the write is allowed. */
  readonly code: number;
  /** Message of a denial; else empty. */
  readonly message: string;
  /** Machine-readable reason of a denial; else empty. */
  readonly reason: string;
  /** The fields at fault. */
  readonly causes: readonly Cause[];
  /** What the client is shown. */
  readonly warnings: readonly string[];
  /** What is added to the audit log. */
  readonly audit: Readonly<Record<string, string>>;
  /** What the hook changes; empty for nothing. */
  readonly patch: readonly Operation[];
  /** The object with the patch applied; undefined on a denial, and without an object. */
  readonly object: T | undefined;
}

/** verdictOf is a response for a test. It throws if the patch does not fit the object. */
export function verdictOf<T extends object>(response: AdmissionResponse, raw: Uint8Array | undefined): Verdict<T> {
  const { allowed, warnings, auditAnnotations, status } = response;
  const patch = response.patch.length === 0 ? [] : (parse(response.patch) as Operation[]);
  return {
    allowed,
    code: status?.code ?? 0,
    message: status?.message ?? "",
    reason: status?.reason ?? "",
    causes: (status?.details?.causes ?? []).map(({ field, message, reason }) => ({ field, message, reason })),
    warnings,
    audit: { ...auditAnnotations },
    patch,
    object: allowed && raw ? (patched(parse(raw), patch) as T) : undefined,
  };
}

function parse(json: Uint8Array): unknown {
  return JSON.parse(new TextDecoder().decode(json));
}

type Place = readonly [parent: unknown, key: string];

/** patched is a document with a JSON Patch (RFC 6902) applied. It throws if the patch does not fit. */
export function patched(document: unknown, patch: readonly Operation[]): unknown {
  const holder = { document: structuredClone(document) };
  const place = (pointer: string): Place => {
    const keys = ["document", ...pointer.split("/").slice(1)].map((key) =>
      key.replaceAll("~1", "/").replaceAll("~0", "~"),
    );
    return [keys.slice(0, -1).reduce<unknown>((value, key) => valueAt([value, key]), holder), keys.at(-1) ?? ""];
  };
  for (const operation of structuredClone(patch)) {
    const at = place(operation.path);
    switch (operation.op) {
      case "add":
        put(at, operation.value);
        break;
      case "remove":
        take(at);
        break;
      case "replace":
        take(at);
        put(at, operation.value);
        break;
      case "move":
        put(at, take(place(operation.from)));
        break;
      case "copy":
        put(at, structuredClone(valueAt(place(operation.from))));
        break;
      case "test":
        if (!isDeepStrictEqual(valueAt(at), operation.value)) {
          throw misfit(JSON.stringify(operation));
        }
    }
  }
  return holder.document;
}

function misfit(why: string): Error {
  return new Error(`the patch does not fit the object: ${why}`);
}

function valueAt([parent, key]: Place): unknown {
  const exists = Array.isArray(parent) ? /^\d+$/.test(key) : typeof parent === "object" && parent !== null;
  if (!exists || !Object.hasOwn(parent as object, key)) {
    throw misfit(`there is no ${JSON.stringify(key)}`);
  }
  return (parent as Record<string, unknown>)[key];
}

function take(place: Place): unknown {
  const value = valueAt(place);
  const [parent, key] = place;
  if (Array.isArray(parent)) {
    parent.splice(Number(key), 1);
  } else {
    delete (parent as Record<string, unknown>)[key];
  }
  return value;
}

function put([parent, key]: Place, value: unknown): void {
  if (Array.isArray(parent) && (key === "-" || (/^(0|[1-9]\d*)$/.test(key) && Number(key) <= parent.length))) {
    parent.splice(key === "-" ? parent.length : Number(key), 0, value);
  } else if (typeof parent === "object" && parent !== null && !Array.isArray(parent)) {
    (parent as Record<string, unknown>)[key] = value;
  } else {
    throw misfit(`there is no place for ${JSON.stringify(key)}`);
  }
}
