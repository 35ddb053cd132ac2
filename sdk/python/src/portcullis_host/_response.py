"""What a handler answers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import jsonpatch

from portcullis_host._errors import HandlerError
from portcullis_host._request import Request, Stage
from portcullis_host._verdict import valid
from portcullis_host.contract import admission

FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class Cause:
    """One field at fault."""

    field: str
    """Its path, for example ``spec.containers[0].image``."""
    message: str
    """Text for a person."""
    reason: str = ""
    """Machine-readable, for example ``FieldValueInvalid``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A verdict: :func:`allow`, :func:`deny`, :func:`patch` and :func:`json_patch` make one."""

    allowed: bool
    """True if the write may go on."""
    message: str = ""
    """Tells the person whose write was refused why, and what to do."""
    code: int = FORBIDDEN
    """HTTP status that this person gets, 400 to 599; 0 means 403."""
    reason: str = ""
    """Machine-readable reason of the denial; empty means "Forbidden" with code 403, else none."""
    causes: Sequence[Cause] = ()
    """The fields at fault."""
    patch: bytes = b""
    """A JSON Patch (RFC 6902) against the object, byte for byte as it came; never of a validating hook. Empty means no change."""
    warnings: Sequence[str] = ()
    """Shown to the client, one line each, whatever the verdict; 120 characters or fewer is good manners."""
    audit: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the audit log: short keys without "/". Values are visible to all readers of that log."""


def allow(*, warnings: Iterable[str] = (), audit: Mapping[str, str] | None = None) -> Response:
    """Is the verdict that the write may go on."""
    return Response(allowed=True, warnings=tuple(warnings), audit=audit or {})


def deny(
    message: str,
    *,
    code: int = FORBIDDEN,
    reason: str = "",
    causes: Iterable[Cause] = (),
    warnings: Iterable[str] = (),
    audit: Mapping[str, str] | None = None,
) -> Response:
    """Is the verdict that the write is refused.

    Args:
        message: Tells the person who made the write why, and what to do.
        code: HTTP status that this person gets, 400 to 599.
        reason: Machine-readable reason; empty means "Forbidden" with code 403, else none.
        causes: The fields at fault.
        warnings: Shown to the client.
        audit: Added to the audit log, by short keys.
    """
    return Response(
        allowed=False,
        message=message,
        code=code,
        reason=reason,
        causes=tuple(causes),
        warnings=tuple(warnings),
        audit=audit or {},
    )


def patch(
    request: Request,
    changed: Mapping[str, Any],
    *,
    original: Mapping[str, Any] | None = None,
    warnings: Iterable[str] = (),
    audit: Mapping[str, str] | None = None,
) -> Response:
    """Allows the write and changes the object: the patch is the difference of two documents.

    Args:
        request: The request that is answered.
        changed: The object as it should be, for example request.object after a change.
        original: The object as it was, written like changed: for a handler with a model of its own, which drops fields that it does
            not know or adds defaults. None means the object of the request.
        warnings: Shown to the client.
        audit: Added to the audit log, by short keys.

    Raises:
        ValueError: There is no object to change, or a document holds what JSON does not.
        TypeError: Likewise.
    """
    if request.object_raw is None:
        raise ValueError("a request without an object cannot be patched")
    before = json.loads(request.object_raw) if original is None else original
    operations = jsonpatch.make_patch(before, changed).patch
    return json_patch(operations, warnings=warnings, audit=audit)


def json_patch(
    operations: Sequence[Mapping[str, Any]] | bytes,
    *,
    warnings: Iterable[str] = (),
    audit: Mapping[str, str] | None = None,
) -> Response:
    """Allows the write and changes the object by a JSON Patch (RFC 6902).

    Args:
        operations: The operations, or the encoded patch. No operation means no change.
        warnings: Shown to the client.
        audit: Added to the audit log, by short keys.

    Raises:
        ValueError: An operation holds what JSON does not.
        TypeError: Likewise.
    """
    if not isinstance(operations, bytes):
        operations = json.dumps(list(operations), allow_nan=False, separators=(",", ":")).encode() if operations else b""
    return Response(allowed=True, patch=operations, warnings=tuple(warnings), audit=audit or {})


def to_message(response: object, stage: Stage) -> admission.AdmissionResponse:
    """Returns what a handler returned as it goes over the wire. A denial is always a verdict.

    Raises:
        HandlerError: It is no verdict.
    """
    if response is None:
        raise HandlerError("the handler returned neither a response nor an error")
    if not isinstance(response, Response):
        raise HandlerError(f"the handler returned a {type(response).__name__}: want a Response")
    message = admission.AdmissionResponse(allowed=response.allowed)
    message.warnings.extend(map(valid, response.warnings))
    for key in sorted(response.audit):  # Sorted: of two keys that become equal the same one wins each time.
        message.audit_annotations[valid(key)] = valid(response.audit[key])
    if not response.allowed:
        message.status.CopyFrom(_status(response))
    elif response.patch:
        if stage is Stage.VALIDATE:
            raise HandlerError("a validating hook returned a patch")
        if not _is_patch(response.patch):
            raise HandlerError("the patch is not a JSON Patch: want a JSON array of operations")
        message.patch, message.patch_type = response.patch, "JSONPatch"
    return message


def _status(response: Response) -> admission.Status:
    code = response.code or FORBIDDEN
    reason = response.reason or ("Forbidden" if code == FORBIDDEN else "")
    status = admission.Status(status="Failure", message=valid(response.message), reason=valid(reason), code=code)
    for cause in response.causes:
        status.details.causes.add(field=valid(cause.field), message=valid(cause.message), reason=valid(cause.reason))
    return status


def _is_patch(text: bytes) -> bool:
    """Reports whether a patch is a JSON array; the dispatcher applies it and finds other faults."""
    try:
        return isinstance(cast("object", json.loads(text)), list)
    except ValueError:
        return False
