import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  type ConnectRequest,
  ConnectRequestSchema,
  type ConnectResponse,
  ConnectResponseSchema,
} from "../../src/gen/portcullis/host/v1/host_pb.js";
import type { OpenStream, Stream, StreamEvents } from "../../src/stream.js";

/** FakeStream is a stream in memory, whose other end is the test. */
export class FakeStream implements Stream {
  /** What the host has sent since the last take. */
  frames: ConnectRequest[] = [];
  closed = false;
  cancelled = false;
  paused = false;
  /** What send returns: whether more can be sent. */
  writable = true;
  #events: StreamEvents | undefined;

  readonly open: OpenStream = (events) => {
    this.#events = events;
    return this;
  };

  send(frame: Uint8Array): boolean {
    this.frames.push(fromBinary(ConnectRequestSchema, frame));
    return this.writable;
  }

  closeSend(): void {
    this.closed = true;
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
  }

  cancel(): void {
    this.cancelled = true;
    this.#events = undefined;
  }

  /** take returns what the host has sent since. */
  take(): ConnectRequest[] {
    return this.frames.splice(0);
  }

  /** give is a frame for the host. */
  give(frame: ConnectResponse["frame"]): void {
    this.giveBytes(toBinary(ConnectResponseSchema, create(ConnectResponseSchema, { frame })));
  }

  giveBytes(encoded: Uint8Array): void {
    this.#events?.frame(encoded);
  }

  /** drained says that the host may send again. */
  drained(): void {
    this.writable = true;
    this.#events?.writable();
  }

  end(error?: Error): void {
    this.#events?.ended(error);
  }
}
