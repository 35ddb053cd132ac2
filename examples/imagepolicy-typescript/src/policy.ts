import {
  allow,
  type CreateRequest,
  change,
  type Decision,
  deny,
  Host,
  type HostOptions,
  label,
  type Request,
  setLabel,
} from "@portcullis-mesh/host";
import type { Pod, PodSpec } from "kubernetes-types/core/v1.js";

/** Makes the host with its hooks. Options say where they are served. */
export function newHost(options: Omit<HostOptions, "name">): Host {
  return new Host({ name: "imagepolicy", ...options })
    .validate<Pod>("imagepolicy.example.com", { create: byDigest, update: byDigest })
    .mutate<Pod>("team-label.example.com", teamLabel, { speculate: true });
}

/** Denies a Pod with an image that is not named by digest. */
function byDigest({ object: pod }: CreateRequest<Pod>): Decision {
  for (const [field, image] of images(pod.spec)) {
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
  if (label(request.object, "team") !== undefined) {
    return allow();
  }
  return change(request, (pod) => setLabel(pod, "team", request.namespace));
}
