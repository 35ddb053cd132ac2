import { createSecureServer, createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { deferred } from "../../src/deferred.js";
import {
  type ConnectResponse,
  ConnectResponseSchema,
  HostService,
  type WelcomeSchema,
} from "../../src/gen/portcullis/host/v1/host_pb.js";
import type { Identity } from "./authority.js";
import { FakeSession, patient } from "./fake_session.js";

/** A session over gRPC. */
export class GrpcSession extends FakeSession {
  /** The names in the certificate of the host. */
  identity = "";
  /** close ends the stream, with a status other than OK if there is an error. */
  close: (error?: ConnectError) => void = () => {};
}

/** GrpcDispatcher is a dispatcher on loopback whose gRPC is not that of the SDK. */
export class GrpcDispatcher implements AsyncDisposable {
  readonly #server: Http2Server;
  readonly #connections = new Set<ServerHttp2Session>();
  readonly #accepted: GrpcSession[] = [];
  #waiting = deferred();

  private constructor(
    identity: (Identity & { ca: string }) | undefined,
    welcome: MessageInitShape<typeof WelcomeSchema>,
  ) {
    const handler = connectNodeAdapter({
      connect: false,
      grpcWeb: false,
      routes: (router) =>
        router.service(HostService, { connect: (requests, context) => this.#serve(requests, context.signal, welcome) }),
    });
    this.#server = identity
      ? createSecureServer({ ...identity, requestCert: true, rejectUnauthorized: true, minVersion: "TLSv1.3" }, handler)
      : createServer(handler);
    this.#server.on("session", (session) => {
      this.#connections.add(session);
      session.on("close", () => this.#connections.delete(session));
    });
  }

  static async listen(
    options: {
      identity?: Identity & { ca: string };
      welcome?: MessageInitShape<typeof WelcomeSchema>;
      port?: number;
    } = {},
  ): Promise<GrpcDispatcher> {
    const dispatcher = new GrpcDispatcher(options.identity, options.welcome ?? {});
    const listening = deferred();
    dispatcher.#server.listen(options.port ?? 0, "127.0.0.1", () => listening.resolve());
    await listening.promise;
    return dispatcher;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** accept is the next session. */
  async accept(): Promise<GrpcSession> {
    for (;;) {
      const next = this.#accepted.shift();
      if (next) {
        await next.hello;
        return next;
      }
      await patient(this.#waiting.promise, "no host connects");
    }
  }

  /** kill breaks all connections, as the death of a dispatcher does. */
  async kill(): Promise<void> {
    const closed = deferred();
    this.#server.close(() => closed.resolve());
    for (const connection of this.#connections) {
      connection.destroy();
    }
    await closed.promise;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }

  async *#serve(
    requests: AsyncIterable<Parameters<FakeSession["take"]>[0]>,
    signal: AbortSignal,
    welcome: MessageInitShape<typeof WelcomeSchema>,
  ): AsyncGenerator<ConnectResponse> {
    const queue: ConnectResponse[] = [];
    let more = deferred();
    let ending: { error: ConnectError | undefined } | undefined;
    const session = new GrpcSession((frame) => {
      queue.push(fromBinary(ConnectResponseSchema, frame));
      more.resolve();
    }, welcome);
    session.identity = this.#identity();
    session.close = (error) => {
      ending = { error };
      more.resolve();
    };
    const read = async (): Promise<void> => {
      try {
        for await (const request of requests) {
          session.take(request);
        }
        session.end();
      } catch (error) {
        session.end(error as Error);
      }
      session.close();
    };
    void read();
    signal.addEventListener("abort", () => session.close(new ConnectError("gone", Code.Canceled)));
    this.#accepted.push(session);
    this.#waiting.resolve();
    this.#waiting = deferred();
    for (;;) {
      yield* queue.splice(0);
      if (ending?.error) {
        throw ending.error;
      }
      if (ending && queue.length === 0) {
        return;
      }
      if (queue.length === 0) {
        more = deferred();
        await more.promise;
      }
    }
  }

  /** Of the connection that came last. */
  #identity(): string {
    const socket = [...this.#connections].at(-1)?.socket as Partial<TLSSocket> | undefined;
    return socket?.getPeerCertificate?.().subjectaltname ?? "";
  }
}
