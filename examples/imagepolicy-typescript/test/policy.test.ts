import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { silentLogger } from "@portcullis-mesh/host";
import { FakeDispatcher, type TestRequest } from "@portcullis-mesh/host/testing";
import { newHost } from "../src/policy.js";

/** One of the cases of the same policy in other languages. */
interface Case extends TestRequest {
  name: string;
  hook: string;
  verdict: object;
}

const cases = JSON.parse(readFileSync("cases.json", "utf8")) as Case[];

function start(): Promise<FakeDispatcher> {
  return FakeDispatcher.start(newHost({ logger: silentLogger }));
}

for (const { name, hook, verdict: want, ...request } of cases) {
  test(name, async () => {
    await using dispatcher = await start();
    const { allowed, code, message, causes, patch } = await dispatcher.review(hook, request);
    const status = { code, message, causes: causes.map(({ field, message }) => ({ field, message })) };
    const verdict = { allowed, ...(allowed ? {} : { status }), ...(patch.length > 0 ? { patch } : {}) };
    assert.deepEqual(verdict, want);
  });
}

test("The mesh may ask for the label ahead of its turn.", async () => {
  await using dispatcher = await start();
  const offers = dispatcher.hooks.map(({ name, speculate }) => [name, speculate]);
  assert.deepEqual(Object.fromEntries(offers), { "imagepolicy.example.com": false, "team-label.example.com": true });
});
