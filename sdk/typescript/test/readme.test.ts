import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { suite, test } from "node:test";

const ROOT = join(import.meta.dirname, "../..");

/** What the blocks of README.md leave to the reader. */
const READER = `
import { allow, deny, HandlerError, Host, type Handler } from "@portcullis-mesh/host";
declare const host: Host;
declare const judgeQuota: Handler;
declare const cache: { filled(signal: AbortSignal): Promise<boolean> };
declare function isFine(object: unknown): boolean;
`;

suite("README.md", () => {
  test("its programs have the types of the SDK", () => {
    const blocks = [...readFileSync(join(ROOT, "README.md"), "utf8").matchAll(/^```ts\n(.*?)^```/gms)];
    assert.ok(blocks.length >= 6);
    const folder = join(ROOT, "build/readme");
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    for (const [i, [, block = ""]] of blocks.entries()) {
      const name = /^\/\/ (\S+\.ts)/.exec(block)?.[1] ?? `block${i}.ts`;
      writeFileSync(join(folder, name), `${missing(block)}\n${block}`);
    }
    const config = {
      extends: "../../tsconfig.json",
      compilerOptions: {
        noEmit: true,
        noUnusedLocals: false,
        rootDir: "../..",
        paths: {
          "@portcullis-mesh/host": ["../../src/index.ts"],
          "@portcullis-mesh/host/testing": ["../../src/testing/index.ts"],
        },
      },
      include: ["."],
      exclude: [],
    };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
    const tsc = join(ROOT, "node_modules/.bin/tsc");
    const { status, stdout } = spawnSync(tsc, ["-p", folder], { encoding: "utf8" });
    assert.equal(status, 0, stdout);
  });

  test("the SDK tells dispatchers the version of its package", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    assert.match(readFileSync(join(ROOT, "src/host.ts"), "utf8"), new RegExp(`SDK_VERSION = "${version}"`));
  });
});

/** The declarations that a block uses and does not have. */
function missing(block: string): string {
  const own = block.includes("const host =") ? READER.replace(/^declare const host.*\n/m, "") : READER;
  const imported = new Set(
    [...block.matchAll(/^import (?:type )?\{([^}]*)\}/gm)].flatMap(([, names = ""]) =>
      names.split(",").map((n) => n.replace("type", "").trim()),
    ),
  );
  return own.replace(/^import .*$/m, (line) => {
    const names = (/\{(.*)\}/.exec(line)?.[1] ?? "").split(",").map((n) => n.trim());
    const kept = names.filter((n) => !imported.has(n.replace("type ", "")) && n !== "");
    return `import { ${kept.join(", ")} } from "@portcullis-mesh/host";`;
  });
}
