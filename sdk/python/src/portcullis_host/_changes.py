"""The patch that makes the change of a handler, and no other: docs/protocol.md, "Changes". Pure."""

import json
import marshal
from collections.abc import Callable, Hashable, Iterable
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from typing import Any, Final, TypeGuard

from portcullis_host._errors import HandlerError

MAX_DEPTH: Final = 64
"""Levels of a document that are compared. Below them a value that differs is written as a whole."""
SMALL_PATCH: Final = 64 << 10
"""Bytes that a patch may have whatever the size of the object."""
KEYS: Final = ("name", "mountPath", "devicePath", "containerPort", "port", "key", "ip", "topologyKey", "uid", "type")
"""The members by which Kubernetes tells the items of its lists apart."""

Operation = dict[str, Any]
_ABSENT: Final = object()


class Rounded(float):
    """A number of a document that Python has rounded."""

    __slots__ = ()


def read(text: bytes) -> Any:
    """Decodes JSON.

    Raises:
        ValueError: It is none.
    """
    return json.loads(text, parse_float=_number, parse_constant=_constant)


def write(value: Any) -> bytes:
    """Encodes JSON.

    Raises:
        ValueError: It holds what JSON does not.
        TypeError: Likewise.
    """
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # A lone surrogate is one in JSON only as an escape.
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def change(raw: bytes, before: Any, after: Any) -> bytes:
    """Returns the JSON Patch that makes the change from before to after in raw; empty for no change.

    Args:
        raw: The object of the request.
        before: The object as the handler's types wrote it before the change; None means that they write it as it is.
        after: The object as they write it now.

    Raises:
        ValueError: A document holds what JSON does not.
        TypeError: Likewise.
        HandlerError: The patch would write a number that Python has rounded.
    """
    document = read(raw)
    wanted = after if before is None else merge(document, before, after)
    patch = difference(document, wanted)
    if not patch:
        return b""
    encoded = _written(patch)
    if len(encoded) > SMALL_PATCH and len(encoded) > len(write(wanted)):
        return _written(difference(document, wanted, depth=1))
    return encoded


def merge(raw: Any, before: Any, after: Any, depth: int = MAX_DEPTH) -> Any:
    """Returns the value that raw becomes by the change from before to after."""
    if equal(before, after):
        return raw
    if depth == 0:
        return after
    if is_object(raw) and is_object(after):
        return _merge_members(raw, before if is_object(before) else {}, after, depth - 1)
    if is_list(raw) and is_list(before) and is_list(after) and len(raw) == len(before):
        return [
            item if i is None else merge(raw[i], before[i], item, depth - 1) for i, item in zip(_origins(before, after), after, strict=True)
        ]
    return _added(before, after) if raw is None else after


def _merge_members(raw: dict[str, Any], before: dict[str, Any], after: dict[str, Any], depth: int) -> dict[str, Any]:
    merged = {name: value for name, value in raw.items() if name in after or name not in before}
    for name, value in after.items():
        was = before.get(name, _ABSENT)
        if name in raw:
            merged[name] = merge(raw[name], was, value, depth)
        elif not equal(was, value):
            merged[name] = _added(was, value)
    return merged


def _added(before: Any, after: Any) -> Any:
    """Returns what after adds to before: types write empty members that raw lacks, and that it should not get."""
    if not is_object(before) or not is_object(after):
        return after
    return {name: _added(before.get(name), value) for name, value in after.items() if not equal(before.get(name, _ABSENT), value)}


def difference(old: Any, new: Any, *, depth: int = MAX_DEPTH) -> list[Operation]:
    """Returns the operations that make one document of another."""
    operations: list[Operation] = []
    _differ(operations, "", old, new, depth)
    return operations


def _differ(out: list[Operation], path: str, old: Any, new: Any, depth: int) -> None:
    if equal(old, new):
        return
    if depth and is_object(old) and is_object(new):
        _differ_members(out, path, old, new, depth - 1)
    elif not (depth and is_list(old) and is_list(new) and _differ_items(out, path, old, new, depth - 1)):
        out.append({"op": "replace", "path": path, "value": new})


def _differ_members(out: list[Operation], path: str, old: dict[str, Any], new: dict[str, Any], depth: int) -> None:
    for name in sorted(old.keys() | new.keys()):
        below = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in new:
            out.append({"op": "remove", "path": below})
        elif name not in old:
            out.append({"op": "add", "path": below, "value": new[name]})
        else:
            _differ(out, below, old[name], new[name], depth)


def _differ_items(out: list[Operation], path: str, old: list[Any], new: list[Any], depth: int) -> bool:
    """Writes the difference of two lists, or nothing and False if items have changed places."""
    origins = _origins(old, new)
    kept = [i for i in origins if i is not None]
    if any(i > j for i, j in pairwise(kept)):
        return False
    # From the end, so that no index moves before it is used.
    out.extend({"op": "remove", "path": f"{path}/{i}"} for i in sorted(set(range(len(old))).difference(kept), reverse=True))
    for j, i in enumerate(origins):
        if i is None:
            out.append({"op": "add", "path": f"{path}/{j}", "value": new[j]})
        elif old[i] is not new[j]:
            _differ(out, f"{path}/{j}", old[i], new[j], depth)
    return True


def _origins(old: list[Any], new: list[Any]) -> list[int | None]:
    """Returns which item of old each item of new was; None for a new one. Each item of old is taken once."""
    front = _equal_at_front(old, new)
    rest = min(len(old), len(new)) - front
    back = _equal_at_front(old[::-1][:rest], new[::-1][:rest]) if rest else 0
    origins: list[int | None] = [*range(front), *[None] * (len(new) - front - back), *range(len(old) - back, len(old))]
    free = dict.fromkeys(range(front, len(old) - back))
    wanted = range(front, len(new) - back)
    for identify in (_whole, _key) if free else ():
        _take(origins, free, _identities(identify, old, free), _identities(identify, new, (j for j in wanted if origins[j] is None)))
    for j in wanted:
        if origins[j] is None and j in free and not _named(new[j]):
            origins[j] = j
    return origins


def _identities(identify: Callable[[Any], Hashable], items: list[Any], indexes: Iterable[int]) -> dict[int, Hashable]:
    return {i: identity for i in indexes if (identity := identify(items[i])) is not None}


def _take(origins: list[int | None], free: dict[int, None], old: dict[int, Hashable], new: dict[int, Hashable]) -> None:
    """Matches items of the same identity: at the same position if possible, else in order."""
    waiting: dict[Hashable, list[int]] = {}
    for j, identity in new.items():
        if old.get(j) == identity:
            origins[j] = j
            del free[j]
    for i in sorted(old.keys() & free.keys(), reverse=True):
        waiting.setdefault(old[i], []).append(i)
    for j, identity in new.items():
        if origins[j] is None and waiting.get(identity):
            i = origins[j] = waiting[identity].pop()
            del free[i]


def _equal_at_front(old: list[Any], new: list[Any]) -> int:
    """Counts the equal items at the front, many at a time."""
    at, size, least = 0, 1, min(len(old), len(new))
    while size and at < least:
        if equal(old[at : at + size], new[at : at + size]):
            at += size
            size *= 2
        else:
            size //= 2
    return min(at, least)


def _whole(item: Any) -> Hashable:
    """Identifies an item by all that it holds."""
    return json.dumps(item, sort_keys=True) if is_object(item) or is_list(item) else (isinstance(item, bool), item)


def _key(item: Any) -> Hashable:
    """Identifies an item by the first of KEYS that it has, and that is no empty text."""
    if not is_object(item):
        return None
    return next(((name, _whole(item[name])) for name in KEYS if item.get(name, "") != ""), None)


def _named(item: Any) -> bool:
    """Reports whether an item has a name: another name is then another item."""
    return is_object(item) and item.get("name", "") != ""


def equal(a: Any, b: Any) -> bool:
    """Reports whether two values are the same. To Python True is 1; marshal, which is as fast as the comparison, tells them apart."""
    if a is b:
        return True
    if a != b or isinstance(a, bool) is not isinstance(b, bool):
        return False
    if not is_object(a) and not is_list(a):
        return True
    try:
        if marshal.dumps(a, 2) == marshal.dumps(b, 2):
            return True
    except ValueError:  # A type of the handler's.
        pass
    # The members may have another order.
    if is_object(a):
        return all(equal(value, b[name]) for name, value in a.items())
    return all(map(equal, a, b))


def _number(text: str) -> float:
    number = float(text)
    return number if repr(number) == text or (isfinite(number) and Decimal(text) == Decimal(repr(number))) else Rounded(number)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _written(patch: list[Operation]) -> bytes:
    try:
        marshal.dumps(patch, 2)
    except ValueError:  # A type that is none of JSON's own, as Rounded is.
        _refuse_rounded(patch)
    return write(patch)


def _refuse_rounded(value: Any) -> None:
    if isinstance(value, Rounded):
        raise HandlerError(f"the patch would round the number {value!r}: change the object around it by a JSON Patch")
    for below in value.values() if is_object(value) else value if is_list(value) else ():
        _refuse_rounded(below)


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Reports whether a value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Reports whether a value is a JSON array."""
    return isinstance(value, list)
