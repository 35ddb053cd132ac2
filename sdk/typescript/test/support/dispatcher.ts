import { fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import type { AdmissionRequest } from "../../src/gen/portcullis/admission/v1/admission_pb.js";
import { ConnectRequestSchema, type WelcomeSchema } from "../../src/gen/portcullis/host/v1/host_pb.js";
import type { Host } from "../../src/host.js";
import type { OpenStream } from "../../src/stream.js";
import { admissionOf, type TestObject } from "../../src/testing/requests.js";
import { FakeSession, patient } from "./fake_session.js";

/** createRequest is a request that creates an object. */
export function createRequest(object: TestObject): AdmissionRequest {
  return admissionOf({ object });
}

/** updateRequest changes an object. */
export function updateRequest(oldObject: TestObject, object: TestObject): AdmissionRequest {
  return admissionOf({ oldObject, object });
}

/** deleteRequest deletes an object. */
export function deleteRequest(oldObject: TestObject): AdmissionRequest {
  return admissionOf({ oldObject });
}

/**
 * FrameDispatcher is a dispatcher in memory whose frames the test sees. They are encoded and decoded on the way, as on a real stream.
 */
export class FrameDispatcher extends FakeSession implements AsyncDisposable {
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
  static async start(host: Host, welcome: MessageInitShape<typeof WelcomeSchema> = {}): Promise<FrameDispatcher> {
    const stop = new AbortController();
    let toHost: (frame: Uint8Array) => void = () => {};
    let served: Promise<void> = Promise.resolve();
    const dispatcher = new FrameDispatcher(
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
