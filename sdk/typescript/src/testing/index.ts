/**
 * A fake dispatcher, to test hosts without a mesh.
 *
 * @packageDocumentation
 */

export { FakeDispatcher } from "./dispatcher.js";
export { createRequest, deleteRequest, type TestObject, updateRequest } from "./requests.js";
export { type AskOptions, FakeSession, PATIENCE } from "./session.js";
