"""The hooks that a host serves, as they were registered."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar, cast

from portcullis_host._errors import HandlerError, HostError
from portcullis_host._limits import COMPLAINT_INTERVAL, MAX_HOOKS
from portcullis_host._request import Request, Stage
from portcullis_host._response import Response, allow, difference
from portcullis_host._session import HookKey
from portcullis_host._verdict import valid
from portcullis_host.contract import admission, host

Object: TypeAlias = dict[str, Any]
"""An object, decoded."""

Handler: TypeAlias = Callable[[Request], Response] | Callable[[Request], Awaitable[Response]]
"""Judges one request for one hook.

It is called for several requests at once, and again for the same request: after a retry, or when the API server repeats a write. A plain
function runs in a thread; an ``async def`` runs in a task of its own, and must not block. It raises :class:`Denied` to deny, and
:class:`HandlerError` when it cannot judge.
"""

ObjectHandler: TypeAlias = Callable[[Object, Request], Response] | Callable[[Object, Request], Awaitable[Response]]
"""A :data:`Handler` that also gets the object: of a creation the new one, of a deletion the one that is deleted."""

UpdateHandler: TypeAlias = Callable[[Object, Object, Request], Response] | Callable[[Object, Object, Request], Awaitable[Response]]
"""A :data:`Handler` of updates that also gets the object after the update, and the one before it."""

Initialized: TypeAlias = Mapping[str, Any] | Response
"""The object as it should be created, :func:`change` of a model, or :func:`deny` for one that must not be created."""

Initializer: TypeAlias = Callable[[Object, Request], Initialized] | Callable[[Object, Request], Awaitable[Initialized]]
"""Completes an object before it is created: it may change the object that it is given, and returns it.

It runs as a :data:`Handler` does, and may run again for the same object on another replica, with the object as it was before. It raises
:class:`Denied` to deny, and :class:`HandlerError` when it cannot tell.
"""

Readiness: TypeAlias = Callable[[], None] | Callable[[], Awaitable[None]]
"""Returns when a hook can judge, and raises :class:`HandlerError` when it cannot yet. It has 5 s."""

_HandlerT = TypeVar("_HandlerT", bound=Handler)
_ObjectHandlerT = TypeVar("_ObjectHandlerT", bound=ObjectHandler)
_UpdateHandlerT = TypeVar("_UpdateHandlerT", bound=UpdateHandler)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the author's, how it is called, and what its result means."""

    call: Callable[..., Any]
    arguments: Callable[[Request], tuple[Any, ...]]
    response: Callable[[Request, Any], object] = lambda _, result: result

    @property
    def is_async(self) -> bool:
        """Whether a call returns what has to be awaited."""
        return is_async(self.call)


async def _allow() -> Response:
    return allow()


_NO_FUNCTION: Final = Function(_allow, lambda _: ())


@dataclass(slots=True, eq=False)
class Hook:
    """The registration for a name and stage."""

    name: str
    stage: Stage
    ready: Readiness | None
    speculate: bool
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    """By operation; that of "" has the operations without one of their own."""
    _last_complaint: int = -COMPLAINT_INTERVAL
    _unlogged: int = 0

    @property
    def offer(self) -> host.HookOffer:
        """What Hello says of it."""
        return host.HookOffer(name=self.name, stage=admission.Stage.ValueType(self.stage.value), speculate=self.speculate)

    def add(self, operation: str, function: Function) -> None:
        """Registers the function of an operation.

        Raises:
            HostError: There is one already.
        """
        if operation in self.functions:
            raise HostError(f"hook {self.name!r} was registered twice to {self.stage.name.lower()} {operation}".rstrip())
        self.functions[operation] = function

    def function(self, operation: str) -> Function:
        """Returns the function of an operation. One that has none is allowed."""
        return self.functions.get(operation) or self.functions.get("") or _NO_FUNCTION

    def complain(self, now: int) -> int | None:
        """Returns how many faults were not logged since the last one; None when this one should not be logged either."""
        if now - self._last_complaint < COMPLAINT_INTERVAL:
            self._unlogged += 1
            return None
        unlogged, self._unlogged, self._last_complaint = self._unlogged, 0, now
        return unlogged


class Registration:
    """A hook whose handlers are registered by decorators: by itself for all operations, or for each operation apart.

    An operation without a handler is allowed. Each decorator raises :class:`HostError` for a second handler.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook: Final = hook

    def __call__(self, handler: _HandlerT) -> _HandlerT:
        """Registers the handler of all operations that have none of their own."""
        self._hook.add("", Function(handler, lambda request: (request,)))
        return handler

    def create(self, handler: _ObjectHandlerT) -> _ObjectHandlerT:
        """Registers the handler of creations: it gets the object and the request."""
        self._hook.add("CREATE", Function(handler, lambda request: (_object(request), request)))
        return handler

    def update(self, handler: _UpdateHandlerT) -> _UpdateHandlerT:
        """Registers the handler of updates: it gets the object, the object before the update, and the request."""
        self._hook.add("UPDATE", Function(handler, lambda request: (_object(request), _old_object(request), request)))
        return handler

    def delete(self, handler: _ObjectHandlerT) -> _ObjectHandlerT:
        """Registers the handler of deletions: it gets the object that is deleted, and the request."""
        self._hook.add("DELETE", Function(handler, lambda request: (_old_object(request), request)))
        return handler


class Hooks:
    """The registry of a host. Its hooks are fixed once the host has started."""

    def __init__(self) -> None:
        self._hooks: Final[dict[HookKey, Hook]] = {}
        self._fixed = False

    def __iter__(self) -> Iterator[Hook]:
        return iter(self._hooks.values())

    def __getitem__(self, key: HookKey) -> Hook:
        return self._hooks[key]

    def add(self, name: str, stage: Stage, *, ready: Readiness | None, speculate: bool = False) -> Hook:
        """Registers a hook.

        Raises:
            HostError: The registration is at fault.
        """
        key = (name, stage.value)
        if self._fixed:
            raise HostError(f"hook {name!r} was registered after the host had started")
        if not name or valid(name) != name:
            raise HostError(f"hook name {name!r} is empty, or no valid Unicode")
        if key in self._hooks:
            raise HostError(f"hook {name!r} was registered twice to {stage.name.lower()}")
        if len(self._hooks) >= MAX_HOOKS:
            raise HostError(f"hook {name!r} is one more than the {MAX_HOOKS} that a host may offer")
        if ready is not None and any(hook.ready not in (None, ready) for hook in self if hook.name == name):
            raise HostError(f"hook {name!r} has two readiness callbacks")
        self._hooks[key] = Hook(name, stage, ready, speculate)
        return self._hooks[key]

    def readiness(self, name: str) -> Readiness | None:
        """Returns the readiness callback of a name; None: always ready."""
        return next((hook.ready for hook in self if hook.name == name and hook.ready), None)

    def fix(self) -> None:
        """Ends the registration.

        Raises:
            HostError: There is no hook, or one without a handler.
        """
        if not self._hooks:
            raise HostError("the host has no hooks: register some with validate, mutate or initialize")
        for hook in self:
            if not hook.functions:
                raise HostError(f"hook {hook.name!r} has no handler: use host.{hook.stage.name.lower()} as a decorator")
        self._fixed = True


def is_async(function: object) -> bool:
    """Reports whether a call of the function returns a coroutine, also if it is an object with an async __call__."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def initializing(initializer: Initializer) -> Function:
    """Returns the function of an initializer: its response is the difference that the initializer makes."""
    return Function(initializer, lambda request: (_object(request), request), _initialized)


def _object(request: Request) -> Object:
    if request.object is None:
        raise HandlerError("the request has no object")
    return request.object


def _old_object(request: Request) -> Object:
    if request.old_object is None:
        raise HandlerError("the request has no old object")
    return request.old_object


def _initialized(request: Request, initialized: object) -> Response:
    if isinstance(initialized, Response):
        return initialized
    if initialized is None:
        raise HandlerError("the initializer returned no object")
    if not isinstance(initialized, Mapping):
        raise HandlerError(f"the initializer returned a {type(initialized).__name__}: want the object, or deny(...)")
    return difference(request, cast("Mapping[str, Any]", initialized))
