import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { SecureContextOptions } from "node:tls";
import { causes, messageOf } from "./error.js";

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

/** Usage of a certificate: for clients, and for anything. */
const FOR_CLIENTS = ["1.3.6.1.5.5.7.3.2", "2.5.29.37.0"];

/** explain is the text of an error of a session that was not accepted. It says who refused whom, the fault of this host first. */
export async function explain(security: Security, error: unknown): Promise<string> {
  const own = await ownFault(security).catch(() => "");
  const refused = [...causes(error)].some((e) => "code" in e && String(e.code).includes("ALERT"));
  const who = own || (refused ? "the dispatcher refused this host" : "");
  return who === "" ? messageOf(error) : `${who}: ${messageOf(error)}`;
}

/** ownFault is a reason, to be seen from here, for which no dispatcher accepts the certificate of the host; empty without one. */
async function ownFault(security: Security): Promise<string> {
  const { cert, key, passphrase } = (await security.load()) ?? {};
  if (!isPEM(cert)) {
    return "";
  }
  const own = new X509Certificate(cert);
  const [from, to] = [Date.parse(own.validFrom), Date.parse(own.validTo)];
  const usage: readonly string[] | undefined = own.keyUsage;
  if (Date.now() > to) {
    return `the certificate of this host ended at ${new Date(to).toISOString()}`;
  }
  if (Date.now() < from) {
    return `by the clock of this machine, the certificate of this host is not valid before ${new Date(from).toISOString()}`;
  }
  if (usage && !usage.some((use) => FOR_CLIENTS.includes(use))) {
    return "the certificate of this host is for servers, not for clients";
  }
  if (!own.subjectAltName?.includes("URI:") && !/^CN=./m.test(own.subject ?? "")) {
    return "the certificate of this host has no identity: want a URI or a common name";
  }
  if (isPEM(key) && !own.checkPrivateKey(createPrivateKey({ key, passphrase: passphrase ?? "" }))) {
    return "the key of this host is not that of its certificate";
  }
  return "";
}

function isPEM(value: unknown): value is string | Buffer {
  return typeof value === "string" || Buffer.isBuffer(value);
}
