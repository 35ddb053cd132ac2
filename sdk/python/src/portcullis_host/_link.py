"""The shell around the state of one session: a reader, a writer and a timer, on the event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from logging import Logger
from typing import Final, Protocol, cast

from portcullis_host._budget import Budget
from portcullis_host._caller import Caller
from portcullis_host._errors import SessionError, public_text
from portcullis_host._hooks import Hooks, Readiness, is_async
from portcullis_host._limits import BATCH_TURNS, MAX_OUTBOX, PROBE_TIMEOUT, SECOND
from portcullis_host._session import (
    NEVER,
    Abort,
    Action,
    Call,
    Cancel,
    HookChanged,
    Leaving,
    Probe,
    Session,
    Start,
    Welcomed,
)
from portcullis_host.contract import host


class Stream(Protocol):
    """The host's end of a stream, which carries encoded frames. One task reads, and another one writes."""

    async def read(self) -> bytes | None:
        """Waits for the next ConnectResponse; None is the clean end. Raises SessionError when the stream is broken."""

    async def write(self, frame: bytes) -> None:
        """Writes a ConnectRequest, and waits while the other side does not take it. Raises SessionError, and read tells why."""

    async def close_sending(self) -> None:
        """Ends the writing; reading goes on."""

    def abort(self) -> None:
        """Ends the stream at once."""


class Listener(Protocol):
    """Hears what a session reads of its dispatcher."""

    def welcomed(self, link: "Link", welcome: host.Welcome) -> None:
        """The dispatcher has accepted the host, or says more about itself."""

    def hook_changed(self, link: "Link", state: host.HookState) -> None:
        """A hook stands differently with the dispatcher."""

    def leaving(self, link: "Link", drain: host.DispatcherDrain) -> None:
        """The dispatcher drains."""

    def ended(self, link: "Link") -> None:
        """The session has ended."""


class Link:
    """One session over one stream.

    Args:
        hello: The first frame, without the share.
        drain_timeout: How long a drain may take, in nanoseconds.
        hooks: What the host offers.
        caller: Runs the handlers.
        budget: Has the share of the session.
        listener: Hears of the dispatcher.
        logger: Takes the failures of probes.
    """

    def __init__(
        self,
        *,
        hello: host.Hello,
        drain_timeout: int,
        hooks: Hooks,
        caller: Caller,
        budget: Budget,
        listener: Listener,
        logger: Logger,
    ) -> None:
        self._hooks: Final = hooks
        self._caller: Final = caller
        self._budget: Final = budget
        self._listener: Final = listener
        self._logger: Final = logger
        budget.add(self)
        hello.max_outstanding = budget.share
        self._session: Final = Session(time.monotonic_ns(), hello, drain_timeout=drain_timeout)
        self._ended: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self._to_send: Final = asyncio.Event()
        self._room: Final = asyncio.Event()
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake = NEVER

    @property
    def useful(self) -> bool:
        """Whether the dispatcher sent anything after its welcome."""
        return self._session.useful

    @property
    def ignored_frames(self) -> int:
        """How many frames were of unknown types."""
        return self._session.ignored

    async def serve(self, stream: Stream, leave: asyncio.Event) -> None:
        """Serves until the stream ends. Once leave is set the session drains.

        Raises:
            SessionError: The stream did not end cleanly.
        """
        self._spawn(self._read(stream))
        self._spawn(self._write(stream))
        self._spawn(self._leave(leave))
        self._carry_out([])
        try:
            await self._ended
        finally:
            self._end(stream)
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def share_changed(self) -> None:
        """Announces the session's share of the budget."""
        self._session.credit(self._budget.share)
        self._carry_out([])

    def _end(self, stream: Stream) -> None:
        if self._timer is not None:
            self._timer.cancel()
        stream.abort()
        for task in self._tasks:
            task.cancel()
        for action in self._session.end():
            if isinstance(action, Cancel):
                self._caller.cancel(action.call)
        self._budget.remove(self)
        self._listener.ended(self)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _leave(self, leave: asyncio.Event) -> None:
        await leave.wait()
        self._session.drain(time.monotonic_ns())
        self._carry_out([])

    async def _read(self, stream: Stream) -> None:
        """Reads, and waits while the writer is too far behind: a dispatcher that does not read is not read from either."""
        try:
            while (frame := await stream.read()) is not None:
                self._carry_out(self._session.frame(time.monotonic_ns(), frame))
                while self._session.waiting > MAX_OUTBOX:
                    self._room.clear()
                    await self._room.wait()
        except SessionError as error:
            self._stop(error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._logger.exception("the SDK failed")
            self._stop(SessionError(f"the SDK failed: {error!r}"))
        else:
            self._stop(None)

    async def _write(self, stream: Stream) -> None:
        """Sends what waits. A failed write ends the sending; the reader learns why the stream ended."""
        try:
            while True:
                await self._to_send.wait()
                if self._session.waiting > 1:
                    # A frame costs far more than a verdict. The reviews that are being read are judged meanwhile, and the dispatcher
                    # sends its next ones together, too. Nothing waits for a handler that takes its time.
                    for _ in range(BATCH_TURNS):
                        await asyncio.sleep(0)
                self._to_send.clear()
                last = self._session.last
                for frame in self._session.take_frames():
                    await stream.write(frame)
                self._room.set()
                if last:
                    await stream.close_sending()
                    break
        except SessionError:
            pass
        self._session.closed()
        self._room.set()

    def _tick(self) -> None:
        self._timer, self._wake = None, NEVER
        self._carry_out(self._session.tick(time.monotonic_ns()))

    def _stop(self, error: SessionError | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    def _carry_out(self, actions: list[Action]) -> None:
        """Carries out actions, wakes the writer if there is something to send, and sets the timer."""
        for action in actions:
            self._carry_out_one(action)
        if self._session.waiting or self._session.last:
            self._to_send.set()
        self._set_timer()

    def _carry_out_one(self, action: Action) -> None:
        match action:
            case Start(call):
                self._caller.start(call, self._finished)
            case Cancel(call):
                self._caller.cancel(call)
            case Probe(seq, hook):
                self._spawn(self._probe(seq, hook))
            case Welcomed(welcome):
                self._listener.welcomed(self, welcome)
            case HookChanged(state):
                self._listener.hook_changed(self, state)
            case Leaving(drain):
                self._budget.remove(self)
                self._listener.leaving(self, drain)
            case Abort(error):
                self._stop(error)

    def _finished(self, call: Call, verdict: host.Verdict) -> None:
        self._session.finish(time.monotonic_ns(), call, verdict)
        self._carry_out([])

    def _set_timer(self) -> None:
        """Makes the timer earlier if it has to be. One that is too early does no harm."""
        wake = self._session.wake()
        if wake >= self._wake or self._ended.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake = wake
        delay = max(0, wake - time.monotonic_ns()) / SECOND
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    async def _probe(self, seq: int, hook: str) -> None:
        """Runs the readiness callback of a hook."""
        not_ready: str | None = None
        ready = self._hooks.readiness(hook)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT / SECOND):
                await _answer(ready)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 (whatever it raises is contained)
            self._logger.warning("hook is not ready: hook=%s error=%r", hook, error)
            not_ready = public_text(error, "the hook is not ready")
        self._session.probed(seq, not_ready)
        self._carry_out([])


async def _answer(ready: Readiness | None) -> None:
    if ready is None:
        return
    if is_async(ready):
        await cast("Callable[[], Awaitable[None]]", ready)()
    else:
        await asyncio.to_thread(ready)
