"""What a handler is asked."""

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar, cast

from portcullis_host._changes import read
from portcullis_host._errors import HandlerError
from portcullis_host._limits import SECOND
from portcullis_host._models import decoder, encoded
from portcullis_host.contract import admission, host

_ModelT = TypeVar("_ModelT")


class Stage(Enum):
    """The part of a write at which a hook is asked."""

    INITIALIZE = int(admission.STAGE_INITIALIZE)
    """Initializers of objects to be created, in order, before the mutating hooks."""
    MUTATE = int(admission.STAGE_MUTATE)
    """Mutating hooks, in order."""
    VALIDATE = int(admission.STAGE_VALIDATE)
    """Validating hooks, in parallel."""


class Mode(Enum):
    """Why a hook is asked. A handler without side effects need not care."""

    UNSPECIFIED = int(host.MODE_UNSPECIFIED)
    """Not said, or not known to this SDK: as DECIDE."""
    DECIDE = int(host.MODE_DECIDE)
    """The verdict decides: the usual case."""
    SPECULATIVE = int(host.MODE_SPECULATIVE)
    """The verdict may be discarded, since an earlier hook may change the object."""
    HEDGE = int(host.MODE_HEDGE)
    """Another replica was asked as well; the first verdict decides."""
    SHADOW = int(host.MODE_SHADOW)
    """The verdict is recorded and decides nothing: a handler that logs what it refuses may want to leave that out."""

    @classmethod
    def _missing_(cls, value: object) -> "Mode":  # noqa: ARG003 (the signature is enum's)
        return cls.UNSPECIFIED


class Kind(NamedTuple):
    """A kind of objects."""

    group: str
    version: str
    kind: str


class Resource(NamedTuple):
    """A resource of an API."""

    group: str
    version: str
    resource: str


class Lifetime:
    """How long a call lasts. The deadline counts on time.monotonic_ns. Safe for concurrent use."""

    _lock: Final = threading.Lock()
    """Guards the making of events."""

    def __init__(self, deadline: int) -> None:
        self.deadline: Final = deadline
        self._over = False
        self._event: threading.Event | None = None
        """Made when a handler waits: most do not."""

    def end(self) -> None:
        """Ends the call before its deadline."""
        with self._lock:
            self._over = True
            if self._event is not None:
                self._event.set()

    @property
    def remaining(self) -> int:
        """Nanoseconds until the deadline; 0 when the call is over."""
        return 0 if self._over else max(0, self.deadline - time.monotonic_ns())

    def wait(self, timeout: float) -> bool:
        """Waits for the end of the call, at most timeout seconds, and reports whether it has come."""
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        event.wait(min(timeout, self.remaining / SECOND))
        return self.remaining == 0


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to judge, for one hook.

    It belongs to its handler. What it decodes it decodes when it is first asked. Use it in one thread at a time, apart from
    :attr:`remaining`, :attr:`cancelled` and :meth:`wait_cancelled`.

    A test of a handler makes one with :func:`portcullis_host.testing.request`.
    """

    hook: str
    """Name of the hook that is asked."""
    stage: Stage
    """Stage of the hook."""
    admission: admission.AdmissionRequest
    """The request itself, with all that the properties do not say. It is shared with other handlers and must not be changed."""
    configuration: str = ""
    """Name of the configuration that holds the hook: two may hold hooks of one name."""
    round: int = 0
    """0, or 1 when a mutating hook is asked again because others changed the object after it."""
    mode: Mode = Mode.DECIDE
    """Why the hook is asked."""
    traceparent: str = ""
    """W3C traceparent of the call's span in the mesh; empty if it is in no trace. With OpenTelemetry the handler's span is below it."""
    _lifetime: Lifetime = field(repr=False)
    _before: dict[type, Any] = field(default_factory=dict[type, Any], init=False, repr=False)
    """What models wrote before the handler changed them."""

    @property
    def cluster(self) -> str:
        """Name of the cluster that the request comes from, as the mesh authenticated it."""
        return self.admission.cluster

    @property
    def uid(self) -> str:
        """Id of the review, set by the API server."""
        return self.admission.uid

    @property
    def operation(self) -> str:
        """CREATE, UPDATE, DELETE or CONNECT."""
        return self.admission.operation

    @property
    def namespace(self) -> str:
        """Namespace of the object; empty for cluster-scoped objects."""
        return self.admission.namespace

    @property
    def name(self) -> str:
        """Name of the object; it may be empty on CREATE with generateName."""
        return self.admission.name

    @property
    def kind(self) -> Kind:
        """Kind of the object."""
        kind = self.admission.kind
        return Kind(kind.group, kind.version, kind.kind)

    @property
    def resource(self) -> Resource:
        """Resource that is written."""
        resource = self.admission.resource
        return Resource(resource.group, resource.version, resource.resource)

    @property
    def subresource(self) -> str:
        """Subresource that is written, such as "status"; empty for the object itself."""
        return self.admission.sub_resource

    @property
    def username(self) -> str:
        """The user who made the request, as the API server authenticated it."""
        return self.admission.user_info.username

    @property
    def user_uid(self) -> str:
        """Id of the user, which tells apart two of the same name in time; it may be empty."""
        return self.admission.user_info.uid

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of the user."""
        return tuple(self.admission.user_info.groups)

    @property
    def extra(self) -> dict[str, tuple[str, ...]]:
        """What the authenticator of the API server says of the user besides."""
        return {name: tuple(value.items) for name, value in self.admission.user_info.extra.items()}

    @cached_property
    def options(self) -> dict[str, Any] | None:
        """The options of the operation, decoded, for example CreateOptions; None without any.

        Raises:
            HandlerError: They are no JSON object.
        """
        return _decoded(self.admission.options.raw if self.admission.HasField("options") else None)

    @property
    def dry_run(self) -> bool:
        """True if nothing will be stored: a handler must have no side effects."""
        return self.admission.dry_run

    @property
    def raw_object(self) -> bytes | None:
        """The object after the operation, byte for byte as it came; None on DELETE."""
        return self.admission.object.raw if self.admission.HasField("object") else None

    @property
    def raw_old_object(self) -> bytes | None:
        """The object before the operation, byte for byte as it came; None on CREATE and CONNECT."""
        return self.admission.old_object.raw if self.admission.HasField("old_object") else None

    @cached_property
    def object(self) -> dict[str, Any] | None:
        """The object after the operation, decoded; None on DELETE.

        It belongs to the handler: :func:`portcullis_host.change` sends what it has changed in it.

        Raises:
            HandlerError: The object is no JSON object. It says so to the operator.
        """
        return _decoded(self.raw_object)

    @cached_property
    def old_object(self) -> dict[str, Any] | None:
        """The object before the operation, decoded; None on CREATE and CONNECT.

        Raises:
            HandlerError: The object is no JSON object. It says so to the operator.
        """
        return _decoded(self.raw_old_object)

    def decode(self, model: type[_ModelT]) -> _ModelT:
        """Returns the object as a model: a class of pydantic 2, or one of the Kubernetes client such as ``V1Pod``.

        :func:`portcullis_host.change` sends what the handler has changed in it.

        Raises:
            HandlerError: There is no object, or it is none of the model. It says so to the operator.
            TypeError: The class is no model.
        """
        decoded = _modelled(self.raw_object, model)
        self._before.setdefault(model, encoded(decoded))
        return decoded

    def decode_old(self, model: type[_ModelT]) -> _ModelT:
        """Returns the object before the operation as a model, see :meth:`decode`."""
        return _modelled(self.raw_old_object, model)

    def before(self, model: type) -> Any:
        """Returns the object as a model wrote it when it was decoded.

        Raises:
            ValueError: It was not.
        """
        if model not in self._before:
            raise ValueError(f"the {model.__name__} is not of request.decode({model.__name__})")
        return self._before[model]

    @property
    def remaining(self) -> timedelta:
        """Time until the verdict has to be there; zero when the call is over. Pass it on to what the handler waits for."""
        return timedelta(microseconds=self._lifetime.remaining // 1000)

    @property
    def cancelled(self) -> bool:
        """True once the dispatcher has cancelled the call, or its time is over: a plain function should stop then.

        The task of an ``async def`` is cancelled instead, which raises asyncio.CancelledError where it waits.
        """
        return self._lifetime.remaining == 0

    def wait_cancelled(self, timeout: timedelta) -> bool:
        """Waits until :attr:`cancelled` is true or a time has passed, and returns :attr:`cancelled`. For plain functions."""
        return self._lifetime.wait(timeout.total_seconds())


def _modelled(raw: bytes | None, model: type[_ModelT]) -> _ModelT:
    decode = decoder(model)
    if raw is None:
        raise HandlerError(f"the request has no object to be read as a {model.__name__}")
    try:
        return cast("_ModelT", decode(raw))
    except Exception as error:
        raise HandlerError(f"the object is no {model.__name__}") from error


def _decoded(raw: bytes | None) -> dict[str, Any] | None:
    if raw is None:
        return None
    try:
        document = read(raw)
    except ValueError as error:
        raise HandlerError("the object is not valid JSON") from error
    if not isinstance(document, dict):
        raise HandlerError("the object is no JSON object")
    return cast("dict[str, Any]", document)
