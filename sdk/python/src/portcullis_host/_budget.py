"""Divides the calls that a host takes at a time over its sessions."""

from typing import Final, Protocol


class Member(Protocol):
    """A session that takes a share."""

    def share_changed(self) -> None:
        """Announces the share anew."""


class Budget:
    """Shares of a total, the same for each member. While they change, their sum may exceed it: calls beyond it wait for a slot.

    Args:
        total: What is divided.
    """

    def __init__(self, total: int) -> None:
        self._total: Final = total
        self._members: Final[set[Member]] = set()

    @property
    def share(self) -> int:
        """How many calls each session may take now; at least 1."""
        return max(1, self._total // max(1, len(self._members)))

    def add(self, member: Member) -> None:
        """Adds a member, and tells the others."""
        self._members.add(member)
        self._tell_others(member)

    def remove(self, member: Member) -> None:
        """Removes a member, which gets no new calls, and tells the others. It may be called again."""
        if member in self._members:
            self._members.remove(member)
            self._tell_others(member)

    def _tell_others(self, member: Member) -> None:
        for other in self._members - {member}:
            other.share_changed()
