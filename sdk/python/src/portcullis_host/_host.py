"""The host: what an author's program makes, registers its hooks with, and runs."""

import asyncio
import contextvars
import logging
import secrets
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from portcullis_host._board import Board, SessionStatus
from portcullis_host._budget import Budget
from portcullis_host._caller import Caller
from portcullis_host._dial_plan import is_address
from portcullis_host._errors import HostError
from portcullis_host._hooks import Hooks, Initializer, Readiness, Registration, initializing
from portcullis_host._limits import HANDLER_GRACE, PROTOCOL, SECOND
from portcullis_host._link import Link, Listener, Stream
from portcullis_host._loops import LoopThread, watch
from portcullis_host._manager import Dialling, Manager, Resolver
from portcullis_host._request import Stage
from portcullis_host._telemetry import telemetry
from portcullis_host._tls import TLS, context, read
from portcullis_host._verdict import valid
from portcullis_host.contract import host

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

SDK: Final = "portcullis-python"
VERSION: Final = "0.1.0"

DEFAULT_MAX_OUTSTANDING: Final = 64
DEFAULT_MAX_FRAME_BYTES: Final = 16 << 20
DEFAULT_DRAIN_TIMEOUT: Final = timedelta(seconds=10)
MAX_INT32: Final = (1 << 31) - 1

_InitializerT = TypeVar("_InitializerT", bound=Initializer)


class Host:
    """Serves hooks to a mesh. Register them with validate, mutate and initialize, then await :meth:`run` once.

    Sessions run in a thread of their own, so that a handler that blocks the event loop of run delays no sign of life; it is logged.
    All methods but :meth:`stop`, :meth:`ready` and :meth:`status` are called on one event loop, or before it runs.

    Args:
        name: Name of the program, the same for all its replicas, for example "imagepolicy".
        dispatchers: Their addresses, host:port. Every IP address that a host resolves to is a dispatcher of its own, and the host holds
            a session to each. Required for run.
        tls: How sessions are secured: TLSFiles, TLSPEM, a function that returns one, or Plaintext in tests. Required for run.
        server_name: The name that every dispatcher's certificate must carry; empty means the host of its address. A peer that is named by
            its IP address alone is known by the name of the dispatcher that named it.
        instance: Names this process among its replicas; empty means the host name and a random suffix.
        zone: Failure domain that the process runs in; empty means unknown.
        clusters: Clusters that the host wants to serve; none means all that it is granted.
        max_outstanding: How many calls the host takes at a time, divided over its sessions. It bounds the handlers that run at once.
        max_frame_bytes: Size of the largest review that the host takes. The default is an object and its predecessor of 3 MiB each, the
            most that an API server stores, and as much again.
        drain_timeout: How long the calls in flight may take once the host was stopped.
        executor: Runs the handlers that are plain functions; None means threads of the host's own, one for each call at a time.
        resolver: Turns the host of a dispatcher's address into its IP addresses, in the thread of the sessions; None means the
            operating system.
        logger: Takes what the operator of the host should know; None means logging.getLogger("portcullis_host").
        tracer_provider: Makes the spans of handlers; None means OpenTelemetry's global one. Without the package there are no spans.
        meter_provider: Counts the calls; likewise.

    Raises:
        HostError: An option is at fault.
    """

    def __init__(
        self,
        name: str,
        *,
        dispatchers: Iterable[str] = (),
        tls: TLS | None = None,
        server_name: str = "",
        instance: str = "",
        zone: str = "",
        clusters: Sequence[str] = (),
        max_outstanding: int = DEFAULT_MAX_OUTSTANDING,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        drain_timeout: timedelta = DEFAULT_DRAIN_TIMEOUT,
        executor: Executor | None = None,
        resolver: Resolver | None = None,
        logger: logging.Logger | None = None,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
    ) -> None:
        self._dispatchers: Final = tuple(dispatchers)
        self._tls: Final = tls
        self._server_name: Final = server_name
        self._resolver: Final = resolver or resolve
        self._executor: Final = executor
        self._max_outstanding: Final = max_outstanding
        self._drain_timeout: Final = drain_timeout // timedelta(microseconds=1) * 1000
        self._logger: Final = logger or logging.getLogger("portcullis_host")
        self._hello: Final = host.Hello(protocol_min=PROTOCOL, protocol_max=PROTOCOL, sdk=SDK, sdk_version=VERSION)
        for option, value in (("dispatchers", dispatchers), ("clusters", clusters)):
            if isinstance(value, str):
                raise HostError(f"{option} is a text: want a list of texts")
        _check(name, (instance, zone, *clusters), self._dispatchers)
        _check_limits(max_outstanding, max_frame_bytes, drain_timeout)
        self._hello.host, self._hello.zone, self._hello.max_frame_bytes = name, zone, max_frame_bytes
        self._hello.instance = instance or _new_instance()
        self._hello.clusters.extend(clusters)
        self._hello.capabilities.extend(["batches", "chunks"])

        self._hooks: Final = Hooks()
        self._board: Final = Board(self._logger)
        self._budget: Final = Budget(max_outstanding)
        self._telemetry: Final = telemetry(tracer_provider, meter_provider)
        self._stop: Final = asyncio.Event()
        self._started = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where the sessions are."""

    # Registration.

    def validate(self, name: str, *, ready: Readiness | None = None, speculate: bool = False) -> Registration:
        """Registers a validating hook, and is the decorator of its handler.

        For example::

            @host.validate("host-network.example.com")
            async def host_network(request: Request) -> Response: ...

        Handlers for each operation apart need not look for an object that is missing::

            labels = host.validate("labels.example.com")

            @labels.create
            async def created(pod: dict[str, Any], request: Request) -> Response: ...

        Args:
            name: The name that the hook has in its configuration.
            ready: Returns when the hook can judge: a new hook gets its first call then, for example when caches are filled. It raises
                HandlerError to tell the operator why it is not ready. It has 5 s. None means ready as soon as the host is connected.
                Hooks of one name share it.
            speculate: Agrees to calls whose verdicts may be thrown away. Only for handlers without side effects.

        Raises:
            HostError: The registration is at fault.
        """
        return Registration(self._hooks.add(name, Stage.VALIDATE, ready=ready, speculate=speculate))

    def mutate(self, name: str, *, ready: Readiness | None = None, speculate: bool = False) -> Registration:
        """Registers a mutating hook, like :meth:`validate`.

        With speculate the dispatcher may ask the hook before the hooks in front of it have answered.
        """
        return Registration(self._hooks.add(name, Stage.MUTATE, ready=ready, speculate=speculate))

    def initialize(self, name: str, *, ready: Readiness | None = None) -> Callable[[_InitializerT], _InitializerT]:
        """Registers an initializer, by the name that it has in its InitializerConfiguration, and is the decorator of its function.

        It is called for objects to be created only, and before the mutating hooks. It gets the object and the request, and returns the
        object as it should be created, or ``deny(message)``. Each object is initialized by one replica; another takes it over if that
        one is lost.

        Raises:
            HostError: The registration is at fault.
        """
        hook = self._hooks.add(name, Stage.INITIALIZE, ready=ready)

        def register(initializer: _InitializerT) -> _InitializerT:
            hook.add("", initializing(initializer))
            return initializer

        return register

    # Serving.

    async def run(self, *, stop_on: Iterable[signal.Signals] = ()) -> None:
        """Serves the hooks on a session to every dispatcher until the host is stopped.

        Then it announces that it drains, finishes the calls in flight within drain_timeout, and returns. Lost and refused sessions are
        logged and dialled again. When the task of run is cancelled, the sessions break at once, without a drain.

        Args:
            stop_on: Signals that stop the host; SIGTERM is what Kubernetes sends.

        Raises:
            HostError: The host cannot start, or handlers were cut off.
            OSError: What secures sessions is at fault at the start; a later fault may be corrected while the host runs.
        """
        if not self._dispatchers:
            raise HostError("no dispatchers: name them, host:port")
        if self._tls is None:
            raise HostError("no tls: use TLSFiles, or Plaintext in tests")
        pem = read(self._tls)
        if pem is not None:
            context(pem)
        dialling = Dialling(
            dispatchers=self._dispatchers,
            server_name=self._server_name,
            tls=self._tls,
            max_frame_bytes=self._hello.max_frame_bytes,
            resolver=self._resolver,
        )

        def manager(caller: Caller) -> Coroutine[None, None, None]:
            new = Manager(
                dialling=dialling,
                new_link=lambda listener: self._link(caller, listener),
                board=self._board,
                logger=self._logger,
            )
            return new.serve(self._stop)

        self._start()
        with self._stopping(stop_on):
            sessions = LoopThread("portcullis-sessions")
            try:
                await sessions.run(self._serve(manager, asyncio.get_running_loop(), threading.get_ident()))
            finally:
                sessions.close()

    async def serve(self, stream: Stream) -> None:
        """Serves the hooks on one session, over a stream that is open, until it ends or the host was stopped and has drained.

        It is for transports other than gRPC, and for tests; run does all that a host in production needs. The session is on the loop of
        the caller, with the handlers.

        Raises:
            HostError: The host cannot start, or handlers were cut off.
            SessionError: The stream did not end cleanly.
        """
        self._start()
        await self._serve(lambda caller: self._link(caller, self._board).serve(stream, self._stop), asyncio.get_running_loop(), 0)

    def stop(self) -> None:
        """Stops the host: run drains, and returns. Safe to call in any thread, and again."""
        loop = self._loop
        if loop is None:
            self._stop.set()
        else:
            with suppress(RuntimeError):  # The loop has ended, and the host with it.
                loop.call_soon_threadsafe(self._stop.set)

    async def ready(self) -> None:
        """Waits until every hook is in rotation with at least one dispatcher.

        A readiness check of the host's Pod on it keeps a rollout from replacing good replicas by ones that the mesh does not ask.
        """
        await asyncio.shield(asyncio.wrap_future(self._board.ready))

    @property
    def is_ready(self) -> bool:
        """Whether every hook was in rotation with at least one dispatcher."""
        return self._board.ready.done()

    def status(self) -> tuple[SessionStatus, ...]:
        """Returns how the host stands with its dispatchers now: the sessions that they have accepted, by their ids."""
        return self._board.status()

    def _start(self) -> None:
        if self._started:
            raise HostError("the host was started twice")
        self._hooks.fix()
        self._started = True
        self._hello.hooks.extend(hook.offer for hook in self._hooks)
        self._board.expect((hook.name, hook.stage.value) for hook in self._hooks)

    async def _serve(self, work: Callable[[Caller], Awaitable[None]], handlers: asyncio.AbstractEventLoop, thread: int) -> None:
        """Does the work of the sessions, on their loop; at its end it waits for handlers that were told to stop.

        Args:
            work: Serves sessions.
            handlers: The loop of handlers.
            thread: Its thread, if it is to be watched.
        """
        self._loop = asyncio.get_running_loop()
        executor = self._executor or ThreadPoolExecutor(self._max_outstanding, "portcullis-handler")
        caller = Caller(
            hooks=self._hooks,
            slots=self._max_outstanding,
            loop=handlers,
            context=contextvars.copy_context(),
            executor=executor,
            telemetry=self._telemetry,
            logger=self._logger,
        )
        watching = asyncio.create_task(watch(handlers, thread, self._logger)) if thread else None
        try:
            await work(caller)
        finally:
            began, running = time.monotonic(), caller.running
            with suppress(TimeoutError):
                async with asyncio.timeout(HANDLER_GRACE / SECOND):
                    await caller.idle()
            if executor is not self._executor:
                executor.shutdown(wait=False, cancel_futures=True)
            if watching:
                watching.cancel()
            self._logger.info("host stopped: cut_off=%d waited=%.3fs", running, time.monotonic() - began)
        if caller.running:
            raise HostError("handlers did not return although their calls were over")

    def _link(self, caller: Caller, listener: Listener) -> Link:
        hello = host.Hello()
        hello.CopyFrom(self._hello)
        return Link(
            hello=hello,
            drain_timeout=self._drain_timeout,
            hooks=self._hooks,
            caller=caller,
            budget=self._budget,
            listener=listener,
            logger=self._logger,
        )

    @contextmanager
    def _stopping(self, signals: Iterable[signal.Signals]) -> Generator[None]:
        """Lets signals stop the host meanwhile."""
        loop, numbers = asyncio.get_running_loop(), tuple(signals)
        for number in numbers:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


async def resolve(hostname: str) -> Sequence[str]:
    """Asks the operating system for the IP addresses of a host."""
    found = await asyncio.get_running_loop().getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _check(name: str, texts: Iterable[str], dispatchers: Iterable[str]) -> None:
    if not name:
        raise HostError('the name is empty: name the program, for example "imagepolicy"')
    for text in (name, *texts):
        if valid(text) != text:
            raise HostError(f"{text!r} is no valid Unicode")
    for address in dispatchers:
        if not is_address(address):
            raise HostError(f"{address!r} is no address of a dispatcher: want host:port")


def _check_limits(max_outstanding: int, max_frame_bytes: int, drain_timeout: timedelta) -> None:
    for name, limit in (("max_outstanding", max_outstanding), ("max_frame_bytes", max_frame_bytes)):
        if not 0 < limit <= MAX_INT32:
            raise HostError(f"{name} is {limit}: want 1 to {MAX_INT32}")
    if drain_timeout <= timedelta():
        raise HostError(f"the drain timeout is {drain_timeout}: want more than 0")


def _new_instance() -> str:
    """Names a process: for a person by its host name, and uniquely by chance."""
    return f"{valid(socket.gethostname())}-{secrets.token_hex(4)}"
