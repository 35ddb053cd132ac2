"""A stream in memory."""

import asyncio
from typing import Final

from portcullis_host._errors import SessionError


class Pipe:
    """A stream between a host and a test in one event loop. It is both ends: Stream is the host's, Peer the dispatcher's."""

    def __init__(self) -> None:
        self._to_host: Final[asyncio.Queue[bytes | None]] = asyncio.Queue()
        self._to_dispatcher: Final[asyncio.Queue[bytes | None]] = asyncio.Queue()
        self._broken = False

    # The host's end.

    async def read(self) -> bytes | None:
        """Implements Stream."""
        return await self._to_host.get()

    async def write(self, frame: bytes) -> None:
        """Implements Stream."""
        if self._broken:
            raise SessionError("the stream has ended")
        self._to_dispatcher.put_nowait(frame)

    async def close_sending(self) -> None:
        """Implements Stream."""
        self._to_dispatcher.put_nowait(None)

    def abort(self) -> None:
        """Implements Stream."""
        if not self._broken:
            self._broken = True
            self._to_dispatcher.put_nowait(None)

    # The dispatcher's end.

    async def send(self, frame: bytes) -> None:
        """Implements Peer."""
        if self._broken:
            raise RuntimeError("the host has left")
        self._to_host.put_nowait(frame)

    async def receive(self) -> bytes | None:
        """Implements Peer."""
        return await self._to_dispatcher.get()

    def end(self) -> None:
        """Ends the stream cleanly."""
        self._to_host.put_nowait(None)
