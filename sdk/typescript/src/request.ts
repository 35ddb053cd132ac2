import { create, fromBinary } from "@bufbuild/protobuf";
import { HandlerError } from "./error.js";
import {
  type AdmissionRequest,
  AdmissionRequestSchema,
  type Object$,
} from "./gen/portcullis/admission/v1/admission_pb.js";
import { Mode } from "./gen/portcullis/host/v1/host_pb.js";

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

/** What a hook may be asked to do: `initialize` and `mutate` may change the object, `validate` may not. */
export type StageName = "initialize" | "mutate" | "validate";

/** The part of a call that is not in its request. */
export interface CallInfo {
  /** Name of the hook that is asked. */
  readonly hook: string;
  /** Name of the configuration that holds the hook: two may hold hooks of one name. */
  readonly configuration: string;
  /** Whether the hook may change the object. */
  readonly stage: StageName;
  /** 0, or 1 when a mutating hook is asked again because others changed the object after it. */
  readonly round: number;
  /**
   * Why the hook is asked; a handler without side effects need not care. `Mode.SHADOW`: the verdict decides nothing.
   * `Mode.SPECULATIVE` and `Mode.HEDGE`: it may not count.
   */
  readonly mode: Mode;
}

/**
 * Request is one request to judge. `T` is the type of its objects, which nothing checks: it is the author's word. Each handler has a
 * Request of its own.
 */
export class Request<T extends object = KubernetesObject> implements CallInfo {
  readonly hook: string;
  readonly configuration: string;
  readonly stage: StageName;
  readonly round: number;
  readonly mode: Mode;
  readonly #admission: () => AdmissionRequest;
  #object: T | undefined;
  #oldObject: T | undefined;

  /** A request of a test, or of the SDK. `admission` is called when it is needed. */
  constructor(admission: AdmissionRequest | (() => AdmissionRequest), call: Partial<CallInfo> = {}) {
    this.hook = call.hook ?? "";
    this.configuration = call.configuration ?? "";
    this.stage = call.stage ?? "validate";
    this.round = call.round ?? 0;
    this.mode = call.mode ?? Mode.DECIDE;
    this.#admission = typeof admission === "function" ? admission : () => admission;
  }

  /** The request itself, with all that is not beside it here. Handlers of one review share it: do not write to it. */
  get admission(): AdmissionRequest {
    return this.#admission();
  }

  /** Name of the cluster that the request comes from, as the mesh authenticated it. */
  get cluster(): string {
    return this.admission.cluster;
  }

  /** CREATE, UPDATE, DELETE or CONNECT. */
  get operation(): string {
    return this.admission.operation;
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

  /** True if nothing will be stored: a handler must have no side effects. */
  get dryRun(): boolean {
    return this.admission.dryRun ?? false;
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

function decode<T extends object>(what: string, object: Object$ | undefined): T | undefined {
  if (object === undefined) {
    return undefined;
  }
  if (object.contentType !== "" && object.contentType !== "application/json") {
    throw new HandlerError(`the ${what} is ${object.contentType}, want JSON`);
  }
  let decoded: unknown;
  try {
    decoded = JSON.parse(text(object.raw));
  } catch (cause) {
    throw new HandlerError(`the ${what} is not JSON`, { cause });
  }
  if (typeof decoded !== "object" || decoded === null) {
    throw new HandlerError(`the ${what} is no JSON object`);
  }
  return decoded as T;
}

function text(raw: Uint8Array): string {
  return Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString("utf8");
}

/** lazyRequest decodes the request of a review when the first of its handlers asks, once for all. It throws if it cannot. */
export function lazyRequest(encoded: Uint8Array | undefined): () => AdmissionRequest {
  let decoded: AdmissionRequest | undefined;
  return () => {
    decoded ??= encoded ? fromBinary(AdmissionRequestSchema, encoded) : create(AdmissionRequestSchema);
    return decoded;
  };
}
