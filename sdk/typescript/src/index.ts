/**
 * Hosts of Portcullis: programs that dial the dispatchers of a mesh and serve Kubernetes admission hooks. README.md is the manual.
 *
 * @packageDocumentation
 */

export type { HookState, HookStatus, SessionStatus, Status } from "./board.js";
export type { Operation } from "./changes.js";
export type { Clock } from "./clock.js";
export {
  type Allowed,
  allow,
  type Cause,
  type Decision,
  type Denial,
  Denied,
  type DenyOptions,
  deny,
  type Extras,
} from "./decision.js";
export { CutOffError, HandlerError, HostError } from "./error.js";
export type { AdmissionRequest } from "./gen/portcullis/admission/v1/admission_pb.js";
export type { Awaitable, Handler, Handlers, HookOptions, Initializer, MutateOptions, ReadyCheck } from "./hook.js";
export { Host, type HostOptions, type RunOptions } from "./host.js";
export { type Log, type Logger, silentLogger } from "./logger.js";
export { annotation, type Labelled, label, setAnnotation, setLabel } from "./metadata.js";
export { change, type DifferenceOptions, difference, patch } from "./patch.js";
export {
  type CallInfo,
  type CallTime,
  type CreateRequest,
  type DeleteRequest,
  type Kind,
  type KubernetesObject,
  type Mode,
  type OperationName,
  Request,
  type Resource,
  type Stage,
  type UpdateRequest,
} from "./request.js";
export type { OpenStream, Stream, StreamEvents } from "./stream.js";
export { plaintext, type Security, type TLSFiles, tlsFiles, tlsOptions } from "./tls.js";
