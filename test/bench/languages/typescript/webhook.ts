/** The policy of examples/imagepolicy-typescript as an ordinary validating webhook, with Fastify over node:https. */

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import Fastify from "fastify";
import type { Pod, PodSpec } from "kubernetes-types/core/v1.js";

interface Review {
  request: { uid: string; object?: Pod | null };
}

const { values } = parseArgs({
  options: { port: { type: "string" }, cert: { type: "string" }, key: { type: "string" } },
});
const { port, cert, key } = values;
if (!port || !cert || !key) {
  process.stderr.write("usage: webhook --port N --cert FILE --key FILE\n");
  process.exit(2);
}
const server = Fastify({ https: { cert: readFileSync(cert), key: readFileSync(key) }, bodyLimit: 8 << 20 });

/** Denies a Pod with an image that is not named by digest. */
server.post<{ Body: Review }>("/validate", async ({ body: { request } }) => {
  let response: object = { uid: request.uid, allowed: true };
  for (const image of images(request.object?.spec)) {
    if (!image.includes("@sha256:")) {
      response = { uid: request.uid, allowed: false, status: { message: `images are named by digest here: ${image}` } };
      break;
    }
  }
  return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
});

/** The images of all containers of a Pod. Without a Pod, as on DELETE, there are none. */
function* images(spec?: PodSpec): Generator<string> {
  for (const list of ["initContainers", "containers", "ephemeralContainers"] as const) {
    for (const { image } of spec?.[list] ?? []) {
      yield image ?? "";
    }
  }
}

await server.listen({ host: "127.0.0.1", port: Number(port) });
