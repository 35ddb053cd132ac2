"""The hooks of the policy."""

from collections.abc import Iterator
from typing import Any

from portcullis_host import TLS, Cause, Host, Request, Response, allow, change, deny, labels


def new_host(dispatchers: list[str], tls: TLS | None) -> Host:
    """Returns the host with its hooks. The arguments say where they are served."""
    host = Host("imagepolicy", dispatchers=dispatchers, tls=tls)
    host.validate("imagepolicy.example.com")(by_digest)
    host.mutate("team-label.example.com", speculate=True)(team_label)
    return host


async def by_digest(request: Request) -> Response:
    """Denies a Pod with an image that is not named by digest."""
    if request.object is None:  # DELETE
        return allow()
    for field, image in images(request.object):
        if "@sha256:" not in image:
            return deny(f"images are named by digest here: {image}", causes=[Cause(field, "has no digest")])
    return allow()


def images(pod: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the images of all containers of a Pod, each after the path of its field."""
    for containers in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(pod.get("spec", {}).get(containers) or ()):
            yield f"spec.{containers}[{i}].image", container.get("image", "")


async def team_label(request: Request) -> Response:
    """Labels a Pod that has no team with its namespace."""
    if request.object is None:  # DELETE
        return allow()
    labels(request.object).setdefault("team", request.namespace)
    return change(request)
