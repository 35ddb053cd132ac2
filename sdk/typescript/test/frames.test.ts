import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { create, type DescMessage, fromBinary } from "@bufbuild/protobuf";
import { Outbox } from "../src/core/outbox.js";
import { encodeVerdict, failure, shorten } from "../src/core/verdict.js";
import {
  ConnectRequestSchema,
  ConnectResponseSchema,
  ReviewSchema,
  ReviewsSchema,
  VerdictSchema,
  VerdictsSchema,
} from "../src/gen/portcullis/host/v1/host_pb.js";
import * as view from "../src/gen/portcullis/sdk/v1/frames_pb.js";
import { prefix, Splitter, statusText } from "../src/grpc_frames.js";

suite("the view of the contract", () => {
  const fields = (message: DescMessage) => message.fields.map(({ name, number }) => `${number} ${name}`);
  const pairs: [DescMessage, DescMessage][] = [
    [view.IncomingSchema, ConnectResponseSchema],
    [view.OutgoingSchema, ConnectRequestSchema],
    [view.ReviewSchema, ReviewSchema],
    [view.ReviewsSchema, ReviewsSchema],
    [view.VerdictsSchema, VerdictsSchema],
  ];
  for (const [mine, contract] of pairs) {
    test(`${mine.name} has the fields of ${contract.name}`, () => assert.deepEqual(fields(mine), fields(contract)));
  }
});

suite("outbox", () => {
  const verdict = (bytes: number) => new Uint8Array(bytes).fill(1);
  const sizes = (outbox: Outbox) => {
    const frames: number[] = [];
    for (let frame = outbox.take(); frame; frame = outbox.take()) {
      frames.push(frame.length);
    }
    return frames;
  };

  test("a dispatcher without batches gets each verdict in a frame", () => {
    const outbox = new Outbox();
    outbox.pushVerdict(verdict(10));
    outbox.pushVerdict(verdict(10));
    assert.equal(outbox.waiting, 2);
    assert.deepEqual(sizes(outbox), [12, 12]);
    assert.equal(outbox.waiting, 0);
  });

  test("a frame has 64 verdicts at most, and no verdict passes another frame", () => {
    const outbox = new Outbox();
    outbox.allowBatches(1 << 20);
    for (let i = 0; i < 65; i++) {
      outbox.pushVerdict(verdict(10));
    }
    outbox.push({ case: "drain", value: { $typeName: "portcullis.host.v1.HostDrain", lastStartedCallId: 1n } });
    outbox.pushVerdict(verdict(10));
    assert.deepEqual(sizes(outbox), [64 * 12 + 3, 12, 4, 12]);
  });

  test("a frame of several verdicts has what the dispatcher takes, and 64 KiB at most", () => {
    const outbox = new Outbox();
    outbox.allowBatches(1 << 20);
    for (let i = 0; i < 50; i++) {
      outbox.pushVerdict(verdict(4000));
    }
    const frames = sizes(outbox);
    assert.equal(frames.length, 4);
    assert.ok(frames.every((size) => size <= 64 << 10));
  });
});

suite("verdicts that are too large", () => {
  test("text is cut between characters", () => {
    assert.equal(shorten("äöü", 6), "äöü");
    assert.equal(shorten("ä".repeat(20), 25), `${"ä".repeat(7)} ... (cut)`);
    assert.equal(shorten("abc", 2), "");
  });

  test("a denial stays a denial, and fits", () => {
    const denied = create(VerdictSchema, {
      callId: 7n,
      outcome: {
        case: "response",
        value: {
          $typeName: "portcullis.admission.v1.AdmissionResponse",
          ...{ uid: "", allowed: false, patch: new Uint8Array(), patchType: "", auditAnnotations: {} },
          warnings: ["w".repeat(1000)],
          status: {
            $typeName: "portcullis.admission.v1.Status",
            ...{ status: "Failure", message: "é".repeat(1000), reason: "Forbidden", code: 422 },
          },
        },
      },
    });
    const encoded = encodeVerdict(denied, 300);
    const { outcome } = fromBinary(VerdictSchema, encoded);
    assert.ok(encoded.length <= 300);
    assert.ok(outcome.case === "response" && !outcome.value.allowed && outcome.value.status?.code === 422);
    assert.match(outcome.value.status.message, /^é+ \.\.\. \(cut\)$/);
  });

  test("the text of a failure is at most 1 KiB", () => {
    const outcome = failure("x".repeat(5000));
    assert.ok(outcome.case === "error" && outcome.value.message.length === 1024);
  });
});

suite("gRPC's frames", () => {
  const messages = [new Uint8Array(0), new Uint8Array(3).fill(7), new Uint8Array(100_000).fill(8)];
  const stream = Buffer.concat(messages.flatMap((m) => [prefix(m), m]));
  const all = (splitter: Splitter) => {
    const found: Buffer[] = [];
    for (let next = splitter.next(); next; next = splitter.next()) {
      found.push(next);
    }
    return found;
  };

  for (const size of [1, 4, 5, 6, 16_384, stream.length]) {
    test(`messages are found in parts of ${size} bytes`, () => {
      const splitter = new Splitter(100_000);
      const found: Buffer[] = [];
      for (let at = 0; at < stream.length; at += size) {
        splitter.add(stream.subarray(at, at + size));
        found.push(...all(splitter));
      }
      assert.deepEqual(
        found.map((m) => m.length),
        [0, 3, 100_000],
      );
      assert.ok(found[2]?.every((byte) => byte === 8));
    });
  }

  test("one that is too large or compressed is refused before it has come", () => {
    const large = new Splitter(99);
    large.add(prefix(new Uint8Array(100)));
    assert.throws(() => large.next(), /a frame has 100 bytes, this host takes 99/);
    const compressed = new Splitter(99);
    compressed.add(Buffer.from([1, 0, 0, 0, 0]));
    assert.throws(() => compressed.next(), /compressed/);
  });

  test("a status is a text for people", () => {
    assert.equal(statusText(7, "no%20grant"), "PERMISSION_DENIED: no grant");
    assert.equal(statusText(14, ""), "UNAVAILABLE");
    assert.equal(statusText(99, "%"), "status 99: %");
  });
});
