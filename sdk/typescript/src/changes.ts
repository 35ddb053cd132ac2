/** Changes of JSON documents, as docs/protocol.md says in "Changes". Pure: values are those of JSON.parse. */

/** One operation of a JSON Patch (RFC 6902). Paths are JSON pointers: `/metadata/labels/app.example.com~1name`. */
export type Operation =
  | { readonly op: "add" | "replace" | "test"; readonly path: string; readonly value: unknown }
  | { readonly op: "remove"; readonly path: string }
  | { readonly op: "move" | "copy"; readonly path: string; readonly from: string };

type Members = Readonly<Record<string, unknown>>;
type Items = readonly unknown[];

/** Below so many levels values are written whole, so that comparing at each level takes time in the size of the document. */
const MAX_DEPTH = 64;

/** How many bytes a patch may have, whatever the size of the object. */
const SMALL_PATCH = 64 << 10;

/** The members by which Kubernetes tells items of its lists apart. */
const KEYS = "name mountPath devicePath containerPort port key ip topologyKey uid type".split(" ");

/**
 * merge is what `raw` becomes by the change from `before` to `after`. They are the object as a model writes it: the model may drop members
 * of `raw`, and add defaults. What `before` and `after` agree on stays as `raw` has it.
 */
export function merge(raw: unknown, before: unknown, after: unknown, depth = 0): unknown {
  if (equal(before, after)) {
    return raw;
  }
  if (depth < MAX_DEPTH && isObject(raw) && isObject(after)) {
    return mergeMembers(raw, isObject(before) ? before : {}, after, depth + 1);
  }
  if (depth < MAX_DEPTH && isList(raw) && isList(before) && isList(after) && raw.length === before.length) {
    const merged = (i: number, item: unknown) => (i < 0 ? item : merge(raw[i], before[i], item, depth + 1));
    return Array.from(origins(before, after), (i, j) => merged(i, after[j]));
  }
  return raw === undefined || raw === null ? added(before, after) : after;
}

function mergeMembers(raw: Members, before: Members, after: Members, depth: number): Members {
  const merged = new Map(Object.entries(raw));
  for (const name of Object.keys(before)) {
    if (!Object.hasOwn(after, name)) {
      merged.delete(name);
    }
  }
  for (const [name, value] of Object.entries(after)) {
    const was = member(before, name);
    if (!equal(was, value)) {
      merged.set(name, merge(merged.get(name), was, value, depth));
    }
  }
  return Object.fromEntries(merged);
}

/** What `after` adds to `before`: a model writes empty members that the object lacks, and should not get. */
function added(before: unknown, after: unknown): unknown {
  if (!isObject(before) || !isObject(after)) {
    return after;
  }
  const changed = Object.entries(after).filter(([name, value]) => !equal(member(before, name), value));
  return Object.fromEntries(changed.map(([name, value]) => [name, added(member(before, name), value)]));
}

/** difference is the JSON Patch that makes `to` of `from`. If it is large, it is no longer than `to` but for names and paths. */
export function difference(from: unknown, to: unknown): Operation[] {
  const patch = operations(from, to, MAX_DEPTH);
  const size = sizeOf(patch);
  return size > SMALL_PATCH && size > sizeOf(to) ? operations(from, to, 1) : patch;
}

function operations(from: unknown, to: unknown, maxDepth: number): Operation[] {
  const patch: Operation[] = [];

  /** Writes what makes `is` of `was`, which differ. */
  function write(was: unknown, is: unknown, path: string, depth: number): void {
    if (depth < maxDepth && isObject(was) && isObject(is)) {
      writeMembers(was, is, path, depth);
    } else if (!(depth < maxDepth && isList(was) && isList(is) && writeItems(was, is, path, depth))) {
      patch.push({ op: "replace", path, value: is });
    }
  }

  function writeMembers(was: Members, is: Members, above: string, depth: number): void {
    const added = Object.keys(is).filter((name) => !Object.hasOwn(was, name));
    for (const name of ordered([...Object.keys(was), ...added])) {
      const path = `${above}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
      if (!Object.hasOwn(is, name)) {
        patch.push({ op: "remove", path });
      } else if (!Object.hasOwn(was, name)) {
        patch.push({ op: "add", path, value: is[name] });
      } else if (!equal(was[name], is[name])) {
        write(was[name], is[name], path, depth + 1);
      }
    }
  }

  /** Writes nothing, and returns false, if items have changed places. */
  function writeItems(was: Items, is: Items, above: string, depth: number): boolean {
    const origin = origins(was, is);
    const stays = new Uint8Array(was.length);
    let last = -1;
    for (const i of origin) {
      if (i >= 0 && i < last) {
        return false;
      }
      stays[i] = 1; // Of -1, nothing.
      last = Math.max(last, i);
    }
    for (let i = was.length - 1; i >= 0; i--) {
      if (stays[i] === 0) {
        patch.push({ op: "remove", path: `${above}/${i}` });
      }
    }
    origin.forEach((i, j) => {
      if (i < 0) {
        patch.push({ op: "add", path: `${above}/${j}`, value: is[j] });
      } else if (!equal(was[i], is[j])) {
        write(was[i], is[j], `${above}/${j}`, depth + 1);
      }
    });
    return true;
  }

  if (!equal(from, to)) {
    write(from, to, "", 0);
  }
  return patch;
}

/** origins are the indexes in `from` of what each item of `to` was; -1 for a new item. */
function origins(from: Items, to: Items): Int32Array {
  const origin = new Int32Array(to.length).fill(-1);
  const taken = new Uint8Array(from.length);
  const take = (i: number, j: number): void => {
    origin[j] = i;
    taken[i] = 1;
  };
  let front = 0;
  for (; front < Math.min(from.length, to.length) && equal(from[front], to[front]); front++) {
    take(front, front);
  }
  for (let i = from.length - 1, j = to.length - 1; Math.min(i, j) >= front && equal(from[i], to[j]); i--, j--) {
    take(i, j);
  }
  for (const identify of [whole, keyOf]) {
    if (taken.includes(0) && origin.includes(-1)) {
      const ids = from.map((item, i) => (taken[i] === 0 ? identify(item) : ""));
      const wanted = to.map((item, j) => (origin[j] === -1 ? identify(item) : ""));
      match(ids, wanted, take);
    }
  }
  origin.forEach((i, j) => {
    if (i < 0 && taken[j] === 0 && !has(to[j], "name")) {
      take(j, j);
    }
  });
  return origin;
}

/** match takes items of equal ids: those at the same position first, then the others in order. Empty ids match nothing. */
function match(ids: readonly string[], wanted: readonly string[], take: (i: number, j: number) => void): void {
  const waiting = new Map<string, number[]>(); // Last first.
  for (let i = ids.length - 1; i >= 0; i--) {
    const id = ids[i] ?? "";
    if (id !== "" && id !== wanted[i]) {
      waiting.set(id, waiting.get(id) ?? []);
      waiting.get(id)?.push(i);
    }
  }
  wanted.forEach((id, j) => {
    const i = id !== "" && ids[j] === id ? j : waiting.get(id)?.pop();
    if (i !== undefined) {
      take(i, j);
    }
  });
}

/** An id of all that an item holds, whatever the order of its members. */
function whole(item: unknown): string {
  if (isList(item)) {
    return `[${item.length}:${item.map(whole).join("")}`;
  }
  if (isObject(item)) {
    const names = Object.keys(item).sort();
    return `{${names.length}:${names.map((name) => whole(name) + whole(item[name])).join("")}`;
  }
  return typeof item === "string" ? `"${item.length}:${item}` : `${item};`;
}

/** The first of KEYS that an item has, with its value; empty if it has none. */
function keyOf(item: unknown): string {
  const key = KEYS.find((key) => has(item, key));
  return key === undefined ? "" : `${key}=${whole((item as Members)[key])}`;
}

/** Whether an item has a member that is not the empty text. */
function has(item: unknown, name: string): boolean {
  return isObject(item) && Object.hasOwn(item, name) && item[name] !== "";
}

function equal(a: unknown, b: unknown): boolean {
  if (isList(a)) {
    return isList(b) && a.length === b.length && a.every((item, i) => equal(item, b[i]));
  }
  if (!isObject(a) || !isObject(b)) {
    return a === b;
  }
  const names = Object.keys(a);
  return (
    names.every((name) => Object.hasOwn(b, name) && equal(a[name], b[name])) && names.length === Object.keys(b).length
  );
}

function member(object: Members, name: string): unknown {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isList(value: unknown): value is Items {
  return Array.isArray(value);
}

/** ordered sorts names as other languages do. JavaScript itself puts characters beyond U+FFFF before U+E000. */
function ordered(names: string[]): string[] {
  const plain = names.every((name) => !/[\ud800-\udfff]/.test(name));
  return plain ? names.sort() : names.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

function sizeOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}
