import { allow, change, type Decision, deny, Host, type HostOptions, type Request } from "@portcullis-mesh/host";
import type { Pod, PodSpec } from "kubernetes-types/core/v1.js";

/** Makes the host with its hooks. Options say where they are served. */
export function newHost(options: Omit<HostOptions, "name">): Host {
  return new Host({ name: "imagepolicy", ...options })
    .validate<Pod>("imagepolicy.example.com", byDigest)
    .mutate<Pod>("team-label.example.com", teamLabel, { speculate: true });
}

/** Denies a Pod with an image that is not named by digest. */
function byDigest(request: Request<Pod>): Decision {
  if (!request.object) {
    return allow(); // DELETE
  }
  for (const [field, image] of images(request.object.spec)) {
    if (!image.includes("@sha256:")) {
      return deny(`images are named by digest here: ${image}`, { causes: [{ field, message: "has no digest" }] });
    }
  }
  return allow();
}

/** The images of all containers of a Pod, each after the path of its field. */
function* images(spec?: PodSpec): Generator<[field: string, image: string]> {
  for (const list of ["initContainers", "containers", "ephemeralContainers"] as const) {
    for (const [i, { image }] of (spec?.[list] ?? []).entries()) {
      yield [`spec.${list}[${i}].image`, image ?? ""];
    }
  }
}

/** Labels a Pod that has no team with its namespace. */
function teamLabel(request: Request<Pod>): Decision {
  if (!request.object) {
    return allow(); // DELETE
  }
  if (request.object.metadata?.labels?.team !== undefined) {
    return allow();
  }
  return change(request, (pod) => {
    pod.metadata = { ...pod.metadata, labels: { ...pod.metadata?.labels, team: request.namespace } };
  });
}
