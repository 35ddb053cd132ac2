import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { Piscina } from "piscina";
import { Host, silentLogger } from "../src/index.js";
import { createRequest, FrameDispatcher } from "./support/dispatcher.js";

suite("worker threads", () => {
  test("the loop is free while a worker computes, and the signal ends it", async () => {
    const pool = new Piscina({ filename: new URL("./support/judge.js", import.meta.url).href, maxThreads: 1 });
    const host = new Host({ name: "test", logger: silentLogger }).validate("v", (request) =>
      pool.run(Uint8Array.from(request.rawObject ?? []), { signal: request.signal }),
    );
    await using mesh = await FrameDispatcher.start(host);
    const asked: string[] = [];
    const review = mesh.review("v", createRequest("{}")).then((r) => {
      asked.push("review");
      return r;
    });
    await mesh.ping();
    assert.deepEqual(asked, [], "the ping waited for the worker");
    assert.equal((await review).auditAnnotations.bytes, "2");
    const late = await mesh.ask("v", createRequest("{}"), { remainingMs: 250 });
    assert.equal(late.outcome.case, "cancelled");
    await pool.destroy();
  });
});
