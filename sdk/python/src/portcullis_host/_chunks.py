"""Joins the chunks of a review. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from portcullis_host._errors import BrokenContractError
from portcullis_host._limits import MAX_REVIEW_HOOKS
from portcullis_host.contract import host


@dataclass(slots=True)
class Assembly:
    """The review that is coming in chunks, if there is one. They come one after the other, in the order of their ids."""

    limit: int
    """Size of the largest review, in bytes."""
    call_id: int = -1
    """In progress, or the last one; -1 before the first."""
    hooks: int = 0
    began: int = 0
    """The times of the review count from its first chunk."""
    _total: int = 0
    _data: bytearray | None = field(default=None, repr=False)

    @property
    def in_progress(self) -> int | None:
        """The call whose review has come in part."""
        return None if self._data is None else self.call_id

    def add(self, now: int, chunk: host.Chunk) -> bytes | None:
        """Returns the encoded review if the chunk completes it. The buffer grows with the data, whatever total_bytes promises."""
        data = self._begin(now, chunk) if self._data is None else self._data
        if chunk.call_id != self.call_id:
            raise BrokenContractError(f"a chunk of call {chunk.call_id} came while call {self.call_id} was incomplete")
        if (chunk.total_bytes, chunk.hooks) != (self._total, self.hooks):
            raise BrokenContractError(f"the chunks of call {self.call_id} do not agree on its size")
        if not chunk.data:
            raise BrokenContractError(f"a chunk of call {self.call_id} was empty")
        data += chunk.data
        if len(data) > self._total:
            raise BrokenContractError(f"the chunks of call {self.call_id} are longer than the {self._total} bytes that they say")
        if len(data) < self._total:
            return None
        self._data = None
        return bytes(data)

    def _begin(self, now: int, chunk: host.Chunk) -> bytearray:
        if chunk.total_bytes > self.limit:
            raise BrokenContractError(f"call {chunk.call_id} has {chunk.total_bytes} bytes, this host takes {self.limit}")
        if chunk.hooks > MAX_REVIEW_HOOKS:
            raise BrokenContractError(f"call {chunk.call_id} asks {chunk.hooks} hooks, more than {MAX_REVIEW_HOOKS}")
        if chunk.call_id <= self.call_id:
            raise BrokenContractError(f"call {chunk.call_id} came after call {self.call_id}: each comes once, in the order of their ids")
        self.call_id, self._total, self.hooks, self.began = chunk.call_id, chunk.total_bytes, chunk.hooks, now
        self._data = bytearray()
        return self._data

    def covers(self, indexes: Iterable[int]) -> bool:
        """Reports whether a cancellation names every hook of the incomplete review; no index means all."""
        named = set(indexes)
        return not named or sum(index < self.hooks for index in named) == self.hooks

    def drop(self) -> None:
        """Drops the incomplete review."""
        self._data = None
