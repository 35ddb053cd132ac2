import { allow, type Decision } from "../../src/index.js";

/** Computes for a while, in a worker. */
export default function judge(raw: Uint8Array): Decision {
  for (const until = performance.now() + 300; performance.now() < until; ) {}
  return allow({ audit: { bytes: String(raw.length) } });
}
