"""Event loops in threads of their own, and calls from one loop to another."""

import asyncio
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from logging import Logger
from typing import Any, Final, TypeVar

from portcullis_host._limits import BLOCKED, SECOND

_T = TypeVar("_T")


class LoopThread:
    """An event loop in a thread of its own, until it is closed.

    Args:
        name: Names the thread.
    """

    def __init__(self, name: str) -> None:
        self.loop: Final = asyncio.new_event_loop()
        # gRPC wakes all loops for an event of one, and only one finds it (github.com/grpc/grpc/issues/25364).
        self.loop.set_exception_handler(_unless_blocking)
        self._thread: Final = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs work on the loop, for a task of another one. With the task the work is cancelled, and awaited all the same."""
        here = asyncio.get_running_loop()
        over = asyncio.Event()
        tasks: list[asyncio.Task[_T]] = []

        def begin() -> None:
            tasks.append(self.loop.create_task(work))
            tasks[0].add_done_callback(lambda _: here.call_soon_threadsafe(over.set))

        self.loop.call_soon_threadsafe(begin)
        try:
            await over.wait()
        except asyncio.CancelledError:
            self.loop.call_soon_threadsafe(lambda: tasks[0].cancel())  # noqa: PLW0108 (begin comes first)
            await over.wait()
            raise
        return tasks[0].result()

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs work on the loop, for a thread that waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        """Ends the loop and its thread."""
        self.wait(self.loop.shutdown_asyncgens())
        self.wait(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def _unless_blocking(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)


class Hop:
    """Calls functions on an event loop from any thread, in order. Calls that come together wake the loop once.

    Args:
        loop: Where they are called; one that has ended calls none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._calls: Final[deque[tuple[Callable[..., object], tuple[Any, ...]]]] = deque()
        self._awake = False

    def __call__(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function."""
        self._calls.append((function, arguments))
        if not self._awake:
            self._awake = True
            with suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        self._awake = False  # Before it looks: what is added from now on wakes the loop again.
        while self._calls:
            function, arguments = self._calls.popleft()
            function(*arguments)


async def watch(loop: asyncio.AbstractEventLoop, thread: int, logger: Logger) -> None:
    """Logs when another loop, that of a thread, is blocked for more than a second, and where."""
    here = asyncio.get_running_loop()
    with suppress(RuntimeError):  # The loop has ended.
        while True:
            answered = asyncio.Event()
            loop.call_soon_threadsafe(here.call_soon_threadsafe, answered.set)
            try:
                async with asyncio.timeout(BLOCKED / SECOND):
                    await answered.wait()
            except TimeoutError:
                stack = "".join(traceback.format_stack(sys._current_frames().get(thread))[-5:])  # noqa: SLF001 (it is documented)
                logger.error("a handler blocks the event loop, and with it all others: make it a plain function\n%s", stack)  # noqa: TRY400 (its own stack tells nothing)
                await answered.wait()
            await asyncio.sleep(BLOCKED / SECOND)
