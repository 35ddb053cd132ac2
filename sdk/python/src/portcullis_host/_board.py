"""Collects what dispatchers say of the hooks."""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from logging import INFO, WARNING, Logger
from typing import Final

from portcullis_host._limits import MAX_HOOK_STATES
from portcullis_host._link import Link
from portcullis_host._request import Stage
from portcullis_host._session import HookKey
from portcullis_host.contract import host


class HookState(Enum):
    """How a hook stands with a dispatcher."""

    UNSPECIFIED = int(host.STATE_UNSPECIFIED)
    """Not said, or not known to this SDK."""
    UNKNOWN_HOOK = int(host.STATE_UNKNOWN_HOOK)
    """No configuration holds a hook of this name and stage."""
    NOT_AUTHORIZED = int(host.STATE_NOT_AUTHORIZED)
    """No HookRoute grants the hook to the host's identity."""
    PENDING = int(host.STATE_PENDING)
    """The hook waits for its first probe."""
    IN_ROTATION = int(host.STATE_IN_ROTATION)
    """The hook is asked for verdicts."""
    REMOVING = int(host.STATE_REMOVING)
    """The hook gets no new calls; those in flight finish."""
    REMOVED = int(host.STATE_REMOVED)
    """The hook is gone."""

    @classmethod
    def _missing_(cls, value: object) -> "HookState":  # noqa: ARG003 (the signature is enum's)
        return cls.UNSPECIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class HookStatus:
    """A dispatcher's answer to the offer of a hook."""

    name: str
    """Name of the hook."""
    stage: Stage
    """Stage of the hook."""
    clusters: tuple[str, ...]
    """Clusters for which the hook is in this state; empty means all."""
    state: HookState
    """The state."""
    message: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """One session that a dispatcher has accepted."""

    id: str
    """Id of the session."""
    dispatcher: str
    """Id of the dispatcher's process."""
    revision: str
    """Digest of the configuration that the dispatcher named last."""
    leaving: bool
    """True when the dispatcher sends no new calls."""
    hooks: tuple[HookStatus, ...]
    """The states that the dispatcher reported, in no order."""
    ignored_frames: int
    """How many frames were of types that this SDK does not know."""


@dataclass(slots=True)
class _Entry:
    id: str = ""
    dispatcher: str = ""
    revision: str = ""
    leaving: bool = False


_States = dict[tuple[str, Stage, tuple[str, ...]], HookStatus]


class Board:
    """The states of all sessions. It is the listener of those that have no other.

    Args:
        logger: Takes the changes.
    """

    def __init__(self, logger: Logger) -> None:
        self.ready: Final = Future[None]()
        """Done once every expected hook was in rotation."""
        self._logger: Final = logger
        self._missing: set[HookKey] = set()
        self._sessions: Final[dict[Link, tuple[_Entry, _States]]] = {}
        self._logged: Final[_States] = {}

    def expect(self, keys: Iterable[HookKey]) -> None:
        """Sets the hooks that make the host ready."""
        self._missing = set(keys)

    def status(self) -> tuple[SessionStatus, ...]:
        """Returns the sessions, by the ids of their dispatchers. Safe to call in any thread."""
        sessions = (
            SessionStatus(
                id=entry.id,
                dispatcher=entry.dispatcher,
                revision=entry.revision,
                leaving=entry.leaving,
                hooks=tuple(states.copy().values()),
                ignored_frames=link.ignored_frames,
            )
            for link, (entry, states) in self._sessions.copy().items()
        )
        return tuple(sorted(sessions, key=lambda session: session.dispatcher))

    def welcomed(self, link: Link, welcome: host.Welcome) -> None:
        """Implements Listener."""
        opened = link not in self._sessions
        entry, states = self._sessions.setdefault(link, (_Entry(), {}))
        entry.id, entry.dispatcher, entry.revision = welcome.session_id, welcome.dispatcher_id, welcome.revision
        if opened:
            self._logger.info("session opened: dispatcher=%s session=%s", entry.dispatcher, entry.id)
        self._set(entry, states, welcome.hooks)

    def hook_changed(self, link: Link, state: host.HookState) -> None:
        """Implements Listener."""
        if link in self._sessions:
            entry, states = self._sessions[link]
            self._set(entry, states, [state])

    def leaving(self, link: Link, drain: host.DispatcherDrain) -> None:  # noqa: ARG002 (of Listener)
        """Implements Listener."""
        if link in self._sessions:
            self._sessions[link][0].leaving = True

    def ended(self, link: Link) -> None:
        """Implements Listener."""
        self._sessions.pop(link, None)

    def _set(self, entry: _Entry, states: _States, news: Iterable[host.HookState]) -> None:
        for message in news:
            if message.stage not in {stage.value for stage in Stage}:
                continue
            status = HookStatus(
                name=message.name,
                stage=Stage(message.stage),
                clusters=tuple(message.clusters),
                state=HookState(message.state),
                message=message.message,
            )
            entry.revision = message.revision or entry.revision
            _replace(states, status)
            if _replace(self._logged, status):
                self._log(entry.dispatcher, status)
            self._rotate(status)

    def _rotate(self, status: HookStatus) -> None:
        key = (status.name, status.stage.value)
        if status.state is HookState.IN_ROTATION and key in self._missing:
            self._missing.remove(key)
            if not self._missing:
                self.ready.set_result(None)

    def _log(self, dispatcher: str, status: HookStatus) -> None:
        """Logs a change. A state in which the hook gets no calls is a warning."""
        refused = status.state in (HookState.UNKNOWN_HOOK, HookState.NOT_AUTHORIZED)
        self._logger.log(
            WARNING if refused else INFO,
            "hook changed: hook=%s stage=%s state=%s clusters=%s dispatcher=%s message=%s",
            status.name,
            status.stage.name.lower(),
            status.state.name.lower(),
            ",".join(status.clusters) or "all",
            dispatcher,
            status.message or "none",
        )


def _replace(states: _States, status: HookStatus) -> bool:
    """Replaces the state of a hook for the same clusters, and reports whether it changed."""
    key = (status.name, status.stage, status.clusters)
    before = states.get(key)
    if before is None and len(states) >= MAX_HOOK_STATES:
        return False
    states[key] = status
    return before != status
