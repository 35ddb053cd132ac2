"""What a handler answers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, cast

from portcullis_host import _changes
from portcullis_host._decoration import FORBIDDEN, Cause, Decoration
from portcullis_host._errors import HandlerError, find
from portcullis_host._models import encoded
from portcullis_host._request import Request, Stage
from portcullis_host.contract import admission


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A verdict: :func:`allow`, :func:`deny`, :func:`change`, :func:`difference` and :func:`patch` make one.

    All beside ``allowed`` and ``patch`` is made what its type says: another value becomes its text, and what has none is left out. So a
    denial stays one, whatever was given with it.
    """

    allowed: bool
    """True if the write may go on."""
    message: str = ""
    """Tells the person whose write was refused why, and what to do."""
    code: int = FORBIDDEN
    """HTTP status that this person gets, 400 to 599; any other means 403."""
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
    _left_out: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Makes what was given what the types say."""
        made = Decoration()
        for name, value in (
            ("allowed", made.decision(self.allowed)),
            ("message", made.text("message", self.message)),
            ("code", made.code(self.code)),
            ("reason", made.text("reason", self.reason)),
            ("causes", made.causes(self.causes)),
            ("warnings", made.texts("warnings", self.warnings)),
            ("audit", made.audit(self.audit)),
            ("_left_out", tuple(made.left_out)),
        ):
            object.__setattr__(self, name, value)


def left_out(response: object) -> str:
    """Names what a verdict lacks of what its author gave; empty if nothing."""
    return ", ".join(getattr(response, "_left_out", ()))


def allow(*, warnings: Iterable[str] = (), audit: Mapping[str, str] | None = None) -> Response:
    """Is the verdict that the write may go on."""
    return Response(allowed=True, warnings=cast("Sequence[str]", warnings), audit=cast("Mapping[str, str]", audit))


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
        causes=cast("Sequence[Cause]", causes),
        warnings=cast("Sequence[str]", warnings),
        audit=cast("Mapping[str, str]", audit),
    )


class Denied(Exception):  # noqa: N818 (a denial is a decision, and no error)
    """Denies from anywhere in a handler of any stage: it is raised, and takes what :func:`deny` takes.

    It is a denial also as the explicit cause of another exception (``raise ... from``), in a group, and after the end of the call.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: int = FORBIDDEN,
        reason: str = "",
        causes: Iterable[Cause] = (),
        warnings: Iterable[str] = (),
        audit: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.response = deny(message, code=code, reason=reason, causes=causes, warnings=warnings, audit=audit)
        """The denial."""


def denial_of(error: BaseException) -> Response | None:
    """Returns the denial that was raised, if one was."""
    denied = find(error, Denied)
    if denied is None:
        return None
    response: object = getattr(denied, "response", None)  # A subclass may not have set it.
    return response if isinstance(response, Response) and not response.allowed else deny(cast("str", denied))


def change(request: Request, model: object = None, *, warnings: Iterable[str] = (), audit: Mapping[str, str] | None = None) -> Response:
    """Allows the write with what the handler has changed in place: ``request.object``, or a model that it got by ``request.decode``.

    What the model does not know stays in the object, and what it adds by itself does not come into it. Without an object, as on DELETE,
    there is no change.

    Args:
        request: The request that is answered.
        model: The model as it should be; None means ``request.object``.
        warnings: Shown to the client.
        audit: Added to the audit log, by short keys.

    Raises:
        ValueError: The object holds what JSON does not, or the model was not decoded by this request.
        TypeError: Likewise.
        HandlerError: Python has rounded a number that would be written.
    """
    raw, patched = request.raw_object, b""
    if raw is not None and model is not None:
        patched = _changes.change(raw, request.before(type(model)), encoded(model))
    elif raw is not None and "object" in vars(request):  # Else nobody has looked at it.
        patched = _changes.change(raw, None, request.object)
    return patch(patched, warnings=warnings, audit=audit)


def difference(
    request: Request,
    changed: Mapping[str, Any],
    *,
    before: Mapping[str, Any] | None = None,
    warnings: Iterable[str] = (),
    audit: Mapping[str, str] | None = None,
) -> Response:
    """Allows the write and changes the object by the difference of two documents.

    Args:
        request: The request that is answered.
        changed: The object as it should be.
        before: The object as it was, written like changed: for types of your own, which drop members that they do not know, or add
            some. None means the object of the request.
        warnings: Shown to the client.
        audit: Added to the audit log, by short keys.

    Raises:
        ValueError: There is no object to change, or a document holds what JSON does not.
        TypeError: Likewise.
        HandlerError: Python has rounded a number that would be written.
    """
    if request.raw_object is None:
        raise ValueError("a request without an object cannot be changed")
    return patch(_changes.change(request.raw_object, before, changed), warnings=warnings, audit=audit)


def patch(
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
        operations = _changes.write(list(operations)) if operations else b""
    return Response(allowed=True, patch=operations, warnings=cast("Sequence[str]", warnings), audit=cast("Mapping[str, str]", audit))


def to_message(response: object, stage: Stage) -> admission.AdmissionResponse:
    """Returns what a handler returned as it goes over the wire. A denial is always a verdict, whatever goes with it.

    Raises:
        HandlerError: It is no verdict.
    """
    if response is None:
        raise HandlerError("the handler returned neither a response nor an error")
    if not isinstance(response, Response):
        raise HandlerError(f"the handler returned a {type(response).__name__}: want a Response")
    return _permission(response, stage) if response.allowed else _denial(response)


def _permission(response: Response, stage: Stage) -> admission.AdmissionResponse:
    message = _decorated(response)
    message.allowed = response.allowed
    if response.patch:
        if stage is Stage.VALIDATE:
            raise HandlerError("a validating hook returned a patch")
        if not _is_patch(response.patch):
            raise HandlerError("the patch is not a JSON Patch: want a JSON array of operations")
        message.patch, message.patch_type = response.patch, "JSONPatch"
    return message


def _denial(response: Response) -> admission.AdmissionResponse:
    """Is a denial, come what may."""
    try:
        return _encoded(response)
    except Exception:  # noqa: BLE001 (it was changed since, or a subclass has left out __post_init__)
        given: dict[str, Any] = {}
        for member in fields(response):
            with suppress(Exception):
                if member.init:
                    given[member.name] = getattr(response, member.name)
        given["allowed"] = False
        return _encoded(Response(**given))


def _encoded(response: Response) -> admission.AdmissionResponse:
    message = _decorated(response)
    reason = response.reason or ("Forbidden" if response.code == FORBIDDEN else "")
    message.status.CopyFrom(admission.Status(status="Failure", message=response.message, reason=reason, code=response.code))
    for cause in response.causes:
        message.status.details.causes.add(field=cause.field, message=cause.message, reason=cause.reason)
    return message


def _decorated(response: Response) -> admission.AdmissionResponse:
    return admission.AdmissionResponse(warnings=response.warnings, audit_annotations=response.audit)


def _is_patch(text: bytes) -> bool:
    """Reports whether a patch is a JSON array; the dispatcher applies it and finds other faults."""
    try:
        return isinstance(cast("object", json.loads(text)), list)
    except ValueError:
        return False
