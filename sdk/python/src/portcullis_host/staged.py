"""Staged objects, for controllers that initialize them instead of a host: a thin client of InitializerService.

A controller lists the objects that wait for it, watches them, changes one, and removes its own name from the list of those pending::

    from portcullis_host import TLSFiles
    from portcullis_host.contract import initializer
    from portcullis_host.staged import StagedClient, done, waits

    mine = initializer.ListRequest(first_pending="sidecar.example.com")
    async with StagedClient("portcullis-hosts.portcullis-system.svc:8444", tls=TLSFiles("tls.crt", "tls.key", "ca.crt")) as staged:
        async for event in staged.watch(mine):
            if waits(event):
                pod = json.loads(event.object.object.raw)
                pod["spec"]["containers"].append({"name": "proxy", "image": "registry.example.com/proxy:1"})
                await staged.update(done(event.object, pod))

A call that fails raises :class:`grpc.aio.AioRpcError`. Its code says what to do: ABORTED of an update means that the object has changed, or
that another replica was faster; NOT_FOUND that its hold has ended. A watch that ends with OUT_OF_RANGE or ABORTED is begun anew without a
version, and one that ends with UNAVAILABLE at another dispatcher.
"""

import json
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import grpc.aio

from portcullis_host._dial import channel, meet
from portcullis_host._dial_plan import Endpoint, split
from portcullis_host._request import Stage
from portcullis_host._response import Response, to_message
from portcullis_host._tls import TLS
from portcullis_host.contract import admission, initializer

__all__ = ["StagedClient", "done", "refused", "waits"]

SERVICE: Final = "/portcullis.initializer.v1.InitializerService/"
MAX_BYTES: Final = 256 << 20
"""Of a list, which has the objects of all clusters."""


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802 (the name is protobuf's)

    @classmethod
    def FromString(cls, s: bytes, /) -> Self: ...  # noqa: N802 (likewise)


_T = TypeVar("_T", bound=_Message)


class StagedClient:
    """A connection to one dispatcher, for use on one event loop, as an asynchronous context manager.

    Args:
        address: host:port where the dispatcher serves hosts.
        tls: TLSFiles with the certificate whose identity the HookRoute grants the initializer to; Plaintext in tests. They are read when
            the client is entered.
        server_name: The name in the certificate of the dispatcher; empty means that of address.
    """

    def __init__(self, address: str, *, tls: TLS, server_name: str = "") -> None:
        self._at: Final = Endpoint(address, server_name or split(address)[0])
        self._tls: Final = tls
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        """Connects.

        Raises:
            OSError: A file of TLS is at fault, or the dispatcher is not there, or not who it should be.
        """
        await meet(self._at, self._tls)
        self._channel = channel(self._at, self._tls, max_frame_bytes=MAX_BYTES)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Disconnects, which ends all calls."""
        if self._channel is not None:
            await self._channel.close()

    async def get(self, key: initializer.StagedKey) -> initializer.StagedObject:
        """Returns one object."""
        return (await self._call("Get", initializer.GetRequest(key=key), initializer.GetResponse)).object

    async def list(self, selection: initializer.ListRequest | None = None) -> initializer.ListResponse:
        """Returns the objects of a selection, and the version to watch from; None selects all that the caller may see."""
        return await self._call("List", selection or initializer.ListRequest(), initializer.ListResponse)

    async def watch(
        self, selection: initializer.ListRequest | None = None, *, resource_version: str = "", bookmarks: bool = False
    ) -> AsyncIterator[initializer.WatchResponse]:
        """Yields what changes after a version; without one each object first, as added. It ends by an error."""
        request = initializer.WatchRequest(selection=selection, resource_version=resource_version, bookmarks=bookmarks)
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._connected().unary_stream(SERVICE + "Watch")
        events = method(request.SerializeToString())
        try:
            async for event in events:
                yield initializer.WatchResponse.FromString(event)
        finally:
            events.cancel()

    async def update(self, request: initializer.UpdateRequest) -> initializer.StagedObject:
        """Changes an object: :func:`done` and :func:`refused` make the request."""
        return (await self._call("Update", request, initializer.UpdateResponse)).object

    async def delete(self, staged: initializer.StagedObject) -> None:
        """Ends the hold of exactly this object: its creator is refused."""
        await self._call("Delete", initializer.DeleteRequest(key=staged.key, uid=staged.uid), initializer.DeleteResponse)

    async def _call(self, method: str, request: _Message, response: type[_T]) -> _T:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._connected().unary_unary(SERVICE + method)
        return response.FromString(await ask(request.SerializeToString()))

    def _connected(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise RuntimeError("the client is not connected: use `async with`")
        return self._channel


def waits(event: initializer.WatchResponse) -> bool:
    """Reports whether the object of an event waits for its first pending initializer: one that is refused already is sent once more."""
    return event.type in (initializer.EVENT_TYPE_ADDED, initializer.EVENT_TYPE_MODIFIED) and not event.object.HasField("result")


def done(staged: initializer.StagedObject, changed: Mapping[str, Any]) -> initializer.UpdateRequest:
    """Is the update by which the first pending initializer leaves an object as it should be created.

    Args:
        staged: The object as it was read.
        changed: What it stages, as the initializer has made it.
    """
    raw = json.dumps(changed, allow_nan=False, separators=(",", ":")).encode()
    return initializer.UpdateRequest(
        key=staged.key, resource_version=staged.resource_version, object=admission.Object(raw=raw), pending=staged.pending[1:]
    )


def refused(staged: initializer.StagedObject, denial: Response) -> initializer.UpdateRequest:
    """Is the update by which the first pending initializer refuses an object, with :func:`portcullis_host.deny`.

    Raises:
        ValueError: The response is no denial.
    """
    if denial.allowed:
        raise ValueError("the response allows: want one of deny(...)")
    status = to_message(denial, Stage.INITIALIZE).status
    return initializer.UpdateRequest(key=staged.key, resource_version=staged.resource_version, result=status)
