"""The hooks that a host serves, as they were registered."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from portcullis_host._errors import HandlerError, HostError
from portcullis_host._limits import COMPLAINT_INTERVAL, MAX_HOOKS
from portcullis_host._request import Request, Stage
from portcullis_host._response import Response, difference
from portcullis_host._session import HookKey
from portcullis_host._verdict import valid
from portcullis_host.contract import admission, host

Handler: TypeAlias = Callable[[Request], Response] | Callable[[Request], Awaitable[Response]]
"""Judges one request for one hook.

It is called for several requests at once, and again for the same request: after a retry, or when the API server repeats a write. A plain
function runs in a thread; an ``async def`` runs in a task of its own, and must not block. It raises :class:`HandlerError` when it cannot
judge.
"""

Initialized: TypeAlias = Mapping[str, Any] | Response
"""The object as it should be created, or :func:`deny` for one that must not be created."""

Initializer: TypeAlias = Callable[[dict[str, Any], Request], Initialized] | Callable[[dict[str, Any], Request], Awaitable[Initialized]]
"""Completes an object before it is created: it may change the object that it is given, and returns it.

It runs as a :data:`Handler` does, and may run again for the same object on another replica, with the object as it was before. It raises
:class:`HandlerError` when it cannot tell.
"""

Readiness: TypeAlias = Callable[[], None] | Callable[[], Awaitable[None]]
"""Returns when a hook can judge, and raises :class:`HandlerError` when it cannot yet. It has 5 s."""


@dataclass(slots=True, eq=False)
class Hook:
    """The registration for a name and stage."""

    name: str
    stage: Stage
    handler: Handler
    speculate: bool
    runs_in_thread: bool
    _last_complaint: int = -COMPLAINT_INTERVAL
    _unlogged: int = 0

    @property
    def offer(self) -> host.HookOffer:
        """What Hello says of it."""
        return host.HookOffer(name=self.name, stage=admission.Stage.ValueType(self.stage.value), speculate=self.speculate)

    def complain(self, now: int) -> int | None:
        """Returns how many faults were not logged since the last one; None when this one should not be logged either."""
        if now - self._last_complaint < COMPLAINT_INTERVAL:
            self._unlogged += 1
            return None
        unlogged, self._unlogged, self._last_complaint = self._unlogged, 0, now
        return unlogged


class Hooks:
    """The registry of a host. Its hooks are fixed once the host has started."""

    def __init__(self) -> None:
        self._hooks: Final[dict[HookKey, Hook]] = {}
        self._ready: Final[dict[str, Readiness]] = {}
        self.fixed = False

    def __iter__(self) -> Iterator[Hook]:
        return iter(self._hooks.values())

    def __len__(self) -> int:
        return len(self._hooks)

    def __getitem__(self, key: HookKey) -> Hook:
        return self._hooks[key]

    def add(self, name: str, stage: Stage, handler: Handler, *, speculate: bool) -> None:
        """Registers a handler.

        Raises:
            HostError: The registration is at fault.
        """
        key = (name, stage.value)
        if self.fixed:
            raise HostError(f"hook {name!r} was registered after the host had started")
        if not name or valid(name) != name:
            raise HostError(f"hook name {name!r} is empty, or no valid Unicode")
        if key in self._hooks:
            raise HostError(f"hook {name!r} was registered twice to {stage.name.lower()}")
        if len(self._hooks) >= MAX_HOOKS:
            raise HostError(f"hook {name!r} is one more than the {MAX_HOOKS} that a host may offer")
        self._hooks[key] = Hook(name, stage, handler, speculate, runs_in_thread=not is_async(handler))

    def add_readiness(self, name: str, ready: Readiness) -> None:
        """Registers the readiness callback of the hooks of a name.

        Raises:
            HostError: There is one already.
        """
        if name in self._ready:
            raise HostError(f"hook {name!r} has two readiness callbacks")
        self._ready[name] = ready

    def readiness(self, name: str) -> Readiness | None:
        """Returns the readiness callback of a name; None: always ready."""
        return self._ready.get(name)

    def fix(self) -> None:
        """Ends the registration.

        Raises:
            HostError: There is no hook, or a readiness callback is for none.
        """
        if not self._hooks:
            raise HostError("the host has no hooks: register some with validate, mutate or initialize")
        names = {hook.name for hook in self}
        for name in self._ready:
            if name not in names:
                raise HostError(f"a readiness callback is for {name!r}, which is no hook of this host")
        self.fixed = True


def is_async(function: object) -> bool:
    """Reports whether a call of the function returns a coroutine, also if it is an object with an async __call__."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def initializing(initializer: Initializer) -> Handler:
    """Is the handler of an initializer: its verdict is the difference that the initializer makes."""
    if is_async(initializer):
        later = cast("Callable[[dict[str, Any], Request], Awaitable[Initialized]]", initializer)

        async def handle_later(request: Request) -> Response:
            return _difference(request, await later(_object(request), request))

        return handle_later
    now = cast("Callable[[dict[str, Any], Request], Initialized]", initializer)

    def handle(request: Request) -> Response:
        return _difference(request, now(_object(request), request))

    return handle


def _object(request: Request) -> dict[str, Any]:
    if request.object is None:
        raise HandlerError("the request has no object to be initialized: it creates none")
    return request.object


def _difference(request: Request, initialized: object) -> Response:
    if isinstance(initialized, Response):
        return initialized
    if initialized is None:
        raise HandlerError("the initializer returned no object")
    if not isinstance(initialized, Mapping):
        raise HandlerError(f"the initializer returned a {type(initialized).__name__}: want the object, or deny(...)")
    return difference(request, cast("Mapping[str, Any]", initialized))
