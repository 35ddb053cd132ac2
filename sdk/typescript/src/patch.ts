import jsonpatch from "fast-json-patch";
import type { Allowed, Extras } from "./decision.js";
import { HandlerError } from "./error.js";
import type { Request } from "./request.js";

/** One operation of a JSON Patch (RFC 6902). Paths are JSON pointers: `/metadata/labels/app.example.com~1name`. */
export type Operation =
  | { readonly op: "add" | "replace" | "test"; readonly path: string; readonly value: unknown }
  | { readonly op: "remove"; readonly path: string }
  | { readonly op: "move" | "copy"; readonly path: string; readonly from: string };

/** patch allows the write and changes the object by a JSON Patch, given as operations or in JSON. */
export function patch(operations: readonly Operation[] | string | Uint8Array, extras: Extras = {}): Allowed {
  if (typeof operations !== "string" && !isBytes(operations)) {
    return operations.length === 0 ? { ...extras, allowed: true } : encoded(JSON.stringify(operations), extras);
  }
  return encoded(operations, extras);
}

/**
 * difference allows the write and changes the object of the request to `object`; what `object` lacks is removed. The patch is the
 * difference between what the API server sent and `object`.
 *
 * Throws a HandlerError if the request has no object, or if the patch would hold an integer beyond 2^53: JavaScript has rounded it.
 * Integers that do not change are in no patch, and stay what they are.
 */
export function difference<T extends object>(request: Request<T>, object: T, extras: Extras = {}): Allowed {
  const after = JSON.parse(JSON.stringify(object)) as T;
  const operations = jsonpatch.compare(request.copyObject(), after) as Operation[];
  for (const operation of operations) {
    if ("value" in operation && isRounded(operation.value)) {
      throw new HandlerError(`the patch of ${operation.path} holds an integer that JavaScript has rounded`);
    }
  }
  return patch(operations, extras);
}

/** change allows the write and changes the object of the request: `edit` gets a copy of it to write to. See {@link difference}. */
export function change<T extends object>(request: Request<T>, edit: (object: T) => void, extras: Extras = {}): Allowed {
  const object = request.copyObject();
  edit(object);
  return difference(request, object, extras);
}

function encoded(json: string | Uint8Array, extras: Extras): Allowed {
  return { ...extras, allowed: true, patch: typeof json === "string" ? new TextEncoder().encode(json) : json };
}

function isBytes(value: unknown): value is Uint8Array {
  return value instanceof Uint8Array;
}

/** isRounded reports whether a JSON value holds an integer beyond 2^53. */
function isRounded(value: unknown): boolean {
  if (typeof value === "object" && value !== null) {
    return Object.values(value).some(isRounded);
  }
  return typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
}
