/**
 * A host with two hooks: images are named by digest, and a Pod without a team gets its namespace's. A beginning for hosts
 * of your own.
 */

import { createServer } from "node:net";
import { parseArgs } from "node:util";
import { type Host, tlsFiles } from "@portcullis-mesh/host";
import { newHost } from "./policy.js";

const { values } = parseArgs({
  options: {
    dispatchers: { type: "string" }, // host:port of the dispatchers, separated by commas; each address of a name is one
    cert: { type: "string", default: "tls.crt" }, // PEM file of our certificate, whose identity the HookRoute names
    key: { type: "string", default: "tls.key" }, // PEM file of its key
    ca: { type: "string", default: "ca.crt" }, // PEM file of the authorities of the dispatchers
    "ready-port": { type: "string", default: "0" }, // port that accepts connections once every hook is in rotation; 0 for none
  },
});
const { dispatchers, cert, key, ca, "ready-port": readyPort } = values;
if (!dispatchers) {
  process.stderr.write(
    "--dispatchers is missing: say where the mesh listens for hosts, for example mesh.example.com:8444\n",
  );
  process.exit(2);
}
try {
  const host = newHost({ dispatchers: dispatchers.split(","), tls: tlsFiles({ cert, key, ca }) });
  if (readyPort !== "0") {
    acceptProbes(host, Number(readyPort));
  }
  await host.run({ stopOn: ["SIGTERM", "SIGINT"] });
} catch (error) {
  process.stderr.write(`Error: ${error instanceof Error ? error.message : error}\n`);
  process.exit(1);
}

/** Accepts connections once every hook is in rotation. A readiness probe with tcpSocket opens one. */
async function acceptProbes(host: Host, port: number): Promise<void> {
  await host.ready();
  createServer((probe) => probe.destroy())
    .listen(port)
    .unref();
}
