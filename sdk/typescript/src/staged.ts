/**
 * Staged objects, for controllers that initialize them instead of a host: a thin client of InitializerService.
 *
 * @packageDocumentation
 */

import {
  create,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { splitAddress } from "./address.js";
import { type Denial, judgementOf } from "./decision.js";
import { HostError, StatusError } from "./error.js";
import { ObjectSchema } from "./gen/portcullis/admission/v1/admission_pb.js";
import {
  DeleteRequestSchema,
  DeleteResponseSchema,
  EventType,
  GetRequestSchema,
  GetResponseSchema,
  ListRequestSchema,
  type ListResponse,
  ListResponseSchema,
  type StagedKeySchema,
  type StagedObject,
  type UpdateRequest,
  UpdateRequestSchema,
  UpdateResponseSchema,
  WatchRequestSchema,
  type WatchResponse,
  WatchResponseSchema,
} from "./gen/portcullis/initializer/v1/initializer_pb.js";
import type { Security } from "./tls.js";
import { type Connection, dial } from "./transport.js";

export { EventType, type ListResponse, type StagedObject, StatusError, type UpdateRequest, type WatchResponse };

/** Where a client finds a dispatcher, and as whom. */
export interface StagedClientOptions {
  /** host:port where the dispatcher serves hosts. */
  readonly address: string;
  /** `tlsFiles` with the certificate whose identity the HookRoute grants the initializer to. They are read anew at each connection. */
  readonly tls: Security;
  /** The name in the certificate of the dispatcher; that of `address` if absent. */
  readonly serverName?: string;
}

type Init<T extends DescMessage> = MessageInitShape<T>;

const SERVICE = "/portcullis.initializer.v1.InitializerService/";

/** Of a list, which has the objects of all clusters. */
const MAX_BYTES = 256 << 20;

/**
 * StagedClient calls one dispatcher. Its calls share a connection, which is made anew after one that was lost; a watch has one of its own.
 * A call that fails rejects with a StatusError: `ABORTED` of an update means that the object has changed, or that another replica was
 * faster, and `NOT_FOUND` that its hold has ended. It rejects with another error when there is no connection.
 */
export class StagedClient implements Disposable {
  readonly #options: StagedClientOptions;
  readonly #closed = new AbortController();
  #connection: Promise<Connection> | undefined;

  constructor(options: StagedClientOptions) {
    this.#options = options;
  }

  /** Ends all calls. */
  close(): void {
    this.#closed.abort(new HostError("the client is closed"));
    this.#connection?.then(
      (connection) => connection.close(),
      () => {},
    );
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** get is one object. */
  async get(key: Init<typeof StagedKeySchema>): Promise<StagedObject> {
    return held((await this.#call("Get", GetRequestSchema, { key }, GetResponseSchema)).object);
  }

  /** list has the objects of a selection, all that the caller may see without one, and the version to watch from. */
  list(selection: Init<typeof ListRequestSchema> = {}): Promise<ListResponse> {
    return this.#call("List", ListRequestSchema, selection, ListResponseSchema);
  }

  /**
   * watch has what changes after a version; without one each object first, as added. It ends when `signal` aborts, and otherwise by a
   * StatusError: after `OUT_OF_RANGE` and `ABORTED` it is begun anew without a version, after `UNAVAILABLE` at another dispatcher.
   */
  async *watch(
    request: Init<typeof WatchRequestSchema> = {},
    signal?: AbortSignal,
  ): AsyncGenerator<WatchResponse, void> {
    const stop = signal ? AbortSignal.any([signal, this.#closed.signal]) : this.#closed.signal;
    const connection = await this.#dial(stop);
    const close = () => connection.close();
    stop.addEventListener("abort", close);
    try {
      const encoded = toBinary(WatchRequestSchema, create(WatchRequestSchema, request));
      for await (const message of messages(connection, "Watch", encoded)) {
        yield fromBinary(WatchResponseSchema, message);
      }
    } catch (error) {
      if (!signal?.aborted) {
        throw error;
      }
    } finally {
      stop.removeEventListener("abort", close);
      connection.close();
    }
  }

  /** update changes an object: {@link done} and {@link refused} make the request. */
  async update(request: Init<typeof UpdateRequestSchema>): Promise<StagedObject> {
    return held((await this.#call("Update", UpdateRequestSchema, request, UpdateResponseSchema)).object);
  }

  /** delete ends the hold of exactly this object: its creator is refused. */
  async delete({ key, uid }: StagedObject): Promise<void> {
    await this.#call("Delete", DeleteRequestSchema, key ? { key, uid } : { uid }, DeleteResponseSchema);
  }

  async #call<Q extends DescMessage, A extends DescMessage>(
    method: string,
    question: Q,
    request: Init<Q>,
    answer: A,
  ): Promise<MessageShape<A>> {
    this.#connection ??= this.#dial(this.#closed.signal);
    const mine = this.#connection;
    try {
      let last: Uint8Array | undefined;
      for await (const message of messages(await mine, method, toBinary(question, create(question, request)))) {
        last = message; // And on to the status.
      }
      if (last) {
        return fromBinary(answer, last);
      }
      throw new HostError("the dispatcher gave no answer");
    } catch (error) {
      if (!(error instanceof StatusError) && this.#connection === mine) {
        this.#connection = undefined;
      }
      throw error;
    }
  }

  #dial(signal: AbortSignal): Promise<Connection> {
    const { address, tls, serverName = splitAddress(address)?.host ?? "" } = this.#options;
    return dial(tls, { address, serverName }, MAX_BYTES, signal);
  }
}

/** waits reports whether the object of an event waits for its first pending initializer: one that is refused is sent once more. */
export function waits({ type, object }: WatchResponse): boolean {
  return (type === EventType.ADDED || type === EventType.MODIFIED) && object?.result === undefined;
}

/** objectOf is what a staged object stages, decoded anew. `T` is the author's word. */
export function objectOf<T extends object>(staged: StagedObject): T {
  return JSON.parse(new TextDecoder().decode(staged.object?.raw)) as T;
}

/** done is the update by which the first pending initializer leaves an object as it should be created. */
export function done(staged: StagedObject, changed: object): UpdateRequest {
  const object = create(ObjectSchema, { raw: new TextEncoder().encode(JSON.stringify(changed)) });
  return Object.assign(unchanged(staged), { object, pending: staged.pending.slice(1) });
}

/** refused is the update by which the first pending initializer refuses an object, with `deny`. */
export function refused(staged: StagedObject, denial: Denial): UpdateRequest {
  return Object.assign(unchanged(staged), { result: judgementOf(denial, "initialize").response.status });
}

function unchanged({ key, resourceVersion }: StagedObject): UpdateRequest {
  return Object.assign(create(UpdateRequestSchema, { resourceVersion }), key ? { key } : {});
}

function held(object: StagedObject | undefined): StagedObject {
  if (!object) {
    throw new HostError("the dispatcher answered without an object");
  }
  return object;
}

/** messages are the answers to one request. No event is lost, and none is read before it is asked for. */
async function* messages(
  connection: Connection,
  method: string,
  request: Uint8Array,
): AsyncGenerator<Uint8Array, void> {
  const came: Uint8Array[] = [];
  let ended: { error: Error | undefined } | undefined;
  let wake = () => {};
  const stream = connection.call(SERVICE + method)({
    frame(encoded) {
      came.push(encoded);
      stream.pause();
      wake();
    },
    writable() {},
    ended(error) {
      ended = { error };
      wake();
    },
  });
  stream.send(request);
  stream.closeSend();
  for (;;) {
    const next = came.shift();
    if (next) {
      yield next;
      stream.resume();
    } else if (ended) {
      if (ended.error) {
        throw ended.error;
      }
      return;
    } else {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
}
