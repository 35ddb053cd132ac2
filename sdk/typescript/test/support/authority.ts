import { webcrypto } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as x509 from "@peculiar/x509";
import type { TLSFiles } from "../../src/index.js";

x509.cryptoProvider.set(webcrypto as unknown as Crypto);

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const HOUR = 3_600_000;

/** A certificate and its key in PEM. */
export interface Identity {
  readonly cert: string;
  readonly key: string;
}

/** Authority issues certificates for a test. */
export class Authority {
  readonly #keys: CryptoKeyPair;
  readonly #certificate: x509.X509Certificate;
  readonly #folder = mkdtempSync(join(tmpdir(), "portcullis-"));

  private constructor(keys: CryptoKeyPair, certificate: x509.X509Certificate) {
    this.#keys = keys;
    this.#certificate = certificate;
  }

  static async create(): Promise<Authority> {
    const keys = await newKeys();
    const certificate = await x509.X509CertificateGenerator.createSelfSigned({
      name: "CN=test",
      keys,
      signingAlgorithm: ALGORITHM,
      notAfter: new Date(Date.now() + HOUR),
      extensions: [new x509.BasicConstraintsExtension(true, undefined, true)],
    });
    return new Authority(keys, certificate);
  }

  get ca(): string {
    return this.#certificate.toString("pem");
  }

  /** issue makes a certificate whose only name is `name`, of a type: `dns`, `ip` or `url`. */
  async issue(
    type: "dns" | "ip" | "url",
    name: string,
    more: Partial<x509.X509CertificateCreateParams> = {},
  ): Promise<Identity> {
    const keys = await newKeys();
    const certificate = await x509.X509CertificateGenerator.create({
      issuer: this.#certificate.subject,
      signingKey: this.#keys.privateKey,
      publicKey: keys.publicKey,
      signingAlgorithm: ALGORITHM,
      notAfter: new Date(Date.now() + HOUR),
      extensions: [new x509.SubjectAlternativeNameExtension([{ type, value: name }])],
      ...more,
    });
    const key = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey));
    return { cert: certificate.toString("pem"), key: x509.PemConverter.encode(key, "PRIVATE KEY") };
  }

  /** write writes the files of a host, anew. */
  write({ cert, key }: Identity, ca = this.ca): TLSFiles {
    const files = Object.entries({ cert, key, ca }).map(([name, pem]) => {
      const file = join(this.#folder, name);
      writeFileSync(file, pem);
      return [name, file];
    });
    return Object.fromEntries(files) as TLSFiles;
  }
}

function newKeys(): Promise<CryptoKeyPair> {
  return webcrypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]) as Promise<CryptoKeyPair>;
}
