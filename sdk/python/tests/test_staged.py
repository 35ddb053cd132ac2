"""The client of staged objects, and a service over TLS that holds one of them."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from test_sockets import Files

from portcullis_host import Cause, allow, deny
from portcullis_host.contract import admission, initializer
from portcullis_host.staged import StagedClient, done, refused, waits

NAME = "sidecar.example.com"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


class Service:
    """Holds one object, as InitializerService does, for callers of any name."""

    def __init__(self) -> None:
        self.object = initializer.StagedObject(
            key=initializer.StagedKey(
                cluster="c", resource=admission.GroupVersionResource(version="v1", resource="pods"), namespace="shop", name="web"
            ),
            uid="u",
            resource_version="1",
            pending=[NAME, "podimage.example.com"],
            object=admission.Object(raw=b'{"kind":"Pod","spec":{"containers":[]}}'),
        )
        self.asked: list[Any] = []
        self.events: asyncio.Queue[initializer.WatchResponse] = asyncio.Queue()

    async def get(self, request: initializer.GetRequest, context: Any) -> initializer.GetResponse:
        if request.key != self.object.key:
            await context.abort(grpc.StatusCode.NOT_FOUND, "nothing is held")
        return initializer.GetResponse(object=self.object)

    async def list(self, request: initializer.ListRequest, _: Any) -> initializer.ListResponse:
        self.asked.append(request)
        return initializer.ListResponse(objects=[self.object], resource_version="1")

    async def watch(self, request: initializer.WatchRequest, context: Any) -> AsyncIterator[initializer.WatchResponse]:
        self.asked.append(request)
        yield initializer.WatchResponse(type=initializer.EVENT_TYPE_ADDED, object=self.object)
        while (event := await self.events.get()).type != initializer.EVENT_TYPE_UNSPECIFIED:
            yield event
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "the version is too old")

    async def update(self, request: initializer.UpdateRequest, context: Any) -> initializer.UpdateResponse:
        if request.resource_version != self.object.resource_version:
            await context.abort(grpc.StatusCode.ABORTED, "the object has changed")
        self.object.resource_version += "1"
        if request.HasField("result"):
            self.object.result.CopyFrom(request.result)
        else:
            self.object.object.CopyFrom(request.object)
            self.object.pending[:] = request.pending
        self.events.put_nowait(initializer.WatchResponse(type=initializer.EVENT_TYPE_MODIFIED, object=self.object))
        return initializer.UpdateResponse(object=self.object)

    async def delete(self, request: initializer.DeleteRequest, _: Any) -> initializer.DeleteResponse:
        self.asked.append(request)
        return initializer.DeleteResponse(object=self.object)


def encoded(message: Message) -> bytes:
    return message.SerializeToString()


@asynccontextmanager
async def serving(service: Service, files: Files) -> AsyncGenerator[StagedClient]:
    server, m = grpc.aio.server(), initializer
    handlers: dict[str, Any] = {
        "Watch": grpc.unary_stream_rpc_method_handler(
            service.watch,
            m.WatchRequest.FromString,
            m.WatchResponse.SerializeToString,
        )
    }
    for name, method, request in (
        ("Get", service.get, m.GetRequest),
        ("List", service.list, m.ListRequest),
        ("Update", service.update, m.UpdateRequest),
        ("Delete", service.delete, m.DeleteRequest),
    ):
        handlers[name] = grpc.unary_unary_rpc_method_handler(method, request.FromString, encoded)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("portcullis.initializer.v1.InitializerService", handlers)])
    port = server.add_secure_port("127.0.0.1:0", files.server())
    await server.start()
    try:
        async with StagedClient(f"127.0.0.1:{port}", tls=files.tls, server_name="mesh.example") as client:
            yield client
    finally:
        await server.stop(None)


async def test_a_controller_initializes_what_waits_for_it(files: Files) -> None:
    service = Service()
    async with serving(service, files) as client:
        mine = initializer.ListRequest(first_pending=NAME)
        [listed] = (await client.list(mine)).objects
        events = client.watch(mine, bookmarks=True)
        event = await anext(events)
        assert (event.type, event.object) == (initializer.EVENT_TYPE_ADDED, listed)
        assert waits(event)
        pod = json.loads(event.object.object.raw)
        pod["spec"]["containers"].append({"name": "proxy"})
        updated = await client.update(done(event.object, pod))
        assert list(updated.pending) == ["podimage.example.com"]
        assert json.loads(updated.object.raw) == {"kind": "Pod", "spec": {"containers": [{"name": "proxy"}]}}
        assert (await anext(events)).object == updated == await client.get(updated.key)
        assert service.asked == [mine, initializer.WatchRequest(selection=mine, bookmarks=True)]


async def test_a_controller_refuses(files: Files) -> None:
    service = Service()
    async with serving(service, files) as client:
        events = client.watch()
        staged = (await anext(events)).object
        updated = await client.update(refused(staged, deny("no", code=422, causes=[Cause("spec", "bad")])))
        assert (updated.result.status, updated.result.message, updated.result.code) == ("Failure", "no", 422)
        assert updated.result.details.causes[0].field == "spec"
        assert not waits(await anext(events))
        assert not waits(initializer.WatchResponse(type=initializer.EVENT_TYPE_DELETED, object=staged))
        with pytest.raises(ValueError, match="allows"):
            refused(staged, allow())
        await client.delete(staged)
        assert service.asked[1:] == [initializer.DeleteRequest(key=staged.key, uid="u")]


async def test_errors_say_what_to_do(files: Files) -> None:
    service = Service()
    async with serving(service, files) as client:
        staged = await client.get(service.object.key)
        await client.update(done(staged, {}))
        with pytest.raises(grpc.aio.AioRpcError) as raced:
            await client.update(done(staged, {}))
        with pytest.raises(grpc.aio.AioRpcError) as gone:
            await client.get(initializer.StagedKey(name="other"))
        service.events.put_nowait(initializer.WatchResponse())
        with pytest.raises(grpc.aio.AioRpcError) as old:
            [_ async for _ in client.watch()]
        codes = [error.value.code() for error in (raced, gone, old)]
        assert codes == [grpc.StatusCode.ABORTED, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE]


async def test_a_stranger_is_not_talked_to(files: Files) -> None:
    service = Service()
    async with serving(service, files) as client:
        with pytest.raises(OSError, match="match"):
            await StagedClient(client._at.address, tls=files.tls, server_name="other.example").__aenter__()
    with pytest.raises(RuntimeError, match="async with"):
        await StagedClient("127.0.0.1:1", tls=files.tls).list()
