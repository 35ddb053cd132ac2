"""A fake dispatcher for tests without an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from portcullis_host._host import Host
from portcullis_host.contract import admission
from portcullis_host.contract import host as contract
from portcullis_host.testing._fake import FakeDispatcher
from portcullis_host.testing._session import PATIENCE, Session

_T = TypeVar("_T")


class BlockingDispatcher:
    """A FakeDispatcher whose methods wait, as a context manager: the host runs on an event loop in a thread of its own.

    Args:
        host: The host, with its hooks.
        welcome: The answer to it, filled where it is absent.
    """

    def __init__(self, host: Host, *, welcome: contract.Welcome | None = None) -> None:
        self._fake: Final = FakeDispatcher(host, welcome=welcome)
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name="portcullis-fake-dispatcher")
        self._stack: Final = AsyncExitStack()
        self._session: Session

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._session = self._wait(self._stack.enter_async_context(self._fake))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            self._wait(self._stack.aclose())
        finally:
            self._end()

    @property
    def hello(self) -> contract.Hello:
        """How the host introduced itself."""
        return self._session.hello

    def review(self, hook: str, request: admission.AdmissionRequest) -> admission.AdmissionResponse:
        """Puts a request to one hook and returns its verdict, see Session.review."""
        return self._wait(self._session.review(hook, request))

    def ask(self, hook: str, request: admission.AdmissionRequest, *, remaining: timedelta = PATIENCE) -> contract.Verdict:
        """Puts a request to one hook and returns how the call ended, see Session.ask."""
        return self._wait(self._session.ask(hook, request, remaining=remaining))

    def probe(self, hook: str) -> contract.ProbeResult:
        """Asks whether a hook is ready."""
        return self._wait(self._session.probe(hook))

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._wait(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
