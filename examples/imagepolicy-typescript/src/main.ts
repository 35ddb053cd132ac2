/** A host with the same policy as examples/imagepolicy. */

import { parseArgs } from "node:util";
import { Host, tlsFiles } from "@portcullis-mesh/host";
import { register } from "./policy.js";

const { values } = parseArgs({
  options: {
    dispatchers: { type: "string" }, // host:port, separated by commas; each address of a name is one
    cert: { type: "string", default: "tls.crt" }, // our certificate, whose identity the HookRoute names
    key: { type: "string", default: "tls.key" },
    ca: { type: "string", default: "ca.crt" }, // the authorities of the dispatchers
    "server-name": { type: "string", default: "" }, // that the certificates of the dispatchers carry, if not that of their address
  },
});
const { dispatchers, cert, key, ca, "server-name": serverName } = values;
if (!dispatchers) {
  process.stderr.write(
    "--dispatchers is missing: say where the mesh listens for hosts, for example mesh.example.com:8444\n",
  );
  process.exit(2);
}
const tls = tlsFiles({ cert, key, ca });
const host = register(new Host({ name: "imagepolicy", dispatchers: dispatchers.split(","), serverName, tls }));
await host.run({ stopOn: ["SIGTERM", "SIGINT"] });
