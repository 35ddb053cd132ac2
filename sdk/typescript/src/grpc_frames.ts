/** The length-prefixed messages of gRPC: a byte of flags, four bytes of length, the message. */

const HEAD = 5;

/** The status of a call that went well. */
export const OK = 0;

/** The names of all, by number. */
const CODES = (
  "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED " +
  "FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split(" ");

/** prefix returns what comes before a message. */
export function prefix(message: Uint8Array): Buffer {
  const head = Buffer.alloc(HEAD);
  head.writeUInt32BE(message.length, 1);
  return head;
}

/** statusText is a status for people: `PERMISSION_DENIED: no grant`. */
export function statusText(code: number, encodedMessage: string): string {
  const name = CODES[code] ?? `status ${code}`;
  return encodedMessage === "" ? name : `${name}: ${decodeMessage(encodedMessage)}`;
}

function decodeMessage(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // Not as gRPC says: as it is.
  }
}

/** Splitter finds the messages in the data of a stream. */
export class Splitter {
  readonly #limit: number;
  #parts: Buffer[] = [];
  #have = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** add takes data as it comes. */
  add(data: Buffer): void {
    this.#parts.push(data);
    this.#have += data.length;
  }

  /** next removes the next message that is whole; undefined if there is none. It throws if one is too large or compressed. */
  next(): Buffer | undefined {
    if (this.#have < HEAD) {
      return undefined;
    }
    const head = this.#first(HEAD);
    if (head[0] !== 0) {
      throw new Error("a frame is compressed, although this host takes no compression");
    }
    const length = head.readUInt32BE(1);
    if (length > this.#limit) {
      throw new Error(`a frame has ${length} bytes, this host takes ${this.#limit}`);
    }
    if (this.#have < HEAD + length) {
      return undefined;
    }
    const whole = this.#first(HEAD + length);
    this.#have -= HEAD + length;
    this.#parts[0] = whole.subarray(HEAD + length);
    return whole.subarray(HEAD, HEAD + length);
  }

  /** The first part, made at least `size` bytes long. It joins parts as often as their sum doubles. */
  #first(size: number): Buffer {
    const [first] = this.#parts;
    if (first && first.length >= size) {
      return first;
    }
    const joined = Buffer.concat(this.#parts, this.#have);
    this.#parts = [joined];
    return joined;
  }
}
