import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { suite, test } from "node:test";
import jsonpatch from "fast-json-patch";
import type { Pod } from "kubernetes-types/core/v1.js";
import {
  allow,
  annotation,
  change,
  type Denial,
  Denied,
  deny,
  HandlerError,
  Host,
  type KubernetesObject,
  label,
  patch,
  type Request,
  setAnnotation,
  setLabel,
  silentLogger,
} from "../src/index.js";
import { checkCase, FakeDispatcher, newRequest, readCases, runCases } from "../src/testing/index.js";
import { patched } from "../src/testing/verdict.js";

const pod: Pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "shop" } };

function newHost(): Host {
  return new Host({ name: "test", logger: silentLogger });
}

suite("FakeDispatcher", () => {
  test("a verdict has the object with the patch applied, in types of its own", async () => {
    const host = newHost()
      .mutate<Pod>("m", (request) => change(request, (object) => setLabel(object, "team", request.namespace)))
      .validate("v", () => {
        throw new Denied("no", {
          code: 422,
          reason: "Invalid",
          causes: [{ field: "f", message: "m" }],
          warnings: ["w"],
        });
      });
    await using mesh = await FakeDispatcher.start(host);
    assert.deepEqual(mesh.hooks, [
      { name: "m", stage: "mutate", speculate: false },
      { name: "v", stage: "validate", speculate: false },
    ]);
    const changed = await mesh.review<Pod>("m", { object: pod });
    assert.deepEqual(changed.object, { ...pod, metadata: { ...pod.metadata, labels: { team: "shop" } } });
    assert.deepEqual(changed.patch, [{ op: "add", path: "/metadata/labels", value: { team: "shop" } }]);
    assert.deepEqual(await mesh.review("v", { object: pod }), {
      allowed: false,
      code: 422,
      message: "no",
      reason: "Invalid",
      causes: [{ field: "f", message: "m", reason: "" }],
      warnings: ["w"],
      audit: {},
      patch: [],
      object: undefined,
    });
    assert.equal((await mesh.review("m", { oldObject: pod })).object, undefined);
  });

  test("a call without a verdict rejects, and so does a hook that is not offered", async () => {
    const called = new AbortController();
    const host = newHost()
      .validate("v", () => {
        throw new HandlerError("registry is down");
      })
      .validate("both", () => allow())
      .mutate("both", () => patch([{ op: "replace", path: "/none", value: 1 }]))
      .validate("waits", ({ signal }) => {
        called.abort();
        return new Promise((_, reject) => signal.addEventListener("abort", reject));
      });
    await using mesh = await FakeDispatcher.start(host);
    await assert.rejects(mesh.review("v", {}), /^Error: hook v gave no decision: error registry is down$/);
    await assert.rejects(mesh.review("none", {}), /offers 0 hooks of the name none, want one: it has v \(validate\),/);
    await assert.rejects(mesh.review("both", {}), /offers 2 hooks of the name both/);
    assert.equal((await mesh.review("both", {}, { stage: "validate" })).allowed, true);
    await assert.rejects(mesh.review("both", { object: {} }, { stage: "mutate" }), /does not fit/);
    await assert.rejects(mesh.review("waits", {}, { signal: called.signal }), /no decision: cancelled/);
  });

  test("a review has what the test says of it", async () => {
    let seen: Request | undefined;
    const host = newHost().validate("v", (request) => {
      seen = request;
      return allow();
    });
    await using mesh = await FakeDispatcher.start(host);
    const resource = { group: "g", version: "v1", resource: "things" };
    const request = { object: {}, name: "n", namespace: "shop", user: { name: "jane", groups: ["dev"] }, resource };
    await mesh.review("v", request, { round: 1, mode: "shadow", remainingMs: 5_000_000 });
    assert.ok(seen);
    assert.deepEqual([seen.name, seen.namespace, seen.username, seen.groups], ["n", "shop", "jane", ["dev"]]);
    assert.deepEqual([seen.resource, seen.round, seen.mode], [resource, 1, "shadow"]);
    assert.ok(seen.remainingMs > 10_000);
  });

  test("the end of a host ends its calls", async () => {
    await assert.rejects(FakeDispatcher.start(newHost()), /the host has no hooks/);
  });
});

suite("requests", () => {
  test("have what an author asks for, without types of the contract", () => {
    const request = newRequest(
      {
        object: { apiVersion: "apps/v1", kind: "Deployment", metadata: { name: "web", namespace: "shop" } },
        oldObject: {},
        user: { name: "jane", groups: ["dev"], uid: "u", extra: { scopes: ["a", "b"] } },
        subresource: "scale",
        options: { kind: "UpdateOptions" },
        dryRun: true,
      },
      { hook: "h", mode: "shadow", remainingMs: 5 },
    );
    const { hook, stage, mode, round, operation, kind, resource, subresource, name, namespace, cluster } = request;
    assert.deepEqual([hook, stage, mode, round, operation], ["h", "validate", "shadow", 0, "UPDATE"]);
    assert.deepEqual(kind, { group: "apps", version: "v1", kind: "Deployment" });
    assert.deepEqual(resource, { group: "apps", version: "v1", resource: "deployments" });
    assert.deepEqual([subresource, name, namespace, cluster], ["scale", "web", "shop", "testing"]);
    const { username, groups, userUid, extra, uid, dryRun, options, remainingMs, traceparent } = request;
    assert.deepEqual([username, groups, userUid, extra], ["jane", ["dev"], "u", { scopes: ["a", "b"] }]);
    assert.deepEqual(
      [uid.length, dryRun, options, remainingMs, traceparent],
      [36, true, { kind: "UpdateOptions" }, 5, ""],
    );
  });

  test("a handler of an operation has its objects, and an operation without one is allowed", async () => {
    const judged: string[] = [];
    const host = newHost()
      .validate<Pod>("all", {
        create: ({ object }) => deny(`create ${object.metadata?.name}`),
        update: async ({ object, oldObject }) => deny(`update ${oldObject.metadata?.name} ${object.metadata?.name}`),
        delete: ({ oldObject }) => deny(`delete ${oldObject.metadata?.name}`),
      })
      .mutate("some", {
        update: (request) => {
          judged.push(request.operation);
          return allow();
        },
      });
    await using mesh = await FakeDispatcher.start(host);
    const message = async (request: object) => (await mesh.review("all", request)).message;
    assert.equal(await message({ object: pod }), "create a");
    assert.equal(await message({ object: pod, oldObject: pod }), "update a a");
    assert.equal(await message({ oldObject: pod }), "delete a");
    assert.equal(await message({ operation: "CONNECT" }), "");
    for (const [request, what] of [
      [{ operation: "CREATE" }, /to create came without its object/],
      [{ operation: "UPDATE", object: pod }, /to update came without its oldObject/],
      [{ operation: "UPDATE", oldObject: pod }, /to update came without its object/],
      [{ operation: "DELETE" }, /to delete came without its oldObject/],
    ] as const) {
      await assert.rejects(mesh.review("all", request), what);
    }
    assert.equal((await mesh.review("some", { object: pod })).allowed, true);
    assert.equal((await mesh.review("some", { object: pod, oldObject: pod })).allowed, true);
    assert.deepEqual(judged, ["UPDATE"]);
  });

  test("a class may judge the operations", async () => {
    class Policy {
      readonly message = "no";

      delete(): Denial {
        return deny(this.message);
      }
    }
    await using mesh = await FakeDispatcher.start(newHost().validate("v", new Policy()));
    assert.equal((await mesh.review("v", { oldObject: pod })).message, "no");
  });

  test("labels and annotations are read and set in any object", () => {
    const object: KubernetesObject = {};
    assert.deepEqual([label(object, "a"), annotation(undefined, "a")], [undefined, undefined]);
    setLabel(object, "a", "1");
    setLabel(object, "b", "2");
    setAnnotation(object, "c", "3");
    setAnnotation(object, "d", "4");
    assert.deepEqual(object, { metadata: { labels: { a: "1", b: "2" }, annotations: { c: "3", d: "4" } } });
    assert.deepEqual([label(object, "b"), annotation(object, "c")], ["2", "3"]);
  });
});

suite("cases", () => {
  const file = join(tmpdir(), `portcullis-cases-${process.pid}.yaml`);
  const host = () =>
    newHost().mutate("m", ({ object, username }) =>
      object?.bad
        ? deny(`not for ${username}`, { causes: [{ field: "bad", message: "is bad", reason: "r" }] })
        : patch([{ op: "add", path: "/x", value: 1 }]),
    );
  writeFileSync(
    file,
    `
- name: bad is denied
  user: {name: jane}
  object: {bad: true}
  expect: {allowed: false, code: 403, reason: Forbidden, message: for jane, causes: [{field: bad, message: is bad}]}
- name: x is added
  object: {}
  expect: {allowed: true, object: {x: 1}, patch: [{op: add, path: /x, value: 1}]}
`,
  );
  runCases(test, file, host);

  test("a verdict that is not expected fails, and so does an expectation of something else", async () => {
    await using mesh = await FakeDispatcher.start(host());
    const [bad, good] = readCases(file);
    assert.ok(bad && good);
    const wrong = [
      { allowed: true },
      { code: 422 },
      { message: "for joe" },
      { warnings: ["w"] },
      { status: 403 },
      { object: {} },
      { patch: [{ op: "remove", path: "/x" }] },
      { audit: { k: "v" } },
      { reason: "Invalid" },
      { causes: [] },
      { causes: [{ field: "bad", message: "is bad", reason: "other" }] },
    ] as object[];
    for (const expect of wrong) {
      await assert.rejects(checkCase(mesh, { ...bad, expect }), { name: "AssertionError" }, JSON.stringify(expect));
    }
    await assert.rejects(checkCase(mesh, { ...good, expect: { patch: [] } }), { name: "AssertionError" });
    await using two = await FakeDispatcher.start(host().validate("v", () => allow()));
    await assert.rejects(checkCase(two, good), /names no hook/);
  });

  test("a table at fault is refused", () => {
    for (const [table, why] of [
      [
        "- {name: n, object: {}, expected: {allowed: true}}",
        /^case "n": missing are \[expect.allowed\], unknown are \[expected\]$/,
      ],
      ["- {name: n, object: {}, expect: {allowed: true, kind: 1}}", /unknown are \[expect.kind\]$/],
      ["- {name: n, object: {}, code: 1, expect: {allowed: true}}", /unknown are \[code\]$/],
      ["- {name: n, oldObject: {}, expect: {allowed: true}}", /missing are \[object\]/],
      ["- {name: n, operation: UPDATE, object: {}, expect: {allowed: true}}", /missing are \[oldObject\]/],
      ["- {object: {}, expect: }", /missing are \[name,expect.allowed\]/],
      ["- n", /unknown are \[0\]/],
      ["cases: []", /is no list of cases$/],
    ] as const) {
      writeFileSync(file, table);
      assert.throws(() => readCases(file), { message: why }, table);
    }
  });

  test("a patch is applied as a library applies it, or not at all", () => {
    const document = { a: [1, { b: 2 }], "c/~": "x" };
    const patches = [
      [{ op: "add", path: "/a/-", value: 3 }],
      [{ op: "add", path: "/a/0", value: { n: null } }],
      [{ op: "remove", path: "/a/0" }],
      [{ op: "replace", path: "/c~1~0", value: [] }],
      [{ op: "replace", path: "", value: [1] }],
      [{ op: "move", from: "/a/1/b", path: "/d" }],
      [{ op: "copy", from: "/a", path: "/a/1/b" }],
      [{ op: "test", path: "/a", value: [1, { b: 2 }] }],
    ] as const;
    for (const operations of patches) {
      const want = jsonpatch.applyPatch(structuredClone(document), structuredClone(operations) as never).newDocument;
      assert.deepEqual(patched(document, operations), want, JSON.stringify(operations));
    }
    for (const [op, path] of [
      ["remove", "/a/2"],
      ["remove", "/toString"],
      ["replace", "/a/length"],
      ["test", "/a"],
      ["remove", "/c~1~0/0"],
      ["add", "/c~1~0/0"],
      ["add", "/a/3"],
      ["add", "/a/01"],
      ["add", "/a/x"],
    ] as const) {
      assert.throws(() => patched(document, [{ op, path, value: 1 } as never]), /does not fit/, path);
    }
  });
});
