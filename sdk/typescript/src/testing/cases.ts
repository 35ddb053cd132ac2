import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Host } from "../host.js";
import { FakeDispatcher } from "./dispatcher.js";
import type { TestRequest } from "./requests.js";
import type { Verdict } from "./verdict.js";

/** What a test expects of a verdict. What is absent may be anything, also the reason of a cause; `message` is a part of the message. */
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

const ASKED = "name hook expect operation object oldObject namespace user resource subresource options dryRun";
const EXPECTED = "allowed code reason message causes warnings audit object patch";
const MEMBERS = [...ASKED.split(" "), ...EXPECTED.split(" ").map((name) => `expect.${name}`)];

/** The objects of a case, by its operation. */
const OBJECTS: Readonly<Record<string, readonly string[]>> = {
  CREATE: ["object"],
  UPDATE: ["object", "oldObject"],
  DELETE: ["oldObject"],
};

/** runCases makes a test of each case of a table in YAML. It needs the package `yaml`, unless the table is JSON. */
export function runCases(test: TestFunction, file: string | URL, newHost: () => Host): void {
  for (const c of readCases(file)) {
    test(c.name, async () => {
      await using dispatcher = await FakeDispatcher.start(newHost());
      await checkCase(dispatcher, c);
    });
  }
}

/** readCases reads a table. It throws if the file is none. */
export function readCases(file: string | URL): readonly Case[] {
  const text = readFileSync(file, "utf8");
  const table: unknown = String(file).endsWith(".json") ? JSON.parse(text) : parseYAML(text);
  if (!Array.isArray(table)) {
    throw new Error(`${file} is no list of cases`);
  }
  return table.map(readCase);
}

function parseYAML(text: string): unknown {
  const require = createRequire(import.meta.url);
  try {
    require.resolve("yaml");
  } catch (error) {
    throw new Error("a table in YAML takes the package yaml: npm install --save-dev yaml", { cause: error });
  }
  return require("yaml").parse(text);
}

function readCase(entry: object): Case {
  const c = { operation: "CREATE", expect: {}, ...entry } as Case;
  const members = [...Object.keys(c), ...Object.keys(c.expect ?? {}).map((name) => `expect.${name}`)];
  const missing = ["name", "expect.allowed", ...(OBJECTS[c.operation ?? ""] ?? [])].filter((m) => !members.includes(m));
  const unknown = members.filter((m) => !MEMBERS.includes(m));
  if (missing.length > 0 || unknown.length > 0) {
    throw new Error(`case ${JSON.stringify(c.name)}: missing are [${missing}], unknown are [${unknown}]`);
  }
  return c;
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
  if (expect.causes) {
    got.causes = verdict.causes.map(({ reason, ...cause }, i) =>
      expect.causes?.[i]?.reason === undefined ? cause : { ...cause, reason },
    );
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
