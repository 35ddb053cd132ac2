import { allow, change, type Decision, deny, type Host, type Request } from "@portcullis-mesh/host";
import type { Pod, PodSpec } from "kubernetes-types/core/v1.js";

/** Registers the hooks of the policy. */
export function register(host: Host): Host {
  return host
    .validate<Pod>("imagepolicy.example.com", byDigest)
    .mutate<Pod>("team-label.example.com", teamLabel, { speculate: true });
}

/** Denies a Pod with an image that is not named by digest. */
function byDigest({ object: pod }: Request<Pod>): Decision {
  for (const [field, image] of images(pod?.spec)) {
    if (!image.includes("@sha256:")) {
      return deny(`images are named by digest here: ${image}`, { causes: [{ field, message: "has no digest" }] });
    }
  }
  return allow();
}

/** The images of all containers of a Pod, each behind the path of its field. Without a Pod, as on DELETE, there are none. */
function* images(spec?: PodSpec): Generator<[field: string, image: string]> {
  for (const list of ["initContainers", "containers", "ephemeralContainers"] as const) {
    for (const [i, { image }] of (spec?.[list] ?? []).entries()) {
      yield [`spec.${list}[${i}].image`, image ?? ""];
    }
  }
}

/** Sets the label `team` to the namespace where it is missing. */
function teamLabel(request: Request<Pod>): Decision {
  if (!request.object || request.object.metadata?.labels?.team) {
    return allow();
  }
  return change(request, (pod) => {
    pod.metadata = { ...pod.metadata, labels: { ...pod.metadata?.labels, team: request.namespace } };
  });
}
