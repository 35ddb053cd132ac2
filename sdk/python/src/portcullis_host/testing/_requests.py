"""Requests for tests."""

import json
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, cast

from portcullis_host._limits import MILLISECOND
from portcullis_host._request import Lifetime, Mode, Request, Stage
from portcullis_host.contract import admission

Document = Mapping[str, Any] | str | bytes
"""An object, decoded or in JSON."""
GROUPS: Final = ("system:authenticated",)


def create(
    obj: Document, *, namespace: str | None = None, username: str = "test", groups: Iterable[str] = GROUPS
) -> admission.AdmissionRequest:
    """Is a request that creates an object.

    Kind, name and namespace are the object's; the resource is the usual plural of its kind. Change what the hook looks at besides.
    """
    made = _about(obj, "CREATE", namespace, username, groups)
    made.object.raw = _raw(obj)
    return made


def update(
    old: Document, obj: Document, *, namespace: str | None = None, username: str = "test", groups: Iterable[str] = GROUPS
) -> admission.AdmissionRequest:
    """Is a request that changes an object, see :func:`create`."""
    made = _about(obj, "UPDATE", namespace, username, groups)
    made.object.raw, made.old_object.raw = _raw(obj), _raw(old)
    return made


def delete(
    old: Document, *, namespace: str | None = None, username: str = "test", groups: Iterable[str] = GROUPS
) -> admission.AdmissionRequest:
    """Is a request that deletes an object, see :func:`create`."""
    made = _about(old, "DELETE", namespace, username, groups)
    made.old_object.raw = _raw(old)
    return made


def request(
    asked: admission.AdmissionRequest,
    *,
    stage: Stage = Stage.VALIDATE,
    hook: str = "test",
    configuration: str = "test",
    round: int = 0,  # noqa: A002 (as in Request)
    mode: Mode = Mode.DECIDE,
    remaining: timedelta = timedelta(seconds=10),
) -> Request:
    """Is what a handler is called with, for the test of a handler without a host."""
    return Request(
        hook=hook,
        stage=stage,
        admission=asked,
        configuration=configuration,
        round=round,
        mode=mode,
        _lifetime=Lifetime(time.monotonic_ns() + remaining // timedelta(milliseconds=1) * MILLISECOND),
    )


def _raw(obj: Document) -> bytes:
    if isinstance(obj, bytes):
        return obj
    return (obj if isinstance(obj, str) else json.dumps(obj)).encode()


def _about(obj: Document, operation: str, namespace: str | None, username: str, groups: Iterable[str]) -> admission.AdmissionRequest:
    """Makes a request of an object's head. One that cannot be read has none: hosts must bear that as well."""
    head = _members(_decoded(obj))
    metadata = _members(head.get("metadata"))
    group, _, version = str(head.get("apiVersion", "")).rpartition("/")
    kind = str(head.get("kind", ""))
    return admission.AdmissionRequest(
        uid="705ab4f5-6393-11e8-b7cc-42010a800002",
        cluster="test",
        kind=admission.GroupVersionKind(group=group, version=version, kind=kind),
        resource=admission.GroupVersionResource(group=group, version=version, resource=_plural(kind)),
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")) if namespace is None else namespace,
        operation=operation,
        user_info=admission.UserInfo(username=username, groups=groups),
    )


def _decoded(obj: Document) -> object:
    try:
        return json.loads(obj) if isinstance(obj, str | bytes) else obj
    except ValueError:
        return None


def _members(document: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", document) if isinstance(document, Mapping) else {}


def _plural(kind: str) -> str:
    """Is how resources are named after kinds, irregular ones aside."""
    name = kind.lower()
    if not name:
        return ""
    if name.endswith("s"):
        return name + "es"
    return name[:-1] + "ies" if name.endswith("y") else name + "s"
