"""Verdicts as tests read them."""

import copy
import json
from dataclasses import dataclass
from typing import Any

from portcullis_host._changes import equal, is_list, is_object
from portcullis_host._decoration import Cause
from portcullis_host.contract import admission


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a hook decided."""

    allowed: bool
    """True if the write may go on."""
    message: str
    """Why it may not."""
    code: int
    """HTTP status of a denial; 0 of a permission."""
    reason: str
    """Machine-readable reason of a denial."""
    causes: tuple[Cause, ...]
    """The fields at fault."""
    warnings: tuple[str, ...]
    """Shown to the client."""
    audit: dict[str, str]
    """Added to the audit log."""
    patch: list[dict[str, Any]]
    """The operations of the JSON Patch; none without a change."""
    object: Any
    """The object with the patch applied; None of a denial, and where there is no object."""


def verdict_of(response: admission.AdmissionResponse, request: admission.AdmissionRequest) -> Verdict:
    """Reads a response to a request.

    Raises:
        AssertionError: The patch does not apply.
    """
    status = response.status
    patch: list[dict[str, Any]] = json.loads(response.patch or b"[]")
    document = json.loads(request.object.raw) if response.allowed and request.object.raw else None
    return Verdict(
        allowed=response.allowed,
        message=status.message,
        code=status.code,
        reason=status.reason,
        causes=tuple(Cause(cause.field, cause.message, cause.reason) for cause in status.details.causes),
        warnings=tuple(response.warnings),
        audit=dict(response.audit_annotations),
        patch=patch,
        object=patched(document, patch),
    )


def patched(document: Any, patch: list[dict[str, Any]]) -> Any:
    """Returns a document with a JSON Patch (RFC 6902) applied, as the mesh applies it.

    Raises:
        AssertionError: It does not apply.
    """
    root = {"": copy.deepcopy(document)}
    for operation in patch:
        try:
            _apply(root, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise AssertionError(f"the patch does not apply: {operation}") from error
    return root[""]


def _apply(root: Any, operation: dict[str, Any]) -> None:
    path = operation["path"]
    match operation["op"]:
        case "add":
            _add(root, path, copy.deepcopy(operation["value"]))
        case "remove":
            _take(root, path)
        case "replace":
            _take(root, path)
            _add(root, path, copy.deepcopy(operation["value"]))
        case "move":
            _add(root, path, _take(root, operation["from"]))
        case "copy":
            _add(root, path, copy.deepcopy(_at(*_parent(root, operation["from"]))))
        case "test":
            if not equal(_at(*_parent(root, path)), operation["value"]):
                raise ValueError(path)
        case unknown:
            raise ValueError(unknown)


def _parent(root: Any, path: str) -> tuple[Any, str]:
    """Returns what holds the value at a path, and its name there. The document is the member "" of root."""
    *above, last = (name.replace("~1", "/").replace("~0", "~") for name in path.split("/"))
    value = root
    for name in above:
        value = _at(value, name)
    return value, last


def _at(value: Any, name: str) -> Any:
    return value[_index(value, name)] if is_list(value) else value[name]


def _index(items: list[Any], name: str) -> int:
    if not name.isdecimal() or (name != "0" and name.startswith("0")) or int(name) > len(items):
        raise IndexError(name)
    return int(name)


def _add(root: Any, path: str, value: Any) -> None:
    parent, name = _parent(root, path)
    if is_list(parent):
        parent.insert(len(parent) if name == "-" else _index(parent, name), value)
    elif is_object(parent):
        parent[name] = value
    else:
        raise TypeError(path)


def _take(root: Any, path: str) -> Any:
    parent, name = _parent(root, path)
    return parent.pop(_index(parent, name)) if is_list(parent) else parent.pop(name)
