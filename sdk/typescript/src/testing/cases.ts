import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Host } from "../host.js";
import { FakeDispatcher } from "./dispatcher.js";
import type { TestRequest } from "./requests.js";
import type { Verdict } from "./verdict.js";

/** What a test expects of a verdict. What is absent may be anything; `message` is a part of the message. */
export type Expected = Partial<Verdict>;

/** A request to a hook and what is expected, as a line of a table. */
export interface Case extends TestRequest {
  /** Name of the test. */
  readonly name: string;
  /** May be absent where the host has one hook. */
  readonly hook?: string;
  /** What the hook answers. */
  readonly expect: Expected;
}

/** Registers a test: `test` of `node:test`, vitest, or another. */
export type TestFunction = (name: string, run: () => Promise<void>) => unknown;

/** runCases makes a test of each case of a table in YAML. It needs the package `yaml`, unless the table is JSON. */
export function runCases(test: TestFunction, file: string | URL, newHost: () => Host): void {
  for (const c of readCases(file)) {
    test(c.name, async () => {
      await using dispatcher = await FakeDispatcher.start(newHost());
      await checkCase(dispatcher, c);
    });
  }
}

/** readCases reads a table. */
export function readCases(file: string | URL): readonly Case[] {
  const text = readFileSync(file, "utf8");
  return String(file).endsWith(".json") ? JSON.parse(text) : createRequire(import.meta.url)("yaml").parse(text);
}

/** checkCase puts the request of a case, and throws an AssertionError if the verdict is not what is expected. */
export async function checkCase(dispatcher: FakeDispatcher, c: Case): Promise<void> {
  const { name, hook = onlyHook(dispatcher), expect, ...request } = c;
  const verdict = await dispatcher.review(hook, request);
  const got: Record<string, unknown> = {};
  for (const member of Object.keys(expect) as (keyof Verdict)[]) {
    assert.ok(member in verdict, `${name}: expect has no member ${member}`);
    got[member] = verdict[member];
  }
  if (expect.message !== undefined && verdict.message.includes(expect.message)) {
    got.message = expect.message;
  }
  assert.deepEqual(got, expect, name);
}

function onlyHook({ hooks: [hook, ...others] }: FakeDispatcher): string {
  assert.ok(hook && others.length === 0, "a case names no hook, and the host has several");
  return hook.name;
}
