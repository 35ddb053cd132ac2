import {
  type ChannelOptions,
  Client,
  type ClientDuplexStream,
  connectivityState,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import type { Endpoint } from "./core/dial_plan.js";
import { HostError } from "./error.js";
import { CONNECT_TIMEOUT, MAX_WIRE_BYTES } from "./limits.js";
import type { OpenStream, Stream, StreamEvents } from "./stream.js";
import { dialSecurity, type Security } from "./tls.js";

/** Connection is a connection to one dispatcher. */
export interface Connection {
  readonly open: OpenStream;
  close(): void;
}

const CONNECT = "/portcullis.host.v1.HostService/Connect";

/** The HTTP/2 window of a session: a review of usual size never waits for it, and a slow host holds back no more than this. */
const WINDOW = 4 << 20;

/** What a frame holds beside a review. */
const FRAME_HEAD = 1 << 10;

function channelOptions(serverName: string, maxFrameBytes: number): ChannelOptions {
  return {
    "grpc.ssl_target_name_override": serverName,
    "grpc.default_authority": serverName,
    // What Hello announces. Verdicts are made to fit what the dispatcher announces in turn.
    "grpc.max_receive_message_length": Math.max(maxFrameBytes, MAX_WIRE_BYTES) + FRAME_HEAD,
    "grpc.max_send_message_length": -1,
    "grpc-node.flow_control_window": WINDOW,
    // The dispatcher retries: it alone knows which calls may be repeated.
    "grpc.enable_retries": 0,
    "grpc.service_config_disable_resolution": 1,
    // A session has a connection of its own, to the address it names and through no proxy.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_http_proxy": 0,
    // No keepalive: the dispatcher's pings and the silence that Welcome names are the one clock of a session.
  };
}

/** dial connects to a dispatcher. It rejects when it cannot within CONNECT_TIMEOUT, and when `signal` aborts. */
export async function dial(
  security: Security,
  at: Endpoint,
  maxFrameBytes: number,
  signal: AbortSignal,
): Promise<Connection> {
  const { credentials, serverName } = await dialSecurity(security, at.serverName);
  const client = new Client(`dns:${at.address}`, credentials, channelOptions(serverName, maxFrameBytes));
  try {
    await connected(client, AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT)]));
  } catch (error) {
    client.close();
    throw error;
  }
  return { open: (events) => new GrpcStream(client, events), close: () => client.close() };
}

/** connected makes one attempt to connect. Between two comes the back-off of the host. */
function connected(client: Client, signal: AbortSignal): Promise<void> {
  const channel = client.getChannel();
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(new HostError("no connection", { cause: signal.reason })));
    const look = (): void => {
      const state = channel.getConnectivityState(true);
      if (state === connectivityState.READY) {
        resolve();
      } else if (state === connectivityState.TRANSIENT_FAILURE) {
        // A stream fails at once, and says why.
        new GrpcStream(client, {
          frame() {},
          writable() {},
          ended: (error) => reject(error ?? new HostError("no connection")),
        });
      } else if (!signal.aborted) {
        channel.watchConnectivityState(state, Number.POSITIVE_INFINITY, look);
      }
    };
    look();
  });
}

/** GrpcStream is a gRPC stream of encoded frames. */
class GrpcStream implements Stream {
  readonly #call: ClientDuplexStream<Uint8Array, Buffer>;
  #events: StreamEvents | undefined;
  #ended = false; // No more frames come.
  #status: { error: Error | undefined } | undefined;

  constructor(client: Client, events: StreamEvents) {
    this.#events = events;
    this.#call = client.makeBidiStreamRequest(CONNECT, asBuffer, (frame: Buffer) => frame);
    this.#call.on("data", (frame: Buffer) => this.#events?.frame(frame));
    this.#call.on("drain", () => this.#events?.writable());
    this.#call.on("end", () => {
      this.#ended = true;
      this.#finish();
    });
    this.#call.on("error", (error: ServiceError) => {
      this.#status ??= { error };
      this.#finish();
    });
    this.#call.on("status", ({ code }) => {
      this.#status ??= {
        error: code === status.OK ? undefined : new HostError(`the stream ended with status ${code}`),
      };
      this.#finish();
    });
  }

  send(frame: Uint8Array): boolean {
    return this.#call.write(frame);
  }

  closeSend(): void {
    this.#call.end();
  }

  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  cancel(): void {
    this.#events = undefined;
    this.#call.cancel();
  }

  /** Frames may still wait to be read when the status has come. */
  #finish(): void {
    if (this.#status && (this.#ended || this.#status.error)) {
      const events = this.#events;
      this.#events = undefined;
      events?.ended(this.#status.error);
    }
  }
}

function asBuffer(frame: Uint8Array): Buffer {
  return Buffer.from(frame.buffer, frame.byteOffset, frame.byteLength);
}
