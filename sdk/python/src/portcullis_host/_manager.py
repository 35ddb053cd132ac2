"""Resolves the names of the dispatchers, and keeps a session to each dispatcher of the dial plan."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from logging import Logger
from typing import Final

from portcullis_host._board import Board
from portcullis_host._dial import GrpcStream, channel, connect
from portcullis_host._dial_plan import Changes, DialPlan, Endpoint, Target, backoff, split
from portcullis_host._errors import DrainedError, HostError
from portcullis_host._limits import RESOLVE_INTERVAL, SECOND
from portcullis_host._link import Link, Listener
from portcullis_host._tls import TLS, explain
from portcullis_host.contract import host

Resolver = Callable[[str], Awaitable[Sequence[str]]]
"""Turns the host of a dispatcher's address into its IP addresses, of which each is a dispatcher. An IP address is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialling:
    """How dispatchers are found and dialled."""

    dispatchers: tuple[str, ...]
    server_name: str
    tls: TLS
    max_frame_bytes: int
    resolver: Resolver


class Manager:
    """Runs a loop for each dispatcher of the dial plan.

    Args:
        dialling: How dispatchers are found and dialled.
        new_link: Makes a session.
        board: Hears what the sessions say.
        logger: Takes what the operator of the host should know.
    """

    def __init__(self, *, dialling: Dialling, new_link: Callable[[Listener], Link], board: Board, logger: Logger) -> None:
        self.dialling: Final = dialling
        self.new_link: Final = new_link
        self.board: Final = board
        self.logger: Final = logger
        self.cut_off: DrainedError | None = None
        """A session whose calls did not finish in time."""
        self._plan: Final = DialPlan(dialling.dispatchers, dialling.server_name)
        self._resolve_now: Final = {name: asyncio.Event() for name in dialling.dispatchers}
        self._leave: Final[dict[str, asyncio.Event]] = {}
        """What stops a loop, by its key."""
        self._loops: Final[set[asyncio.Task[None]]] = set()
        self._closed = False

    async def serve(self, stop: asyncio.Event) -> None:
        """Holds sessions to all dispatchers until stop is set and they have drained.

        Raises:
            HostError: Calls were cut off.
        """
        resolvers = [asyncio.create_task(self._resolve(name)) for name in self._resolve_now]
        try:
            await stop.wait()
            self._closed = True
            for leave in self._leave.values():
                leave.set()
            await asyncio.gather(*self._loops)
        finally:
            self._closed = True
            for task in (*resolvers, *self._loops):
                task.cancel()
            await asyncio.gather(*resolvers, *self._loops, return_exceptions=True)
        if self.cut_off is not None:
            raise HostError(str(self.cut_off))

    def change(self, update: Callable[[DialPlan], Changes]) -> None:
        """Updates the dial plan, and starts and stops loops as it says."""
        if self._closed:
            return
        changes = update(self._plan)
        for key in changes.stop:
            self._leave[key].set()
        for target in changes.start:
            leave = self._leave[target.key] = asyncio.Event()
            task = asyncio.create_task(self._keep(target, leave))
            self._loops.add(task)
            task.add_done_callback(self._loops.discard)

    def resolve_all(self) -> None:
        """Resolves all names at once: a dispatcher that is gone may be back at another address."""
        for now in self._resolve_now.values():
            now.set()

    async def _keep(self, target: Target, leave: asyncio.Event) -> None:
        await _Loop(self, target, leave).keep_session()
        del self._leave[target.key]
        self.change(lambda plan: plan.gone(target.key))

    async def _resolve(self, name: str) -> None:
        """Keeps the addresses of one name current. While it cannot be resolved the last addresses count."""
        now, last_error = self._resolve_now[name], ""
        while True:
            now.clear()
            try:
                addresses = await self._look_up(name)
            except Exception as error:  # noqa: BLE001 (the resolver may be the user's)
                text = _text(error)
                if text != last_error:
                    self.logger.warning("dispatchers cannot be resolved: name=%s error=%s", name, text)
                last_error = text
            else:
                last_error = ""
                self._resolved(name, addresses)
            await _happens(now, RESOLVE_INTERVAL)

    def _resolved(self, name: str, addresses: Sequence[str]) -> None:
        self.change(lambda plan: plan.resolved(name, addresses))

    async def _look_up(self, name: str) -> Sequence[str]:
        async with asyncio.timeout(RESOLVE_INTERVAL / SECOND):  # TimeoutError is an OSError.
            addresses = await self.dialling.resolver(split(name)[0])
        if not addresses:
            raise OSError("no addresses")
        return addresses


@dataclass(slots=True, eq=False)
class _Loop:
    """Keeps a session to one dispatcher: it dials, serves, and dials again. It is the listener of its sessions."""

    manager: Manager
    target: Target
    leave: asyncio.Event
    """The session drains, and the loop ends."""
    at: Endpoint = field(init=False)
    """In use."""
    accepted: bool = False
    """The session in use was welcomed."""
    attempts: int = 0
    """Since the last useful session."""
    last_error: str = ""
    """That was logged."""

    async def keep_session(self) -> None:
        wait, turn = self.target.delay, 0
        while not await _happens(self.leave, wait):
            self.at = self.target.endpoints[turn % len(self.target.endpoints)]
            self.accepted = False
            try:
                await self._serve_once()
            except Exception as error:  # noqa: BLE001 (whatever it is, the next dial may do better)
                self._report(error)
            else:
                self._report(None)
            self.manager.change(lambda plan: plan.ended(self.target.key))
            wait = backoff(self.attempts, random.random())  # noqa: S311 (no secret)
            self.attempts += 1
            turn += 1

    async def _serve_once(self) -> None:
        """Dials and holds one session."""
        dialling = self.manager.dialling
        async with channel(self.at, dialling.tls, max_frame_bytes=dialling.max_frame_bytes) as dispatcher:
            stream = await _unless(self.leave, connect(dispatcher, self.at, dialling.tls))
            if stream is None:
                return
            link = self.manager.new_link(self)
            try:
                await link.serve(stream, self.leave)
            finally:
                if link.useful:
                    self.attempts = 0

    def _report(self, error: Exception | None) -> None:
        """Logs the end of a session; of equal failures in a row, the first."""
        logger, address = self.manager.logger, self.at.address
        text = _text(error)
        if isinstance(error, DrainedError):
            self.manager.cut_off = error
            logger.warning("session drained in part: address=%s error=%s", address, text)
        elif self.leave.is_set():
            logger.debug("session drained: address=%s error=%s", address, text)
        elif self.accepted:
            self.last_error = ""
            self.manager.resolve_all()
            logger.info("session ended: address=%s error=%s", address, text)
        elif error is not None and text != self.last_error:
            self.last_error = text
            why = explain(text, self.manager.dialling.tls, datetime.now(UTC))
            logger.warning("no session, trying on: address=%s error=%s", address, why)

    def welcomed(self, link: Link, welcome: host.Welcome) -> None:
        """Implements Listener."""
        self.accepted = True
        self.manager.board.welcomed(link, welcome)
        self.manager.change(lambda plan: plan.welcomed(self.target.key, self.at, welcome.dispatcher_id, welcome.peers))

    def hook_changed(self, link: Link, state: host.HookState) -> None:
        """Implements Listener."""
        self.manager.board.hook_changed(link, state)

    def leaving(self, link: Link, drain: host.DispatcherDrain) -> None:
        """Implements Listener."""
        self.manager.board.leaving(link, drain)
        self.manager.change(lambda plan: plan.leaving(self.target.key, self.at, drain.peers))

    def ended(self, link: Link) -> None:
        """Implements Listener."""
        self.manager.board.ended(link)


def _text(error: Exception | None) -> str:
    """Returns the words of an error; a timeout, and a connection that was reset, have none."""
    return str(error) or repr(error)


async def _happens(event: asyncio.Event, within: int) -> bool:
    """Waits for an event, at most for a time, and reports whether it has happened."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within / SECOND):
            await event.wait()
    return event.is_set()


async def _unless(event: asyncio.Event, dial: Coroutine[None, None, GrpcStream]) -> GrpcStream | None:
    """Waits for a stream; None if an event happens before."""
    dialling, happening = asyncio.create_task(dial), asyncio.create_task(event.wait())
    try:
        await asyncio.wait({dialling, happening}, return_when=asyncio.FIRST_COMPLETED)
        return dialling.result() if dialling.done() else None
    finally:
        dialling.cancel()
        happening.cancel()
