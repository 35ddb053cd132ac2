"""Labels and annotations of decoded objects."""

from collections.abc import Iterator, MutableMapping
from typing import Any, Final


class _Texts(MutableMapping[str, str]):
    """A member of an object's metadata, which is made when it is first set."""

    def __init__(self, document: dict[str, Any], name: str) -> None:
        self._document: Final = document
        self._name: Final = name

    def __getitem__(self, key: str) -> str:
        return self._read()[key]

    def __setitem__(self, key: str, value: str) -> None:
        metadata: dict[str, Any] = self._document.get("metadata") or {}
        metadata[self._name] = (metadata.get(self._name) or {}) | {key: value}
        self._document["metadata"] = metadata

    def __delitem__(self, key: str) -> None:
        del self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[str, str]:
        metadata: dict[str, Any] = self._document.get("metadata") or {}
        return metadata.get(self._name) or {}


def labels(document: dict[str, Any]) -> MutableMapping[str, str]:
    """Returns the labels of an object, to be read and set: ``labels(request.object)["team"] = "shop"``."""
    return _Texts(document, "labels")


def annotations(document: dict[str, Any]) -> MutableMapping[str, str]:
    """Returns the annotations of an object, to be read and set."""
    return _Texts(document, "annotations")
