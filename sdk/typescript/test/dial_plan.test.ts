import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { suite, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { type DialChanges, DialPlan, type Endpoint } from "../src/core/dial_plan.js";
import { type Peer, PeerSchema } from "../src/gen/portcullis/host/v1/host_pb.js";
import { backoffDelay } from "../src/manager.js";

/** The transcript of the Go SDK: see hostsdk/dial_plan_test.go for its commands. */
const TRANSCRIPT = join(import.meta.dirname, "../../../../hostsdk/testdata/dial_plan.txt");

function peer(dispatcherId: string, ...addresses: string[]): Peer {
  return create(PeerSchema, { dispatcherId, addresses });
}

/** Play carries out the commands of a transcript. */
class Play {
  #plan = new DialPlan([], "");
  #endpoints = new Map<string, Endpoint>(); // The first one, by key of the loop.

  step(command: string, input: string[]): string {
    const [verb = "", first = "", ...more] = command.split(" ");
    const key = first.replaceAll("_", " ");
    if (verb === "plan") {
      const words = [first, ...more];
      const tls = words.find((word) => word.startsWith("tls="))?.slice(4) ?? "";
      this.#plan = new DialPlan(
        words.filter((word) => !word.startsWith("tls=")),
        tls,
      );
      return "";
    }
    return this.#describe(
      this.#change(
        verb,
        key,
        more.join(" "),
        input.map((line) => peer(...(line.split(" ") as [string]))),
      ),
    );
  }

  #change(verb: string, key: string, argument: string, peers: Peer[]): DialChanges {
    const at = this.#endpoints.get(key) ?? { address: "", serverName: "" };
    const ips = /ip=\((.*)\)/.exec(argument)?.[1];
    switch (verb) {
      case "resolve":
        return this.#plan.resolved(key, ips ? ips.split(", ") : []);
      case "welcomed":
        return this.#plan.welcomed(key, at, argument.replace("id=", ""), peers);
      case "leaving":
        return this.#plan.leaving(key, at, peers);
      case "ended":
        return this.#plan.ended(key);
      case "gone":
        return this.#plan.gone(key);
      default:
        throw new Error(`unknown command ${verb}`);
    }
  }

  #describe({ start, stop }: DialChanges): string {
    const lines = stop.map((key) => `stop ${key}`);
    for (const target of start) {
      const [first] = target.endpoints;
      assert.ok(first);
      this.#endpoints.set(target.key, first);
      const where = target.endpoints.map((e) => `${e.address} as ${e.serverName}`).join(" ");
      lines.push(`start ${target.key} ${where} after ${target.delay / 1000}s`);
    }
    return [...lines, `loops: ${this.#plan}`].join("\n");
  }
}

suite("dial plan", () => {
  test("the transcript of the Go SDK", () => {
    const play = new Play();
    let played = 0;
    for (const step of readFileSync(TRANSCRIPT, "utf8").split(/\n\n+/)) {
      const [before = "", expected = ""] = step.trim().split(/\n?----\n?/);
      const [command = "", ...input] = before.split("\n").filter((line) => !line.startsWith("#"));
      assert.equal(play.step(command, input).trim(), expected.trim(), `${command}\n${input.join("\n")}`);
      played++;
    }
    assert.ok(played > 40, `only ${played} steps`);
  });

  test("a dispatcher that names peers without end costs a bounded number of dials", () => {
    const plan = new DialPlan(["mesh:1"], "");
    plan.resolved("mesh:1", ["10.0.0.1"]);
    const peers = Array.from({ length: 1000 }, (_, i) => peer(`d${i}`, `10.1.${i >> 8}.${i & 255}:1`));
    const { start } = plan.welcomed("10.0.0.1:1", { address: "10.0.0.1:1", serverName: "mesh" }, "d", peers);
    assert.equal(start.length, 63);
  });

  test("IPv6 addresses are dialled in brackets", () => {
    const { start } = new DialPlan(["[::1]:8444"], "").resolved("[::1]:8444", ["::1"]);
    assert.deepEqual(start[0]?.endpoints, [{ address: "[::1]:8444", serverName: "::1" }]);
  });
});

suite("back-off", () => {
  test("it grows from 100 ms to 5 s, and chance spreads it", () => {
    const longest = [0, 1, 2, 5, 6, 1000].map((attempts) => backoffDelay(attempts, 1));
    assert.deepEqual(longest, [200, 400, 800, 5000, 5000, 5000]);
    assert.equal(backoffDelay(1000, 0), 100);
  });
});
