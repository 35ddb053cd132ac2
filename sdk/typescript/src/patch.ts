import * as changes from "./changes.js";
import { type Allowed, allow, type Extras } from "./decision.js";
import { HandlerError } from "./error.js";
import type { Request } from "./request.js";

/** What else can be said of a difference. */
export interface DifferenceOptions extends Extras {
  /**
   * The object as it was before, for a model that does not write it as the API server sent it. What it has in common with the new object is
   * no change, so that members which the model drops stay, and defaults that it adds are not written.
   */
  readonly before?: object;
}

/**
 * patch allows the write and changes the object by a JSON Patch (RFC 6902), given as operations or in JSON.
 *
 * Throws a HandlerError if the operations hold a number that JSON has not, such as NaN.
 */
export function patch(operations: readonly changes.Operation[] | string | Uint8Array, extras: Extras = {}): Allowed {
  const json = Array.isArray(operations) ? JSON.stringify(plain(operations)) : operations;
  return {
    ...extras,
    allowed: true,
    patch: typeof json === "string" ? new TextEncoder().encode(json) : (json as Uint8Array),
  };
}

/**
 * difference allows the write and changes the object of the request to `object`; what `object` lacks is removed.
 *
 * Throws a HandlerError if the request has no object, if the new object holds a number that JSON has not, such as NaN, or if the patch would
 * hold an integer beyond 2^53 that JavaScript has rounded.
 * Integers that do not change are in no patch, and stay what they are.
 */
export function difference<T extends object>(
  request: Request<T>,
  object: object,
  { before, ...extras }: DifferenceOptions = {},
): Allowed {
  const raw = request.copyObject();
  const after = plain(object);
  const operations = changes.difference(raw, before ? changes.merge(raw, plain(before), after) : after);
  if (operations.length === 0) {
    return allow(extras);
  }
  checkNumbers(operations, request.rawObject);
  return patch(operations, extras);
}

/**
 * change allows the write and changes the object of the request: `edit` gets a copy of it to write to. A request without an object, such as
 * a DELETE, is allowed, and `edit` is not called. Throws a HandlerError if `edit` returns a promise: nothing waits for it. See
 * {@link difference}.
 */
export function change<T extends object>(request: Request<T>, edit: (object: T) => void, extras: Extras = {}): Allowed {
  if (!request.rawObject) {
    return allow(extras);
  }
  const object = request.copyObject();
  const edited: unknown = edit(object);
  if (edited instanceof Promise) {
    throw new HandlerError("the edit of change is async: get what it waits for before the change");
  }
  return difference(request, object, extras);
}

/** plain is what is written of an object. */
function plain(object: object): unknown {
  if (isPlain(object)) {
    return object;
  }
  const json: string | undefined = JSON.stringify(object, finite);
  if (json === undefined) {
    throw new HandlerError("the new object is no JSON");
  }
  return JSON.parse(json);
}

/** finite refuses numbers that JSON has not, and of which JSON.stringify makes null. */
function finite(name: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new HandlerError(`the new object has ${value} as ${name}: JSON has no such number`);
  }
  return value;
}

/** isPlain reports whether JSON has a value as it is. */
function isPlain(value: unknown): boolean {
  if (typeof value !== "object" || value === null) {
    return value === null || typeof value === "string" || typeof value === "boolean" || Number.isFinite(value);
  }
  const members = Array.isArray(value) ? [...value] : Object.values(value);
  return (Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype) && members.every(isPlain);
}

/** checkNumbers throws if the patch has a number that JavaScript has rounded. Others beyond 2^53 are the author's. */
function checkNumbers(operations: readonly changes.Operation[], raw: Uint8Array | undefined): void {
  let rounded: ReadonlySet<number> | undefined;
  const isRounded = (value: unknown): boolean => {
    if (typeof value === "object" && value !== null) {
      return Object.values(value).some(isRounded);
    }
    if (!Number.isInteger(value) || Number.isSafeInteger(value)) {
      return false;
    }
    rounded ??= roundedIn(new TextDecoder().decode(raw));
    return rounded.has(value as number);
  };
  for (const operation of operations) {
    if ("value" in operation && isRounded(operation.value)) {
      throw new HandlerError(`the patch of ${operation.path} holds an integer that JavaScript has rounded`);
    }
  }
}

/** roundedIn has the integers of a JSON text that JavaScript rounds, as it does. */
function roundedIn(json: string): Set<number> {
  const integers = [...json.matchAll(/(?<![\d.])-?\d{16,}(?![\d.eE])/g)].map(([digits]) => digits);
  return new Set(
    integers.filter((digits) => digits.length > 32 || BigInt(digits) !== BigInt(Number(digits))).map(Number),
  );
}
