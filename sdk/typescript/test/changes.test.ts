import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { suite, test } from "node:test";
import jsonpatch from "fast-json-patch";
import { difference, merge, type Operation } from "../src/changes.js";
import { randomNumbers } from "./support/random.js";

/** A case of every SDK. Documents are texts: they keep their numbers. */
interface Vector {
  readonly name: string;
  readonly raw: string;
  readonly before?: string;
  readonly after: string;
  readonly object: string;
  readonly patch: string;
}

const VECTORS = join(import.meta.dirname, "../../../conformance/changes.json");
const vectors = JSON.parse(readFileSync(VECTORS, "utf8")) as Vector[];

/** apply is a library's own JSON Patch. */
function apply(document: unknown, patch: readonly Operation[]): unknown {
  return jsonpatch.applyPatch(structuredClone(document), structuredClone(patch) as [], true, true, false).newDocument;
}

suite("changes", () => {
  for (const { name, raw, before = raw, after, object, patch } of vectors) {
    test(name, () => {
      const merged = merge(JSON.parse(raw), JSON.parse(before), JSON.parse(after));
      assert.deepEqual(merged, JSON.parse(object));
      const made = difference(JSON.parse(raw), merged);
      assert.deepEqual(made, JSON.parse(patch));
      assert.deepEqual(apply(JSON.parse(raw), made), JSON.parse(object));
    });
  }

  test("a name that is a member of every object is a name like any other", () => {
    const [from, to] = [JSON.parse('{"a": {}}'), JSON.parse('{"a": {"__proto__": {}, "toString": 2}}')];
    const text = JSON.stringify(to);
    assert.equal(JSON.stringify(merge(from, from, to)), text);
    assert.deepEqual(
      difference(from, to).map(({ path }) => path),
      ["/a/__proto__", "/a/toString"],
    );
    assert.equal(difference(to, from).length, 2);
  });

  test("operations are in the order of code points", () => {
    const paths = difference({}, { "\u{10000}": 1, "\uffee": 2, a: 3 }).map(({ path }) => path);
    assert.deepEqual(paths, ["/a", "/\uffee", "/\u{10000}"]);
  });

  test("a large patch is no longer than the object, but for the members of the root", () => {
    const from = { same: "x", spec: { items: Array.from({ length: 3000 }, (_, i) => ({ name: `n${i}`, on: true })) } };
    const to = structuredClone(from);
    for (const item of to.spec.items) {
      item.on = false;
    }
    assert.deepEqual(difference(from, to), [{ op: "replace", path: "/spec", value: to.spec }]);
    const same = "x".repeat(1 << 20);
    assert.equal(difference({ ...from, same }, { ...to, same }).length, 3000, "shorter than the object");
    from.spec.items.splice(1000);
    to.spec.items.splice(1000);
    assert.equal(difference(from, to).length, 1000, "below 64 KiB");
  });

  test("a patch of any two documents makes the one of the other", () => {
    const documents = new Documents(1);
    for (let i = 0; i < 3000; i++) {
      const from = documents.any(4);
      const to = i % 3 === 0 ? documents.any(4) : documents.edited(from);
      assert.deepEqual(apply(from, difference(from, to)), to);
      assert.deepEqual(merge(from, from, to), to);
    }
  });

  test("what a model drops stays, and what it adds is not written", () => {
    const documents = new Documents(2);
    for (let i = 0; i < 3000; i++) {
      const raw = { spec: documents.any(4), status: documents.any(2) };
      const before = modelled(raw);
      const after = documents.edited(before);
      const merged = merge(raw, before, after);
      assert.deepEqual(modelled(merged), modelled(after), JSON.stringify({ raw, before, after }));
      assert.deepEqual(merge(raw, before, structuredClone(before)), raw);
      assert.deepEqual(apply(raw, difference(raw, merged)), merged);
    }
  });
});

/** modelled is a document as a model writes it: without members that it does not know, and with nulls for those that it misses. */
function modelled(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(modelled);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const known = Object.entries(value).filter(([name, member]) => name !== "unknown" && member !== null);
  return { later: null, ...Object.fromEntries(known.map(([name, member]) => [name, modelled(member)])) };
}

/** Documents makes random documents, the same ones in each run. */
class Documents {
  readonly #next: () => number;

  constructor(seed: number) {
    this.#next = randomNumbers(seed);
  }

  any(depth: number): unknown {
    const size = this.#below(4);
    switch (depth === 0 ? 0 : this.#below(4)) {
      case 0:
        return this.#one([true, false, 0, 1, 2.5, "", "a", "b", {}, []]);
      case 1:
        return Array.from({ length: size }, () => this.any(depth - 1));
      default: {
        const names = Array.from({ length: size }, () => this.#name());
        return Object.fromEntries(
          names.map((name) => [name, name === "name" ? this.#one(["x", "y", ""]) : this.any(depth - 1)]),
        );
      }
    }
  }

  /** A copy with some changes. */
  edited(value: unknown): unknown {
    if (this.#below(8) === 0) {
      return this.any(2);
    }
    if (Array.isArray(value)) {
      const items = value.filter(() => this.#below(6) > 0).map((item) => this.edited(item));
      const added = this.#below(3) === 0 ? [this.any(2)] : [];
      return this.#below(5) === 0 ? [...items, ...added].reverse() : [...added, ...items];
    }
    if (typeof value !== "object" || value === null) {
      return value;
    }
    const kept = Object.entries(value).filter(([, member]) => member === null || this.#below(6) > 0);
    const added = this.#below(3) === 0 ? [[this.#name(), this.any(2)] as const] : [];
    return Object.fromEntries([...kept.map(([name, member]) => [name, this.edited(member)] as const), ...added]);
  }

  #name(): string {
    return this.#one(["name", "a", "b/~", "port", "unknown", "\u{10000}", "\uffee"]);
  }

  #one<T>(values: readonly T[]): T {
    return values[this.#below(values.length)] as T;
  }

  #below(n: number): number {
    return Math.floor(this.#next() * n);
  }
}
