"""A fake dispatcher for tests without an event loop."""

from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from portcullis_host._host import Host
from portcullis_host._loops import LoopThread
from portcullis_host.contract import admission
from portcullis_host.contract import host as contract
from portcullis_host.testing._cases import Case
from portcullis_host.testing._fake import FakeDispatcher
from portcullis_host.testing._session import PATIENCE, Session
from portcullis_host.testing._verdict import Verdict


class BlockingDispatcher:
    """A FakeDispatcher whose methods wait, as a context manager: the host runs on an event loop in a thread of its own.

    Args:
        host: The host, with its hooks.
        welcome: The answer to it, filled where it is absent.
    """

    def __init__(self, host: Host, *, welcome: contract.Welcome | None = None) -> None:
        self._fake: Final = FakeDispatcher(host, welcome=welcome)
        self._loop: Final = LoopThread("portcullis-fake-dispatcher")
        self._stack: Final = AsyncExitStack()
        self._session: Session

    def __enter__(self) -> Self:
        try:
            self._session = self._loop.wait(self._stack.enter_async_context(self._fake))
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            self._loop.wait(self._stack.aclose())
        finally:
            self._loop.close()

    @property
    def hello(self) -> contract.Hello:
        """How the host introduced itself."""
        return self._session.hello

    def play(self, case: Case) -> None:
        """Puts the request of a case to its hook, and compares the verdict, see Session.play."""
        self._loop.wait(self._session.play(case))

    def review(self, hook: str, request: admission.AdmissionRequest) -> Verdict:
        """Puts a request to one hook and returns its verdict, see Session.review."""
        return self._loop.wait(self._session.review(hook, request))

    def ask(self, hook: str, request: admission.AdmissionRequest, *, remaining: timedelta = PATIENCE) -> contract.Verdict:
        """Puts a request to one hook and returns how the call ended, see Session.ask."""
        return self._loop.wait(self._session.ask(hook, request, remaining=remaining))

    def probe(self, hook: str) -> contract.ProbeResult:
        """Asks whether a hook is ready."""
        return self._loop.wait(self._session.probe(hook))
