"""Remembers cancellations that came before their reviews. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from portcullis_host._limits import MAX_EARLY_CANCELS


class _Early(NamedTuple):
    call_id: int
    hooks: Sequence[int]
    """Empty means all."""
    at: int

    @property
    def size(self) -> int:
        return 1 + len(self.hooks)


@dataclass(slots=True)
class EarlyCancels:
    """A bounded memory of cancellations. At the bound it forgets the oldest: their handlers run to their deadlines."""

    _list: deque[_Early] = field(default_factory=deque[_Early])
    _size: int = 0

    def remember(self, now: int, before: int, call_id: int, hooks: Sequence[int]) -> None:
        """Adds a cancellation, after it forgot those that came before a time."""
        self._forget(before)
        early = _Early(call_id, hooks, now)
        if early.size > MAX_EARLY_CANCELS:
            return
        while self._size + early.size > MAX_EARLY_CANCELS:
            self._size -= self._list.popleft().size
        self._list.append(early)
        self._size += early.size

    def take(self, before: int, call_id: int) -> list[Sequence[int]]:
        """Removes the cancellations of a call, and returns the hooks of those that did not come before a time."""
        if not self._list:
            return []
        self._forget(before)
        taken = [e for e in self._list if e.call_id == call_id]
        if taken:
            self._list = deque(e for e in self._list if e.call_id != call_id)
            self._size -= sum(e.size for e in taken)
        return [e.hooks for e in taken]

    def _forget(self, before: int) -> None:
        while self._list and self._list[0].at < before:
            self._size -= self._list.popleft().size
