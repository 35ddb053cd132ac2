"""Runs handlers: plain functions in threads, coroutines in tasks of the event loop."""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from logging import Logger
from typing import Final

from portcullis_host._errors import HANDLER_FAILED, public_text
from portcullis_host._hooks import Function, Hook, Hooks
from portcullis_host._limits import SECOND
from portcullis_host._loops import Hop
from portcullis_host._request import Lifetime, Mode, Request, Stage
from portcullis_host._response import denial_of, left_out, to_message
from portcullis_host._session import Call
from portcullis_host._telemetry import Telemetry
from portcullis_host._verdict import cancelled, failure, refused
from portcullis_host.contract import host

Deliver = Callable[[Call, host.Verdict], None]
"""Takes the verdict of a call, on the event loop."""


@dataclass(slots=True, eq=False)
class Job:
    """A call on its way through the host."""

    call: Call
    hook: Hook
    function: Function
    deliver: Deliver
    lifetime: Lifetime
    task: asyncio.Task[None] | None = None
    running: bool = False
    verdict: host.Verdict = field(default_factory=lambda: failure(HANDLER_FAILED))

    @property
    def over(self) -> bool:
        """Whether the handler should have stopped."""
        return self.call.ended != "" or self.lifetime.remaining == 0


class Caller:
    """Runs handlers, at most as many at a time as it has slots; further calls wait.

    It is used on the event loop of the sessions alone, as it is made. Coroutines run on the loop of the host's author, which may be
    another one: a handler that blocks it keeps no session waiting.

    Args:
        hooks: Their handlers.
        slots: How many handlers run at a time, over all sessions.
        loop: Runs coroutines.
        context: The one of the author, for handlers.
        executor: Runs plain functions.
        telemetry: Counts the calls.
        logger: Takes the failures.
    """

    def __init__(
        self,
        *,
        hooks: Hooks,
        slots: int,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        executor: Executor,
        telemetry: Telemetry,
        logger: Logger,
    ) -> None:
        self._hooks: Final = hooks
        self._free = slots
        self._loop: Final = loop
        self._context: Final = context
        self._executor: Final = executor
        self._telemetry: Final = telemetry
        self._logger: Final = logger
        self._jobs: Final[dict[Call, Job]] = {}
        self._waiting: Final[deque[Job]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        here = asyncio.get_running_loop()
        self._back: Final = Hop(here)
        self._apart: Final = here is not loop
        self._there: Final = Hop(loop) if self._apart else _at_once

    @property
    def running(self) -> int:
        """How many calls have no verdict."""
        return len(self._jobs)

    async def idle(self) -> None:
        """Waits until no handler runs."""
        await self._idle.wait()

    def start(self, call: Call, deliver: Deliver) -> None:
        """Starts the handler of a call, now or when there is a slot."""
        hook = self._hooks[call.key]
        job = Job(call, hook, hook.function(call.review.request.operation), deliver, Lifetime(call.deadline))
        self._jobs[call] = job
        self._idle.clear()
        if self._free > 0:
            self._run(job)
        else:
            self._waiting.append(job)

    def cancel(self, call: Call) -> None:
        """Tells the handler of a call to stop; call.ended says why."""
        job = self._jobs.get(call)
        if job is None:
            return
        job.lifetime.end()
        if not job.running:
            self._waiting.remove(job)
            job.verdict = refused(call.ended)
            self._finish(job)
        elif job.function.is_async:
            self._there(_stop, job)

    def _run(self, job: Job) -> None:
        self._free -= 1
        job.running = True
        if job.function.is_async:
            self._there(self._begin_task, job)
            return
        try:
            self._executor.submit(self._context.copy().run, self._in_thread, job)
        except RuntimeError:  # It is shut down: the host is at its end.
            job.verdict = refused("draining")
            self._returned(job)

    def _begin_task(self, job: Job) -> None:
        job.task = self._loop.create_task(self._in_task(job), context=self._context.copy())

    async def _in_task(self, job: Job) -> None:
        try:
            if not _begin(job):
                return
            with self._telemetry.handling(job.hook, job.call, _queued(job.call)) as span:
                try:
                    request = _request(job)
                    response = job.function.response(request, await job.function.call(*job.function.arguments(request)))
                except BaseException as error:  # noqa: BLE001 (whatever it raises is contained in its own call)
                    self._judged(job, span, error)
                else:
                    self._judged(job, span, response)
        finally:
            if self._apart:
                self._back(self._returned, job)
            else:
                self._returned(job)

    def _in_thread(self, job: Job) -> None:
        try:
            if not _begin(job):
                return
            with self._telemetry.handling(job.hook, job.call, _queued(job.call)) as span:
                try:
                    request = _request(job)
                    response = job.function.response(request, job.function.call(*job.function.arguments(request)))
                except BaseException as error:  # noqa: BLE001 (likewise)
                    self._judged(job, span, error)
                else:
                    self._judged(job, span, response)
        finally:
            self._back(self._returned, job)

    def _judged(self, job: Job, span: object, outcome: object) -> None:
        """Takes what a handler returned or raised. The verdict stands, whatever is raised by those who are told of it."""
        job.verdict, error, missing = conclude(outcome, job.hook.stage, over=job.over)
        if job.verdict.HasField("response"):
            self._telemetry.judged(span, allowed=job.verdict.response.allowed)
            if missing:
                self._complain(job, f"a part of the verdict cannot be sent ({missing})")
        elif job.verdict.HasField("cancelled"):
            self._telemetry.failed(span, job.call.ended or "its time is over", None)
        else:
            self._telemetry.failed(span, job.verdict.error.message, error)
            self._complain(job, "handler failed", error)

    def _complain(self, job: Job, what: str, error: BaseException | None = None) -> None:
        """Logs a fault of a hook, seldom enough."""
        unlogged = job.hook.complain(time.monotonic_ns())
        if unlogged is None:
            return
        request = job.call.review.request
        self._logger.error(
            "%s: hook=%s stage=%s cluster=%s uid=%s unlogged=%d",
            what,
            job.hook.name,
            job.hook.stage.name.lower(),
            request.cluster,
            request.uid,
            unlogged,
            exc_info=error,
        )

    def _returned(self, job: Job) -> None:
        self._free += 1
        self._finish(job)
        while self._waiting and self._free > 0:
            self._run(self._waiting.popleft())

    def _finish(self, job: Job) -> None:
        del self._jobs[job.call]
        if not self._jobs:
            self._idle.set()
        started = job.call.started
        seconds = (time.monotonic_ns() - started) / SECOND if started else None
        self._telemetry.finished(job.hook, _outcome(job.verdict), seconds)
        job.deliver(job.call, job.verdict)


def conclude(outcome: object, stage: Stage, *, over: bool) -> tuple[host.Verdict, BaseException | None, str]:
    """Makes the verdict of what a handler returned or raised, and tells the failure behind it, and what a denial lacks."""
    try:
        if isinstance(outcome, BaseException):
            denial = denial_of(outcome)
            if denial is None:
                return verdict_of_error(outcome, over=over), outcome, ""
            outcome = denial
        return host.Verdict(response=to_message(outcome, stage)), None, left_out(outcome)
    except Exception as error:  # noqa: BLE001 (a response that cannot be sent)
        return verdict_of_error(error, over=over), error, ""


def verdict_of_error(error: BaseException, *, over: bool) -> host.Verdict:
    """Returns the verdict of a handler that raised.

    Args:
        error: What it raised. An Exception is a failure. What is none, as SystemExit, is what other languages call a panic.
        over: The call was cancelled, or its time is over.
    """
    if isinstance(error, SystemExit):
        return failure("handler ended its goroutine", panicked=True)  # The text of the contract, in every language.
    if not isinstance(error, Exception | asyncio.CancelledError):
        return failure("handler panicked", panicked=True)
    return cancelled() if over else failure(public_text(error, HANDLER_FAILED))


def _at_once(function: Callable[..., object], *arguments: object) -> None:
    function(*arguments)


def _stop(job: Job) -> None:
    """Cancels the task of a handler. One that has not begun yet sees by itself that its call has ended."""
    if job.task is not None and job.call.started:
        job.task.cancel()


def _begin(job: Job) -> bool:
    """Notes the start, unless the call has ended before."""
    if job.call.ended:
        job.verdict = refused(job.call.ended)
        return False
    job.call.started = time.monotonic_ns()
    return True


def _request(job: Job) -> Request:
    hook, call = job.call.hook, job.call
    return Request(
        hook=job.hook.name,
        stage=job.hook.stage,
        admission=call.review.request,
        configuration=hook.configuration,
        round=hook.round,
        mode=Mode(hook.mode),
        traceparent=call.traceparent,
        _lifetime=job.lifetime,
    )


def _queued(call: Call) -> float:
    return (call.started - call.received) / SECOND


def _outcome(verdict: host.Verdict) -> str:
    if verdict.HasField("response"):
        return "allowed" if verdict.response.allowed else "denied"
    if verdict.HasField("error"):
        return "panicked" if verdict.error.panicked else "failed"
    return str(verdict.WhichOneof("outcome"))
