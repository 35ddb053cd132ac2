"""Serve Kubernetes admission hooks to a Portcullis mesh.

A host is a program that dials the dispatchers of a mesh and judges the requests that they ask about::

    import asyncio, signal
    from typing import Any
    from portcullis_host import Host, Request, Response, TLSFiles, allow, deny

    host = Host("imagepolicy", dispatchers=["portcullis-hosts.portcullis-system.svc:8444"],
                tls=TLSFiles("/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt"))

    @host.validate("imagepolicy.example.com").create
    async def pinned(pod: dict[str, Any], request: Request) -> Response:
        for container in pod["spec"]["containers"]:
            if "@sha256:" not in container["image"]:
                return deny(f"images are named by digest here: {container['image']}")
        return allow()

    asyncio.run(host.run(stop_on=[signal.SIGTERM, signal.SIGINT]))

``portcullis_host.testing`` is a fake dispatcher for tests.
"""

from portcullis_host._board import HookState, HookStatus, SessionStatus
from portcullis_host._decoration import Cause
from portcullis_host._errors import HandlerError, HostError, SessionError
from portcullis_host._hooks import Handler, Initialized, Initializer, ObjectHandler, Readiness, Registration, UpdateHandler
from portcullis_host._host import Host
from portcullis_host._link import Stream
from portcullis_host._manager import Resolver
from portcullis_host._metadata import annotations, labels
from portcullis_host._request import Kind, Mode, Request, Resource, Stage
from portcullis_host._response import Denied, Response, allow, change, deny, difference, patch
from portcullis_host._tls import TLS, TLSPEM, Plaintext, TLSFiles

__all__ = [
    "TLS",
    "TLSPEM",
    "Cause",
    "Denied",
    "Handler",
    "HandlerError",
    "HookState",
    "HookStatus",
    "Host",
    "HostError",
    "Initialized",
    "Initializer",
    "Kind",
    "Mode",
    "ObjectHandler",
    "Plaintext",
    "Readiness",
    "Registration",
    "Request",
    "Resolver",
    "Resource",
    "Response",
    "SessionError",
    "SessionStatus",
    "Stage",
    "Stream",
    "TLSFiles",
    "UpdateHandler",
    "allow",
    "annotations",
    "change",
    "deny",
    "difference",
    "labels",
    "patch",
]
