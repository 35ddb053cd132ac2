"""A host with two hooks: images are named by digest, and what has no team gets its namespace's. A beginning for hosts of your own."""

import argparse
import asyncio
import logging
import signal
from collections.abc import Iterator
from typing import Any

from portcullis_host import TLS, Cause, Host, Request, Response, TLSFiles, allow, deny, patch


def new_host(dispatchers: list[str], tls: TLS | None) -> Host:
    """Returns the host with its hooks, apart from where they are served."""
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
    """Labels what has no team with its namespace."""
    if request.object is None:
        return allow()
    metadata = request.object.setdefault("metadata", {})
    if "team" in (metadata.get("labels") or {}):
        return allow()
    metadata["labels"] = {**(metadata.get("labels") or {}), "team": request.namespace}
    return patch(request, request.object)


def main() -> None:
    """Serves the hooks until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Denies images without a digest, and labels what has no team.")
    parser.add_argument(
        "--dispatchers", required=True, help="host:port of the dispatchers, separated by commas; each address of a name is one"
    )
    parser.add_argument("--cert", default="tls.crt", help="PEM file of our certificate, whose identity the HookRoute names")
    parser.add_argument("--key", default="tls.key", help="PEM file of its key")
    parser.add_argument("--ca", default="ca.crt", help="PEM file of the authorities of the dispatchers")
    flags = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    host = new_host(flags.dispatchers.split(","), TLSFiles(flags.cert, flags.key, flags.ca))
    asyncio.run(host.run(stop_on=[signal.SIGTERM, signal.SIGINT]))


if __name__ == "__main__":
    main()
