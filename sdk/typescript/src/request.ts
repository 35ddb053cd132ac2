import { create, fromBinary } from "@bufbuild/protobuf";
import { HandlerError } from "./error.js";
import {
  type AdmissionRequest,
  AdmissionRequestSchema,
  type Object$,
} from "./gen/portcullis/admission/v1/admission_pb.js";

/** Any Kubernetes object. For fields beyond these name a type of your own, or one of `kubernetes-types` or `@kubernetes/client-node`. */
export interface KubernetesObject {
  apiVersion?: string;
  kind?: string;
  metadata?: {
    name?: string;
    namespace?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
  };
  // biome-ignore lint/suspicious/noExplicitAny: an object of an unknown kind has fields of any type, as JSON.parse says.
  [field: string]: any;
}

/** What a hook is asked to do: `initialize` and `mutate` may change the object, `validate` may not. */
export type Stage = "initialize" | "mutate" | "validate";

/**
 * Why a hook is asked: to `decide`, also if it is `unspecified`; in `shadow`, where the verdict decides nothing; as `speculative` or `hedge`,
 * where it may not count.
 */
export type Mode = "unspecified" | "decide" | "shadow" | "speculative" | "hedge";

/** What is asked for. */
export type OperationName = "CREATE" | "UPDATE" | "DELETE" | "CONNECT";

/** A kind of objects, for example `apps`, `v1`, `Deployment`. */
export interface Kind {
  /** Empty for the core of Kubernetes. */
  readonly group: string;
  /** Version within the group. */
  readonly version: string;
  /** Name of the kind. */
  readonly kind: string;
}

/** A resource of the API, for example `apps`, `v1`, `deployments`. */
export interface Resource {
  /** Empty for the core of Kubernetes. */
  readonly group: string;
  /** Version within the group. */
  readonly version: string;
  /** Name of the resource, usually a plural. */
  readonly resource: string;
}

/** The part of a call that is not in its request. */
export interface CallInfo {
  /** Name of the hook that is asked. */
  readonly hook: string;
  /** Name of the configuration that holds the hook: two may hold hooks of one name. */
  readonly configuration: string;
  /** What the hook is asked to do. */
  readonly stage: Stage;
  /** 0, or 1 when a mutating hook is asked again because others changed the object after it. */
  readonly round: number;
  /** Why the hook is asked; a handler without side effects need not care. */
  readonly mode: Mode;
  /** W3C traceparent of the span of the call in the dispatcher; empty without one. It continues the trace by hand. */
  readonly traceparent: string;
}

/** The time of a call. */
export interface CallTime {
  /**
   * Aborts at the deadline of the call, when the dispatcher cancels it, and with the session. Pass it to everything that the handler
   * waits for. Its reason is a DOMException: `TimeoutError` at the deadline, else `AbortError`.
   */
  readonly signal: AbortSignal;
  /** Milliseconds until the deadline, now; 0 when it has passed. */
  readonly remainingMs: number;
}

/**
 * Request is one request to judge. `T` is the type of its objects, which nothing checks: it is the author's word. Each handler has a
 * Request of its own.
 */
export class Request<T extends object = KubernetesObject> implements CallInfo, CallTime {
  declare readonly hook: string;
  declare readonly configuration: string;
  declare readonly stage: Stage;
  declare readonly round: number;
  declare readonly mode: Mode;
  declare readonly traceparent: string;
  readonly #admission: () => AdmissionRequest;
  readonly #time: CallTime;
  #object: T | undefined;
  #oldObject: T | undefined;

  /** For the SDK: tests make requests with `newRequest`. `admission` is called when it is needed. */
  constructor(admission: () => AdmissionRequest, call: CallInfo, time: CallTime) {
    Object.assign(this, call);
    this.#admission = admission;
    this.#time = time;
  }

  get signal(): AbortSignal {
    return this.#time.signal;
  }

  get remainingMs(): number {
    return this.#time.remainingMs;
  }

  /** The request as the mesh sends it, with what is not beside it here. Handlers of one review share it: do not write to it. */
  get admission(): AdmissionRequest {
    return this.#admission();
  }

  /** Identifies the request in logs of the API server. */
  get uid(): string {
    return this.admission.uid;
  }

  /** Name of the cluster that the request comes from, as the mesh authenticated it. */
  get cluster(): string {
    return this.admission.cluster;
  }

  /** What is asked for. */
  get operation(): OperationName {
    return this.admission.operation as OperationName;
  }

  /** Kind of the object. */
  get kind(): Kind {
    const { group = "", version = "", kind = "" } = this.admission.kind ?? {};
    return { group, version, kind };
  }

  /** Resource that is asked for. */
  get resource(): Resource {
    const { group = "", version = "", resource = "" } = this.admission.resource ?? {};
    return { group, version, resource };
  }

  /** Part of the resource, for example `status` or `scale`; usually empty. */
  get subresource(): string {
    return this.admission.subResource;
  }

  /** Namespace of the object; empty for cluster-scoped objects. */
  get namespace(): string {
    return this.admission.namespace;
  }

  /** Name of the object; may be empty on CREATE with generateName. */
  get name(): string {
    return this.admission.name;
  }

  /** The user who made the request, as the API server authenticated it. */
  get username(): string {
    return this.admission.userInfo?.username ?? "";
  }

  /** Groups of the user. */
  get groups(): readonly string[] {
    return this.admission.userInfo?.groups ?? [];
  }

  /** Tells users of one name apart over time. */
  get userUid(): string {
    return this.admission.userInfo?.uid ?? "";
  }

  /** What else the API server knows of the user. */
  get extra(): Readonly<Record<string, readonly string[]>> {
    const extra = Object.entries(this.admission.userInfo?.extra ?? {});
    return Object.fromEntries(extra.map(([key, { items }]) => [key, items]));
  }

  /** True if nothing will be stored: a handler must have no side effects. */
  get dryRun(): boolean {
    return this.admission.dryRun ?? false;
  }

  /** The options of the operation, for example a DeleteOptions; undefined if there are none. Throws a HandlerError if it is not JSON. */
  get options(): KubernetesObject | undefined {
    return decode("options", this.admission.options);
  }

  /** The object after the operation, byte for byte as the API server sent it; undefined on DELETE. Do not write to it. */
  get rawObject(): Uint8Array | undefined {
    return this.admission.object?.raw;
  }

  /** The object before the operation, likewise; undefined on CREATE and CONNECT. */
  get rawOldObject(): Uint8Array | undefined {
    return this.admission.oldObject?.raw;
  }

  /**
   * The object after the operation, decoded when it is first asked for; undefined on DELETE. It is the handler's own. JavaScript
   * rounds integers beyond 2^53; `rawObject` has them all. Throws a HandlerError if it is not JSON.
   */
  get object(): T | undefined {
    this.#object ??= decode<T>("object", this.admission.object);
    return this.#object;
  }

  /** The object before the operation, likewise; undefined on CREATE and CONNECT. */
  get oldObject(): T | undefined {
    this.#oldObject ??= decode<T>("old object", this.admission.oldObject);
    return this.#oldObject;
  }

  /** A copy of the object after the operation, decoded anew. Throws a HandlerError if there is none, or if it is not JSON. */
  copyObject(): T {
    const copy = decode<T>("object", this.admission.object);
    if (copy === undefined) {
      throw new HandlerError("the request has no object that could be changed");
    }
    return copy;
  }
}

/** A request to create an object. */
export type CreateRequest<T extends object = KubernetesObject> = Request<T> & { readonly object: T };

/** A request to change an object. */
export type UpdateRequest<T extends object = KubernetesObject> = CreateRequest<T> & DeleteRequest<T>;

/** A request to delete an object. */
export type DeleteRequest<T extends object = KubernetesObject> = Request<T> & { readonly oldObject: T };

function decode<T extends object>(what: string, object: Object$ | undefined): T | undefined {
  if (object === undefined) {
    return undefined;
  }
  if (object.contentType !== "" && object.contentType !== "application/json") {
    throw new HandlerError(`the ${what} is ${object.contentType}, want JSON`);
  }
  let decoded: unknown;
  try {
    decoded = JSON.parse(Buffer.from(object.raw.buffer, object.raw.byteOffset, object.raw.byteLength).toString());
  } catch (cause) {
    throw new HandlerError(`the ${what} is not JSON`, { cause });
  }
  if (typeof decoded !== "object" || decoded === null) {
    throw new HandlerError(`the ${what} is no JSON object`);
  }
  return decoded as T;
}

/** lazyRequest decodes the request of a review when the first of its handlers asks, once for all. It throws if it cannot. */
export function lazyRequest(encoded: Uint8Array | undefined): () => AdmissionRequest {
  let decoded: AdmissionRequest | undefined;
  return () => {
    decoded ??= encoded ? fromBinary(AdmissionRequestSchema, encoded) : create(AdmissionRequestSchema);
    return decoded;
  };
}
