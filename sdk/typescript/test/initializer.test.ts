import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { suite, test } from "node:test";
import type { Pod } from "kubernetes-types/core/v1.js";
import { Stage } from "../src/gen/portcullis/admission/v1/admission_pb.js";
import { deny, HandlerError, Host, HostError, patch, silentLogger } from "../src/index.js";
import { createRequest, deleteRequest, FrameDispatcher } from "./support/dispatcher.js";

const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "shop" }, spec: { later: 1 } };

function newHost(): Host {
  return new Host({ name: "test", logger: silentLogger });
}

function text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

suite("initializers", () => {
  test("what one makes of the object is a patch", async () => {
    const host = newHost()
      .initialize<Pod>("async", async (object, request) => {
        await Promise.resolve();
        assert.equal(request.stage, "initialize");
        object.metadata = { ...object.metadata, labels: { team: request.namespace } };
        return object;
      })
      .initialize("other", (object) => ({ ...object, x: 1 }))
      .initialize("same", (object) => object)
      .initialize("by-hand", () => patch('[{"op":"add","path":"/big","value":9007199254740993}]'))
      .initialize("custom", () => ({ kind: "Custom", allowed: false, message: "no denial" }));
    await using mesh = await FrameDispatcher.start(host);
    assert.deepEqual(
      (await mesh.hello).hooks.map(({ name, stage }) => [name, stage]),
      ["async", "other", "same", "by-hand", "custom"].map((name) => [name, Stage.INITIALIZE]),
    );
    const patchOf = async (hook: string) => text((await mesh.review(hook, createRequest(pod))).patch);
    assert.equal(await patchOf("async"), '[{"op":"add","path":"/metadata/labels","value":{"team":"shop"}}]');
    assert.equal(await patchOf("other"), '[{"op":"add","path":"/x","value":1}]');
    assert.equal(await patchOf("same"), "");
    assert.equal(await patchOf("by-hand"), '[{"op":"add","path":"/big","value":9007199254740993}]');
    assert.match(await patchOf("custom"), /"path":"\/allowed"/);
  });

  test("a denial refuses the object", async () => {
    const host = newHost().initialize("i", (object) => {
      object.x = "forgotten";
      return deny("no", { code: 422, reason: "Invalid", causes: [{ field: "spec", message: "bad" }] });
    });
    await using mesh = await FrameDispatcher.start(host);
    const { allowed, status, patch: none } = await mesh.review("i", createRequest(pod));
    assert.deepEqual(
      [allowed, status?.message, status?.code, status?.reason, none.length],
      [false, "no", 422, "Invalid", 0],
    );
    assert.equal(status?.details?.causes[0]?.field, "spec");
  });

  test("what is no object is a failure", async () => {
    const host = newHost()
      .initialize("nothing", () => undefined as unknown as object)
      .initialize("text", () => "x" as unknown as object)
      .initialize("authored", () => {
        throw new HandlerError("registry is down");
      })
      .initialize("secret", async () => {
        throw new Error("hunter2");
      });
    await using mesh = await FrameDispatcher.start(host);
    for (const [hook, message] of [
      ["nothing", "the initializer returned no object"],
      ["text", "the initializer returned no object"],
      ["authored", "registry is down"],
      ["secret", "handler failed"],
    ] as const) {
      const { outcome } = await mesh.ask(hook, createRequest(pod));
      assert.ok(outcome.case === "error", hook);
      assert.equal(outcome.value.message, message);
    }
  });

  test("none is called without an object", async () => {
    let called = false;
    const host = newHost().initialize("i", (object) => {
      called = true;
      return object;
    });
    await using mesh = await FrameDispatcher.start(host);
    const { outcome } = await mesh.ask("i", deleteRequest(pod));
    assert.ok(outcome.case === "error");
    assert.equal(outcome.value.message, "the request has no object to be initialized: it creates none");
    assert.equal(called, false);
  });

  test("one that is not ready says why, and is registered once", async () => {
    const host = newHost().initialize("i", (object) => object, {
      ready() {
        throw new HandlerError("the cache is empty");
      },
    });
    assert.throws(
      () => host.initialize("i", (object) => object),
      new HostError('hook "i" was registered twice to initialize'),
    );
    await using mesh = await FrameDispatcher.start(host);
    assert.equal((await mesh.probe("i")).message, "the cache is empty");
  });

  test("the program of README.md does what the page says", async () => {
    const readme = readFileSync(join(import.meta.dirname, "../../README.md"), "utf8");
    const block = /## Initializers.*?\n(host\.initialize<Pod>.*?)```/s.exec(readme)?.[1] ?? "";
    const host = newHost();
    new Function("host", "deny", block.replace("<Pod>", ""))(host, deny);
    await using mesh = await FrameDispatcher.start(host);
    const proxied = await mesh.review("sidecar.example.com", createRequest({ kind: "Pod", spec: { containers: [] } }));
    assert.match(text(proxied.patch), /"path":"\/spec\/containers\/0".*"name":"proxy"/);
    const refused = await mesh.review(
      "sidecar.example.com",
      createRequest({ kind: "Pod", spec: { hostNetwork: true } }),
    );
    assert.equal(refused.status?.message, "the sidecar has no place in the network of the node");
  });
});
