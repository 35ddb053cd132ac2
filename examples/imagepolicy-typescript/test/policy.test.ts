import assert from "node:assert/strict";
import { test } from "node:test";
import { Host, silentLogger } from "@portcullis-mesh/host";
import { createRequest, deleteRequest, FakeDispatcher } from "@portcullis-mesh/host/testing";
import { register } from "../src/policy.js";

const POLICY = "imagepolicy.example.com";
const LABEL = "team-label.example.com";
const pinned = { name: "a", image: "nginx@sha256:0a" };
const loose = { name: "b", image: "nginx:1.29" };

function start(): Promise<FakeDispatcher> {
  return FakeDispatcher.start(register(new Host({ name: "imagepolicy", logger: silentLogger })));
}

function pod(spec: object, metadata: object = {}): object {
  return { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "shop", ...metadata }, spec };
}

const cases: [string, object, string | undefined][] = [
  ["by digest", { containers: [pinned] }, undefined],
  ["by tag", { containers: [pinned, loose] }, "spec.containers[1].image"],
  ["by tag, at the start", { initContainers: [loose] }, "spec.initContainers[0].image"],
  [
    "by tag, for a debugger",
    { containers: [pinned], ephemeralContainers: [loose] },
    "spec.ephemeralContainers[0].image",
  ],
  ["by nothing", { containers: [{ name: "c" }] }, "spec.containers[0].image"],
];
for (const [name, spec, field] of cases) {
  test(`an image named ${name} is ${field ? "denied" : "allowed"}`, async () => {
    await using mesh = await start();
    const { allowed, status } = await mesh.review(POLICY, createRequest(pod(spec)));
    assert.deepEqual(
      [allowed, status?.details?.causes[0]?.field, status?.code],
      [!field, field, field ? 403 : undefined],
    );
  });
}

test("a denial names the image", async () => {
  await using mesh = await start();
  const { status } = await mesh.review(POLICY, createRequest(pod({ containers: [loose] })));
  assert.equal(status?.message, "images are named by digest here: nginx:1.29");
});

test("a Pod may be deleted", async () => {
  await using mesh = await start();
  assert.equal((await mesh.review(POLICY, deleteRequest(pod({ containers: [loose] })))).allowed, true);
  assert.equal((await mesh.review(LABEL, deleteRequest(pod({})))).patch.length, 0);
});

test("the label of the team is added where it is missing", async () => {
  await using mesh = await start();
  const patchOf = async (metadata: object) =>
    new TextDecoder().decode((await mesh.review(LABEL, createRequest(pod({}, metadata)))).patch);
  assert.equal(await patchOf({}), '[{"op":"add","path":"/metadata/labels","value":{"team":"shop"}}]');
  assert.equal(await patchOf({ labels: { a: "b" } }), '[{"op":"add","path":"/metadata/labels/team","value":"shop"}]');
  assert.equal(await patchOf({ labels: { team: "other" } }), "");
});

test("the mesh may ask for the label ahead of its turn", async () => {
  await using mesh = await start();
  const { hooks } = await mesh.hello;
  assert.deepEqual(
    hooks.map(({ name, speculate }) => [name, speculate]),
    [
      [POLICY, false],
      [LABEL, true],
    ],
  );
});
