import { create } from "@bufbuild/protobuf";
import {
  type AdmissionRequest,
  AdmissionRequestSchema,
  type Object$,
  ObjectSchema,
} from "../gen/portcullis/admission/v1/admission_pb.js";
import { type CallInfo, type KubernetesObject, type OperationName, Request, type Resource } from "../request.js";

/** An object as a test writes it: in JSON, or as a value. */
export type TestObject = string | object;

/** A request as a test writes it. Kind, name and namespace are those of the object. */
export interface TestRequest {
  /** CREATE if absent; UPDATE with both objects, and DELETE with the old one alone. */
  readonly operation?: OperationName;
  /** The object after the operation. */
  readonly object?: TestObject;
  /** The object before the operation. */
  readonly oldObject?: TestObject;
  /** Name of the object, if it is not in the object. */
  readonly name?: string;
  /** Namespace of the object, if it is not in the object. */
  readonly namespace?: string;
  /** Who asks: `testing`, of the group `system:authenticated`, if absent. */
  readonly user?: {
    readonly name?: string;
    readonly groups?: readonly string[];
    readonly uid?: string;
    readonly extra?: Readonly<Record<string, readonly string[]>>;
  };
  /** Resource that is asked for; the usual plural of the kind if absent. */
  readonly resource?: Resource;
  /** Part of the resource, for example `status`. */
  readonly subresource?: string;
  /** Options of the operation. */
  readonly options?: object;
  /** Whether nothing will be stored. */
  readonly dryRun?: boolean;
}

/** newRequest is a request to call a handler with, without a host. `call` says what is not in the request, its time included. */
export function newRequest<T extends object = KubernetesObject>(
  request: TestRequest,
  call: Partial<CallInfo> & { signal?: AbortSignal; remainingMs?: number } = {},
): Request<T> {
  const admission = admissionOf(request);
  const { signal = new AbortController().signal, remainingMs = 10_000, ...rest } = call;
  const info: CallInfo = {
    hook: "",
    configuration: "",
    stage: "validate",
    round: 0,
    mode: "decide",
    traceparent: "",
    ...rest,
  };
  return new Request<T>(() => admission, info, { signal, remainingMs });
}

/** admissionOf is a request as the mesh sends it. */
export function admissionOf({ object, oldObject, user = {}, ...r }: TestRequest): AdmissionRequest {
  const { apiVersion = "", kind = "", metadata = {} } = head(object ?? oldObject);
  const slash = apiVersion.indexOf("/");
  const type = { group: apiVersion.slice(0, Math.max(0, slash)), version: apiVersion.slice(slash + 1) };
  const { name = "testing", groups = ["system:authenticated"], uid = "", extra = {} } = user;
  const items = Object.entries(extra).map(([key, items]) => [key, { items: [...items] }]);
  return create(AdmissionRequestSchema, {
    uid: "705ab4f5-6393-11e8-b7cc-42010a800002",
    cluster: "testing",
    operation: r.operation ?? (oldObject === undefined ? "CREATE" : object === undefined ? "DELETE" : "UPDATE"),
    kind: { ...type, kind },
    resource: r.resource ?? { ...type, resource: plural(kind) },
    subResource: r.subresource ?? "",
    name: r.name ?? metadata.name ?? "",
    namespace: r.namespace ?? metadata.namespace ?? "",
    userInfo: { username: name, groups: [...groups], uid, extra: Object.fromEntries(items) },
    dryRun: r.dryRun ?? false,
    ...(object === undefined ? {} : { object: raw(object) }),
    ...(oldObject === undefined ? {} : { oldObject: raw(oldObject) }),
    ...(r.options === undefined ? {} : { options: raw(r.options) }),
  });
}

/** An object that cannot be read has no head: hosts must bear that as well. */
function head(object: TestObject = {}): KubernetesObject {
  try {
    return typeof object === "string" ? JSON.parse(object) : object;
  } catch {
    return {};
  }
}

function raw(object: TestObject): Object$ {
  const json = typeof object === "string" ? object : JSON.stringify(object);
  return create(ObjectSchema, { raw: new TextEncoder().encode(json) });
}

/** How resources are named after kinds, irregular ones aside. */
function plural(kind: string): string {
  const k = kind.toLowerCase();
  return k === "" ? "" : k.endsWith("s") ? `${k}es` : k.endsWith("y") ? `${k.slice(0, -1)}ies` : `${k}s`;
}
