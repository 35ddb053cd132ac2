import { MAX_DECORATIONS } from "./limits.js";

/** The least and the greatest status of an error of HTTP, and the one of a denial that names none. */
const LEAST = 400;
const GREATEST = 599;
export const FORBIDDEN = 403;

/** A field at fault, as it is sent. */
interface CauseText {
  field: string;
  message: string;
  reason: string;
}

/**
 * Decoration makes what goes with a decision fit for the wire: another value than the types allow becomes its text, and what has none is
 * left out and named. It reads by functions, since a getter may throw, and throws nothing itself: a denial must stay one. Pure.
 */
export class Decoration {
  /** Names of what was left out. */
  readonly leftOut = new Set<string>();
  #room = MAX_DECORATIONS;

  /** text is the text of anything; empty for null. */
  text(name: string, read: () => unknown): string {
    return this.#try(name, () => textOf(read() ?? "")) ?? "";
  }

  /** code is a status of HTTP's errors: 403 for none and for anything else. */
  code(read: () => unknown): number {
    return (
      this.#try("code", () => {
        const code = Number(read() || FORBIDDEN);
        if (!Number.isInteger(code) || code < LEAST || code > GREATEST) {
          throw new RangeError();
        }
        return code;
      }) ?? FORBIDDEN
    );
  }

  /** texts are the texts of several things, or of a single one. */
  texts(name: string, read: () => unknown): string[] {
    return this.#each(name, read, textOf);
  }

  /** causes are the fields at fault, given as causes or as plain texts. */
  causes(read: () => unknown): CauseText[] {
    return this.#each("causes", read, (cause) => {
      if (typeof cause !== "object" || cause instanceof Error) {
        return { field: "", message: textOf(cause), reason: "" };
      }
      const { field, message, reason } = cause as Partial<CauseText>;
      if (field === undefined && message === undefined) {
        throw new TypeError();
      }
      const text = (value: unknown) => this.text("causes", () => value);
      return { field: text(field), message: text(message), reason: text(reason) };
    });
  }

  /** audit has the texts of an object, a Map or pairs. */
  audit(read: () => unknown): Record<string, string> {
    const entries = () => {
      const values = read() ?? [];
      return typeof values !== "object" || isIterable(values) ? values : Object.entries(values);
    };
    return Object.fromEntries(
      this.#each("audit", entries, (entry) => {
        if (!Array.isArray(entry)) {
          throw new TypeError();
        }
        return [textOf(entry[0]), textOf(entry[1])] as const;
      }),
    );
  }

  /** Makes what an iterable has until it throws, or until there is enough; anything else is an item itself. */
  #each<T>(name: string, read: () => unknown, make: (value: unknown) => T): T[] {
    const made: T[] = [];
    this.#try(name, () => {
      const values = read() ?? [];
      for (const value of typeof values !== "string" && isIterable(values) ? values : [values]) {
        if (this.#room-- <= 0) {
          throw new RangeError();
        }
        this.#try(name, () => made.push(make(value)));
      }
    });
    return made;
  }

  #try<T>(name: string, read: () => T): T | undefined {
    try {
      return read();
    } catch {
      this.leftOut.add(name);
      return undefined;
    }
  }
}

/** One lone surrogate would fail the frame, and with it the session of every other call. */
function textOf(value: unknown): string {
  if (value === undefined || value === null) {
    throw new TypeError();
  }
  return String(value instanceof Error ? value.message : value).toWellFormed();
}

function isIterable(value: unknown): value is Iterable<unknown> {
  return typeof (value as Partial<Iterable<unknown>>)[Symbol.iterator] === "function";
}
