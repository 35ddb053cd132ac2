import { once } from "node:events";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHTTP2,
  constants,
  type IncomingHttpHeaders,
  type IncomingHttpStatusHeader,
} from "node:http2";
import { connect, type Socket } from "node:net";
import { checkServerIdentity, connect as connectTLS } from "node:tls";
import { isAddress, splitAddress } from "./address.js";
import type { Endpoint } from "./core/dial_plan.js";
import { HostError, messageOf } from "./error.js";
import { OK, prefix, Splitter, statusText } from "./grpc_frames.js";
import { CONNECT_TIMEOUT, MAX_WIRE_BYTES } from "./limits.js";
import type { OpenStream, Stream, StreamEvents } from "./stream.js";
import type { Security } from "./tls.js";

/** Connection is a connection to one dispatcher. */
export interface Connection {
  /** Opens the stream of a session. */
  readonly open: OpenStream;
  close(): void;
}

const CONNECT = "/portcullis.host.v1.HostService/Connect";

/** The HTTP/2 window of a session: a review of usual size never waits for it, and a slow host holds back no more than this. */
const WINDOW = 4 << 20;

/** What a frame holds beside a review. */
const FRAME_HEAD = 1 << 10;

/**
 * dial connects to a dispatcher, directly: it uses no proxy. It rejects when it cannot within CONNECT_TIMEOUT, and when `signal`
 * aborts.
 *
 * The session is one stream on a connection of its own. Node's http2 carries it, with gRPC's five bytes before each message and its
 * status behind the last: README.md says why no library does.
 */
export async function dial(
  security: Security,
  at: Endpoint,
  maxFrameBytes: number,
  signal: AbortSignal,
): Promise<Connection> {
  const [socket, scheme] = await connected(security, at, signal);
  let lost: Error | undefined; // Why the connection was: a dispatcher may refuse the host after the handshake.
  socket.on("error", (error) => {
    lost = error;
  });
  const session = connectHTTP2(`${scheme}://${at.address}`, {
    createConnection: () => socket,
    settings: { enablePush: false, initialWindowSize: WINDOW },
    maxSessionMemory: 2 * (WINDOW >> 20) + 64,
  });
  session.on("error", () => {}); // The stream ends with it too.
  session.setLocalWindowSize(WINDOW);
  const limit = Math.max(maxFrameBytes, MAX_WIRE_BYTES) + FRAME_HEAD;
  return {
    open: (events) => new Http2Stream(session, at.serverName, limit, () => lost, events),
    close: () => session.destroy(),
  };
}

/** connected is a socket that is ready. TLS is 1.3 at least. */
async function connected(security: Security, at: Endpoint, signal: AbortSignal): Promise<[Socket, "http" | "https"]> {
  const options = await security.load();
  const { host = "", port = "" } = splitAddress(at.address) ?? {};
  const where = { host, port: Number(port) };
  const socket = options
    ? connectTLS({
        ...options,
        ...where,
        minVersion: "TLSv1.3",
        ALPNProtocols: ["h2"],
        // TLS forbids IP addresses as names to ask for. They are checked all the same.
        ...(isAddress(at.serverName) ? {} : { servername: at.serverName }),
        checkServerIdentity: (_host, certificate) => checkServerIdentity(at.serverName, certificate),
      })
    : connect(where);
  socket.on("error", () => {}); // Who waits learns of it.
  try {
    const patience = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT)]);
    await once(socket, options ? "secureConnect" : "connect", { signal: patience });
  } catch (error) {
    socket.destroy();
    throw "authorizationError" in socket && socket.authorizationError
      ? new HostError(`this host refused the dispatcher: ${messageOf(error)}`, { cause: error })
      : error;
  }
  socket.setNoDelay(true);
  return [socket, options ? "https" : "http"];
}

/** Http2Stream is a gRPC stream of encoded frames. */
class Http2Stream implements Stream {
  readonly #session: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  readonly #splitter: Splitter;
  readonly #lost: () => Error | undefined;
  #events: StreamEvents | undefined;
  #status: IncomingHttpHeaders | undefined; // With grpc-status.
  #error: Error | undefined;
  #paused = false;

  constructor(
    session: ClientHttp2Session,
    authority: string,
    limit: number,
    lost: () => Error | undefined,
    events: StreamEvents,
  ) {
    this.#session = session;
    this.#lost = lost;
    this.#events = events;
    this.#splitter = new Splitter(limit);
    this.#stream = session.request({
      ":method": "POST",
      ":path": CONNECT,
      ":authority": authority,
      te: "trailers",
      "content-type": "application/grpc",
      "user-agent": "portcullis-typescript",
    });
    this.#stream.on("response", (headers) => this.#answered(headers));
    this.#stream.on("trailers", (trailers: IncomingHttpHeaders) => {
      this.#status = trailers;
    });
    this.#stream.on("data", (data: Buffer) => {
      this.#splitter.add(data);
      this.#deliver();
    });
    this.#stream.on("drain", () => this.#events?.writable());
    this.#stream.on("error", (error) => {
      this.#error ??= error;
    });
    // A dispatcher may end the stream while our side is open. It is not closed then.
    this.#stream.on("end", () => {
      if (this.#status) {
        this.#closed();
      }
    });
    this.#stream.on("close", () => this.#closed());
  }

  send(frame: Uint8Array): boolean {
    this.#stream.write(prefix(frame));
    return this.#stream.write(frame);
  }

  closeSend(): void {
    this.#stream.end();
  }

  pause(): void {
    this.#paused = true;
    this.#stream.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#deliver();
    this.#stream.resume();
  }

  /** With the connection: the end of a stream alone would look like the end of a drain first. */
  cancel(): void {
    this.#events = undefined;
    this.#session.destroy();
  }

  #answered(headers: IncomingHttpHeaders & IncomingHttpStatusHeader): void {
    if (headers["grpc-status"] !== undefined) {
      this.#status = headers;
    } else if (headers[":status"] !== constants.HTTP_STATUS_OK) {
      this.#error ??= new HostError(`the dispatcher answered with HTTP status ${headers[":status"]}`);
    }
  }

  #deliver(): void {
    try {
      while (!this.#paused && this.#events) {
        const frame = this.#splitter.next();
        if (!frame) {
          return;
        }
        this.#events.frame(frame);
      }
    } catch (error) {
      this.#end(new HostError(messageOf(error)));
      this.cancel();
    }
  }

  #closed(): void {
    const code = Number(this.#status?.["grpc-status"] ?? Number.NaN);
    if (code === OK) {
      this.#end();
    } else if (Number.isNaN(code)) {
      this.#end(this.#lost() ?? this.#error ?? new HostError("the connection was lost"));
    } else {
      this.#end(new HostError(statusText(code, String(this.#status?.["grpc-message"] ?? ""))));
    }
  }

  #end(error?: Error): void {
    const events = this.#events;
    this.#events = undefined;
    events?.ended(error);
  }
}
