"""What goes with a verdict beside the decision, as far as it can be sent. Pure, and nothing here raises: a denial must stay one."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, TypeVar, cast

from portcullis_host._verdict import valid

FORBIDDEN: Final = 403
CODES: Final = range(400, 600)
"""Those of HTTP's errors."""
MAX_ITEMS: Final = 4096
"""Warnings, annotations and causes of a verdict: with more of them a dispatcher takes none."""

_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True, slots=True)
class Cause:
    """One field at fault."""

    field: str
    """Its path, for example ``spec.containers[0].image``."""
    message: str
    """Text for a person."""
    reason: str = ""
    """Machine-readable, for example ``FieldValueInvalid``."""


class Decoration:
    """Makes what an author gave what the types of a Response say, and names what it had to leave out."""

    def __init__(self) -> None:
        self.left_out: Final[dict[str, None]] = {}
        """Names, in order."""
        self._room = MAX_ITEMS

    def decision(self, value: object) -> bool:
        """Returns whether a value is true; one that cannot tell is a denial."""
        return self._read("allowed", lambda: bool(value), False)  # noqa: FBT003

    def text(self, name: str, value: object) -> str:
        """Returns the text of anything, which is empty for None."""
        return "" if value is None else self._read(name, lambda: _text(value), "")

    def code(self, value: object) -> int:
        """Returns a code of HTTP's errors: that of 0 and None is 403, and so is that of anything else."""
        code = self._read("code", lambda: _number(value or FORBIDDEN), FORBIDDEN)
        if code in CODES:
            return code
        self._leave_out("code")
        return FORBIDDEN

    def texts(self, name: str, values: object) -> tuple[str, ...]:
        """Returns the texts of several things, or of a single one."""
        return tuple(self._each(name, self._items(name, values), _text))

    def causes(self, values: object) -> tuple[Cause, ...]:
        """Returns fields at fault, given as causes, mappings, tuples, or plain texts."""
        return tuple(self._each("causes", self._items("causes", values), self._cause))

    def audit(self, values: object) -> dict[str, str]:
        """Returns the texts of a mapping, or of pairs."""
        # Sorted: of two keys that become equal the same one wins each time.
        return dict(sorted(self._each("audit", self._items("audit", values, pairs=True), _pair)))

    def _cause(self, value: object) -> Cause:
        match value:
            case Cause():
                parts: Iterable[object] = (value.field, value.message, value.reason)
            case Mapping():
                fields = cast("Mapping[str, object]", value)
                if "field" not in fields and "message" not in fields:
                    raise TypeError
                parts = (fields.get("field"), fields.get("message"), fields.get("reason"))
            case tuple() | list():
                parts = cast("Iterable[object]", value)
            case _:
                parts = ("", _text(value))
        return Cause(*(self.text("causes", part) for part in parts))

    def _items(self, name: str, values: object, *, pairs: bool = False) -> Iterator[object]:
        """Yields what an iterable has until it fails, or there is no more room; anything else is an item itself."""
        try:
            if pairs and isinstance(values, Mapping):
                values = cast("Mapping[object, object]", values).items()
            if values is None:
                return
            single = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
            rest = iter(cast("Iterable[object]", [values] if single else values))
            for value in islice(rest, self._room):
                self._room -= 1
                yield value
            if self._room == 0 and next(rest, self) is not self:
                self._leave_out(name)
        except Exception:  # noqa: BLE001 (whatever an author's iterable raises)
            self._leave_out(name)

    def _each(self, name: str, values: Iterable[_T], make: Callable[[_T], _U]) -> Iterator[_U]:
        for value in values:
            made = self._read(name, partial(make, value), None)
            if made is not None:
                yield made

    def _read(self, name: str, read: Callable[[], _T], otherwise: _U) -> _T | _U:
        try:
            return read()
        except Exception:  # noqa: BLE001 (whatever an author's object raises when it is asked for its text)
            self._leave_out(name)
            return otherwise

    def _leave_out(self, name: str) -> None:
        self.left_out[name] = None


def _text(value: object) -> str:
    if value is None:
        raise TypeError
    return valid(value.decode(errors="replace") if isinstance(value, bytes) else str(value))


def _pair(value: object) -> tuple[str, str]:
    key, text = cast("tuple[object, object]", value)
    return _text(key), _text(text)


def _number(value: object) -> int:
    number = int(cast("str", value))
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    return number
