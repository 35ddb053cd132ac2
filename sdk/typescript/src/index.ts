/**
 * Hosts of Portcullis: programs that dial the dispatchers of a mesh and serve Kubernetes admission hooks. README.md is the manual.
 *
 * @packageDocumentation
 */

export type { HookStatus, SessionStatus, Status } from "./board.js";
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
export { type AdmissionRequest, Stage } from "./gen/portcullis/admission/v1/admission_pb.js";
export { Mode, State } from "./gen/portcullis/host/v1/host_pb.js";
export type { Handler, HookOptions, ReadyCheck } from "./hook.js";
export { Host, type HostOptions, type RunOptions } from "./host.js";
export type { Initializer } from "./initializer.js";
export type { HandlerContext } from "./invocation.js";
export { jsonLogger, type Logger, silentLogger } from "./logger.js";
export { change, type DifferenceOptions, difference, patch } from "./patch.js";
export { type CallInfo, type KubernetesObject, Request, type StageName } from "./request.js";
export type { OpenStream, Stream, StreamEvents } from "./stream.js";
export { plaintext, type Security, type TLSFiles, tlsFiles, tlsOptions } from "./tls.js";
