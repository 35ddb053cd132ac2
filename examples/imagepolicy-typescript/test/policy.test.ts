import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLogger } from "@portcullis-mesh/host";
import { FakeDispatcher, runCases } from "@portcullis-mesh/host/testing";
import { newHost } from "../src/policy.js";

// The file has the same cases as the policy in other languages.
runCases(test, "cases.yaml", () => newHost({ logger: silentLogger }));

test("The mesh may ask for the label ahead of its turn.", async () => {
  await using dispatcher = await FakeDispatcher.start(newHost({ logger: silentLogger }));
  const offers = dispatcher.hooks.map(({ name, speculate }) => [name, speculate]);
  assert.deepEqual(Object.fromEntries(offers), { "imagepolicy.example.com": false, "team-label.example.com": true });
});
