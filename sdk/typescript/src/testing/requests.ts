import { create } from "@bufbuild/protobuf";
import {
  type AdmissionRequest,
  AdmissionRequestSchema,
  type Object$,
  ObjectSchema,
} from "../gen/portcullis/admission/v1/admission_pb.js";

/** An object as a test writes it: in JSON, or as a value. */
export type TestObject = string | object;

/**
 * createRequest is a request that creates an object. Kind, name and namespace are the object's; the resource is the usual plural of
 * its kind. Change what the hook looks at besides.
 */
export function createRequest(object: TestObject): AdmissionRequest {
  return request("CREATE", object, undefined);
}

/** updateRequest changes an object, see {@link createRequest}. */
export function updateRequest(old: TestObject, object: TestObject): AdmissionRequest {
  return request("UPDATE", object, old);
}

/** deleteRequest deletes an object, see {@link createRequest}. */
export function deleteRequest(old: TestObject): AdmissionRequest {
  return request("DELETE", undefined, old);
}

function request(operation: string, object: TestObject | undefined, old: TestObject | undefined): AdmissionRequest {
  const { apiVersion = "", kind = "", metadata = {} } = head(object ?? old ?? {});
  const slash = apiVersion.indexOf("/");
  const group = slash < 0 ? "" : apiVersion.slice(0, slash);
  const version = apiVersion.slice(slash + 1);
  return create(AdmissionRequestSchema, {
    uid: "705ab4f5-6393-11e8-b7cc-42010a800002",
    cluster: "testing",
    operation,
    kind: { group, version, kind },
    resource: { group, version, resource: plural(kind) },
    name: metadata.name ?? "",
    namespace: metadata.namespace ?? "",
    userInfo: { username: "testing", groups: ["system:authenticated"] },
    ...(object === undefined ? {} : { object: raw(object) }),
    ...(old === undefined ? {} : { oldObject: raw(old) }),
  });
}

interface Head {
  apiVersion?: string;
  kind?: string;
  metadata?: { name?: string; namespace?: string };
}

/** An object that cannot be read has no head: hosts must bear that as well. */
function head(object: TestObject): Head {
  try {
    return typeof object === "string" ? (JSON.parse(object) as Head) : (object as Head);
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
  if (k.endsWith("s")) {
    return `${k}es`;
  }
  return k.endsWith("y") ? `${k.slice(0, -1)}ies` : k === "" ? "" : `${k}s`;
}
