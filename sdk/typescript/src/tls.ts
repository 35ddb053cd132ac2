import { readFile } from "node:fs/promises";
import type { SecureContextOptions } from "node:tls";

/** Files in PEM. */
export interface TLSFiles {
  /** The certificate of the host, which is its identity to the mesh. */
  readonly cert: string;
  /** Its key. */
  readonly key: string;
  /** The authorities that dispatchers are verified by. */
  readonly ca: string;
}

/** How sessions are secured: {@link tlsFiles}, {@link tlsOptions}, or {@link plaintext} in tests. It is asked anew at each dial. */
export interface Security {
  /** The options of one dial; undefined means no TLS. Rejects if they cannot be had. */
  load(): Promise<SecureContextOptions | undefined>;
}

/** tlsFiles secures sessions by files, which are read anew at each dial: a rotated certificate needs no restart. */
export function tlsFiles(files: TLSFiles): Security {
  return {
    async load() {
      const [cert, key, ca] = await Promise.all([readFile(files.cert), readFile(files.key), readFile(files.ca)]);
      return { cert, key, ca };
    },
  };
}

/** tlsOptions secures sessions by what `load` returns, for certificates that are not in files. It is called at each dial. */
export function tlsOptions(load: () => SecureContextOptions | Promise<SecureContextOptions>): Security {
  return { load: async () => load() };
}

/** plaintext is no security at all: for tests on loopback. */
export function plaintext(): Security {
  return { load: async () => undefined };
}
