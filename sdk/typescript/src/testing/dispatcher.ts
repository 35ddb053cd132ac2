import { fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { ConnectRequestSchema, type WelcomeSchema } from "../gen/portcullis/host/v1/host_pb.js";
import type { Host } from "../host.js";
import type { OpenStream } from "../stream.js";
import { FakeSession, patient } from "./session.js";

/**
 * FakeDispatcher is a fake dispatcher with one host, for unit tests: no mesh, no certificates, no cluster. Frames are encoded and
 * decoded on the way, as on a real stream.
 */
export class FakeDispatcher extends FakeSession implements AsyncDisposable {
  readonly #stop: () => Promise<void>;

  private constructor(
    send: (frame: Uint8Array) => void,
    welcome: MessageInitShape<typeof WelcomeSchema>,
    stop: () => Promise<void>,
  ) {
    super(send, welcome);
    this.#stop = stop;
  }

  /** start runs a host in memory. Stop it at the end of the test, or say `await using`. */
  static async start(host: Host, welcome: MessageInitShape<typeof WelcomeSchema> = {}): Promise<FakeDispatcher> {
    const stop = new AbortController();
    let toHost: (frame: Uint8Array) => void = () => {};
    let served: Promise<void> = Promise.resolve();
    const dispatcher = new FakeDispatcher(
      (frame) => toHost(frame),
      welcome,
      () => {
        stop.abort();
        return patient(served, "the host does not stop");
      },
    );
    const open: OpenStream = (events) => {
      // Each frame in a turn of the event loop of its own, as from a socket.
      toHost = (frame) => void setImmediate(() => events.frame(frame));
      return {
        send: (frame) => {
          dispatcher.take(fromBinary(ConnectRequestSchema, frame));
          return true;
        },
        closeSend: () => {
          dispatcher.end();
          setImmediate(() => events.ended());
        },
        pause() {},
        resume() {},
        cancel: () => dispatcher.end(new Error("the host has given the session up")),
      };
    };
    served = host.serve(open, stop.signal);
    served.catch((error: unknown) => dispatcher.end(error as Error));
    await dispatcher.hello;
    return dispatcher;
  }

  /** stop drains the host and waits for it. It rejects if the host does not leave cleanly. */
  stop(): Promise<void> {
    return this.#stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}
