import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { silentLogger } from "@portcullis-mesh/host";
import { createRequest, deleteRequest, FakeDispatcher, updateRequest } from "@portcullis-mesh/host/testing";
import { newHost } from "../src/policy.js";

interface Case {
  name: string;
  hook: string;
  operation: "CREATE" | "UPDATE" | "DELETE";
  object: object;
  oldObject: object;
  verdict: object;
}

/** Those of the same policy in other languages. */
const cases = JSON.parse(readFileSync("cases.json", "utf8")) as Case[];

function start(): Promise<FakeDispatcher> {
  return FakeDispatcher.start(newHost({ logger: silentLogger }));
}

const requests = {
  CREATE: ({ object }: Case) => createRequest(object),
  UPDATE: ({ oldObject, object }: Case) => updateRequest(oldObject, object),
  DELETE: ({ oldObject }: Case) => deleteRequest(oldObject),
};

for (const c of cases) {
  test(c.name, async () => {
    await using dispatcher = await start();
    const { allowed, status, patch } = await dispatcher.review(c.hook, requests[c.operation](c));
    const verdict: Record<string, unknown> = { allowed };
    if (status) {
      const causes = status.details?.causes.map(({ field, message }) => ({ field, message }));
      verdict.status = { code: status.code, message: status.message, causes };
    }
    if (patch.length > 0) {
      verdict.patch = JSON.parse(new TextDecoder().decode(patch));
    }
    assert.deepEqual(verdict, c.verdict);
  });
}

test("The mesh may ask for the label ahead of its turn.", async () => {
  await using dispatcher = await start();
  const offers = (await dispatcher.hello).hooks.map(({ name, speculate }) => [name, speculate]);
  assert.deepEqual(Object.fromEntries(offers), { "imagepolicy.example.com": false, "team-label.example.com": true });
});
