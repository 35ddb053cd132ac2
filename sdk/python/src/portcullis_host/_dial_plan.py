"""Decides which dispatchers a host dials. Pure."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from portcullis_host._limits import BACKOFF_MAX, BACKOFF_MIN, MAX_TARGETS, PEER_DELAY
from portcullis_host.contract import host


class Endpoint(NamedTuple):
    """Where a dispatcher listens."""

    address: str
    """host:port."""
    server_name: str
    """The name that its certificate must carry."""


@dataclass(slots=True, frozen=True)
class Target:
    """One dispatcher to hold a session to."""

    key: str
    """The address that a name resolved to, or the id of a peer."""
    endpoints: tuple[Endpoint, ...]
    """They are tried in turn."""
    delay: int = 0
    """Time before the first dial, in nanoseconds."""
    peer: str = ""
    """Id of the dispatcher if another one named it."""


@dataclass(slots=True)
class Changes:
    """The loops to start, and the keys of those to stop. A stopped loop drains its session."""

    start: list[Target] = field(default_factory=list[Target])
    stop: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Loop:
    """A loop that dials one target, as long as it runs."""

    target: Target
    dispatcher: str = ""
    """Id of the dispatcher of its session; empty when there is none."""
    peers: Sequence[Target] = ()
    """That this dispatcher named."""
    stopping: bool = False

    def holds(self, dispatcher: str) -> bool:
        return dispatcher != "" and self.dispatcher == dispatcher and not self.stopping


class DialPlan:
    """Every address that the configured names resolve to is dialled, and every peer that a dispatcher names.

    Of two sessions to one dispatcher the younger stays. A session never ends because its address is no longer named: the dispatcher
    there still wants to be served.

    Args:
        names: The configured addresses, host:port.
        server_name: The name that every dispatcher's certificate must carry; empty means the host of its address.
    """

    def __init__(self, names: Iterable[str], server_name: str) -> None:
        self._server_name: Final = server_name
        self._targets: Final[dict[str, list[Target]]] = {name: [] for name in names}
        self._loops: Final[dict[str, _Loop]] = {}
        self._met: Final[dict[str, str]] = {}
        """Id of the dispatcher that was last met, by key."""

    def resolved(self, name: str, addresses: Iterable[str]) -> Changes:
        """Sets the IP addresses of a configured name."""
        hostname, port = split(name)
        server_name = self._server_name or hostname
        endpoints = (Endpoint(join(ip, port), server_name) for ip in addresses)
        self._targets[name] = [Target(e.address, (e,)) for e in endpoints]
        return self._reconcile()

    def welcomed(self, key: str, at: Endpoint, dispatcher: str, peers: Iterable[host.Peer]) -> Changes:
        """Sets the dispatcher that a loop has met, and the peers that it names. Stops an older session to the same dispatcher."""
        loop = self._loops.get(key)
        if loop is None or loop.stopping:
            return Changes()
        loop.dispatcher, loop.peers = dispatcher, self._peer_targets(at, peers, PEER_DELAY)
        self._met[key] = dispatcher
        older = [other for other, loop in sorted(self._loops.items()) if other != key and loop.holds(dispatcher)]
        for other in older:
            self._loops[other].stopping = True
        changes = self._reconcile()
        return Changes(changes.start, older + changes.stop)

    def leaving(self, key: str, at: Endpoint, peers: Sequence[host.Peer]) -> Changes:
        """Sets the peers that a dispatcher names as it leaves. They are dialled at once."""
        loop = self._loops.get(key)
        if loop is None or loop.stopping or not peers:
            return Changes()
        loop.peers = self._peer_targets(at, peers, 0)
        return self._reconcile()

    def ended(self, key: str) -> Changes:
        """Notes that a loop has lost its session, or failed to get one."""
        loop = self._loops.get(key)
        if loop is not None:
            loop.dispatcher, loop.peers = "", ()
        return self._reconcile()

    def gone(self, key: str) -> Changes:
        """Removes a loop that has stopped."""
        self._loops.pop(key, None)
        return self._reconcile()

    def _reconcile(self) -> Changes:
        """Compares the loops with the targets."""
        wanted = self._wanted()
        changes = Changes()
        for key, loop in sorted(self._loops.items()):
            if key not in wanted and not loop.dispatcher and not loop.stopping:
                loop.stopping = True
                changes.stop.append(key)
        for key, target in sorted(wanted.items()):
            if key not in self._loops and len(self._loops) < MAX_TARGETS:
                self._loops[key] = _Loop(target)
                changes.start.append(target)
        self._forget(wanted)
        return changes

    def _wanted(self) -> dict[str, Target]:
        """Returns the targets that should have a loop, by key."""
        wanted: dict[str, Target] = {}
        configured = [target for targets in self._targets.values() for target in targets]
        for target in configured:
            if not self._elsewhere(target.key, self._met.get(target.key, "")):
                wanted.setdefault(target.key, target)
        addresses = {target.key for target in configured}
        for _, loop in sorted(self._loops.items()):
            for target in loop.peers:
                known = any(endpoint.address in addresses for endpoint in target.endpoints)
                if not known and not self._elsewhere(target.key, target.peer):
                    wanted[target.key] = target
        return wanted

    def _elsewhere(self, key: str, dispatcher: str) -> bool:
        """Reports whether a loop other than that of key has a session to the dispatcher."""
        return any(other != key and loop.holds(dispatcher) for other, loop in self._loops.items())

    def _forget(self, wanted: dict[str, Target]) -> None:
        """Drops the ids met at addresses that are no longer named."""
        named = {target.key for targets in self._targets.values() for target in targets}
        for key in self._met.keys() - wanted.keys() - named - self._loops.keys():
            del self._met[key]

    def _peer_targets(self, at: Endpoint, peers: Iterable[host.Peer], delay: int) -> list[Target]:
        """Returns the targets of peers that the dispatcher at an endpoint names."""
        targets: list[Target] = []
        for peer in list(peers)[:MAX_TARGETS]:
            endpoints = tuple(
                Endpoint(address, self._peer_name(split(address)[0], at.server_name))
                for address in peer.addresses[:MAX_TARGETS]
                if is_address(address)
            )
            if endpoints:
                targets.append(Target(f"peer {peer.dispatcher_id}", endpoints, delay, peer.dispatcher_id))
        return targets

    def _peer_name(self, hostname: str, namer: str) -> str:
        """Returns the name that the certificate of a peer must carry.

        Certificates seldom hold the addresses of Pods: a peer that is known by its IP address alone carries the name of the dispatcher
        that named it.
        """
        if is_ip(hostname) and not is_ip(namer):
            hostname = namer
        return self._server_name or hostname


def backoff(attempts: int, chance: float) -> int:
    """Returns the pause after failures in a row: longer each time, and random by chance, 0 to 1.

    The hosts of a dispatcher that restarts do not come back all at once.
    """
    most = min(BACKOFF_MAX, 2 * BACKOFF_MIN << min(attempts, 6))
    return BACKOFF_MIN + int(chance * (most - BACKOFF_MIN))


def split(address: str) -> tuple[str, str]:
    """Splits host:port, also [host]:port."""
    hostname, _, port = address.rpartition(":")
    return hostname.removeprefix("[").removesuffix("]"), port


def join(hostname: str, port: str) -> str:
    """Joins a host, with brackets around an IPv6 address, and a port."""
    return f"[{hostname}]:{port}" if ":" in hostname else f"{hostname}:{port}"


def is_address(text: str) -> bool:
    """Reports whether a text is host:port."""
    hostname, port = split(text)
    return hostname != "" and port.isdecimal() and join(hostname, port) == text


def is_ip(text: str) -> bool:
    """Reports whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
