"""A fake dispatcher with one host."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final

from portcullis_host._errors import SessionError
from portcullis_host._host import Host
from portcullis_host.contract import host as contract
from portcullis_host.testing._memory import Pipe
from portcullis_host.testing._session import Session


class FakeDispatcher:
    """Runs a host over a stream in memory, as an asynchronous context manager. A host is run once.

    At the end it stops the host, and raises what the host raises when it does not drain cleanly.

    Args:
        host: The host, with its hooks.
        welcome: The answer to it, filled where it is absent.
    """

    def __init__(self, host: Host, *, welcome: contract.Welcome | None = None) -> None:
        self._host: Final = host
        self._welcome: Final = welcome
        self._pipe: Final = Pipe()
        self._served: asyncio.Task[None]
        self._asking: asyncio.Task[None]

    async def __aenter__(self) -> Session:
        self._served = asyncio.create_task(self._serve())
        accepting = asyncio.create_task(Session.accept(self._pipe, self._welcome))
        await asyncio.wait({self._served, accepting}, return_when=asyncio.FIRST_COMPLETED)
        if self._served.done():
            accepting.cancel()
            with suppress(asyncio.CancelledError, RuntimeError):
                await accepting
            await self._served  # It says why there is no session.
        session = await accepting
        self._asking = asyncio.create_task(self._ask(session))
        return session

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._host.stop()
        try:
            await self._served
        except SessionError as failure:
            raise AssertionError(f"the host did not drain cleanly: {failure}") from failure
        finally:
            await self._asking

    async def _serve(self) -> None:
        try:
            await self._host.serve(self._pipe)
        finally:
            self._pipe.abort()

    async def _ask(self, session: Session) -> None:
        await session.serve()
        self._pipe.end()
