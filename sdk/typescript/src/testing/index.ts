/**
 * A fake dispatcher, to test hosts without a mesh.
 *
 * @packageDocumentation
 */

export { type Case, checkCase, type Expected, readCases, runCases, type TestFunction } from "./cases.js";
export { FakeDispatcher, type OfferedHook, type ReviewOptions } from "./dispatcher.js";
export { newRequest, type TestObject, type TestRequest } from "./requests.js";
export type { Verdict } from "./verdict.js";
