import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { OutgoingSchema } from "../gen/portcullis/sdk/v1/frames_pb.js";
import { MAX_BATCH, MAX_BATCH_BYTES } from "../limits.js";
import { FRAME_OVERHEAD } from "./verdict.js";

/** A frame of the host. */
export type Frame = NonNullable<MessageInitShape<typeof OutgoingSchema>["frame"]>;

/**
 * Outbox holds the frames that are to be sent, in order. Successive verdicts become one frame if the dispatcher takes batches; no
 * verdict waits for others to come. Pure.
 */
export class Outbox {
  #batchBytes = 0; // Size of a frame of several verdicts; 0 means one verdict a frame.
  #frames: (Frame | Uint8Array[])[] = []; // A list holds encoded verdicts.
  #lastBytes = 0; // Size of the list at the end of #frames.
  #waiting = 0;

  /** How many frames and verdicts wait. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Whether the dispatcher takes several verdicts in a frame. */
  get batches(): boolean {
    return this.#batchBytes > 0;
  }

  /** allowBatches allows several verdicts in a frame, of at most `limit` bytes. */
  allowBatches(limit: number): void {
    this.#batchBytes = Math.min(limit, MAX_BATCH_BYTES);
  }

  /** push adds a frame. */
  push(frame: Frame): void {
    this.#frames.push(frame);
    this.#waiting++;
  }

  /** pushVerdict adds an encoded verdict. */
  pushVerdict(encoded: Uint8Array): void {
    this.#waiting++;
    const last = this.#frames.at(-1);
    const grown = this.#lastBytes + encoded.length + FRAME_OVERHEAD;
    if (Array.isArray(last) && last.length < MAX_BATCH && grown + FRAME_OVERHEAD <= this.#batchBytes) {
      last.push(encoded);
      this.#lastBytes = grown;
      return;
    }
    this.#frames.push([encoded]);
    this.#lastBytes = encoded.length + FRAME_OVERHEAD;
  }

  /** take removes the first frame and returns it encoded; undefined if there is none. */
  take(): Uint8Array | undefined {
    const next = this.#frames.shift();
    if (next === undefined) {
      return undefined;
    }
    this.#waiting -= Array.isArray(next) ? next.length : 1;
    return encode(Array.isArray(next) ? verdictFrame(next) : next);
  }

  /** drop forgets all frames. */
  drop(): void {
    this.#frames = [];
    this.#waiting = 0;
  }
}

function verdictFrame(verdicts: Uint8Array[]): Frame {
  const [only] = verdicts;
  return verdicts.length === 1 && only !== undefined
    ? { case: "verdict", value: only }
    : { case: "verdicts", value: { verdicts } };
}

function encode(frame: Frame): Uint8Array {
  return toBinary(OutgoingSchema, create(OutgoingSchema, { frame }));
}
