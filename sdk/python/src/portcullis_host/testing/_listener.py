"""A fake dispatcher that hosts dial."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import grpc
import grpc.aio

from portcullis_host._dial import METHOD
from portcullis_host.contract import host
from portcullis_host.testing._session import PATIENCE, Session

_Context = grpc.aio.ServicerContext[bytes, bytes]


class Listener:
    """A fake dispatcher on loopback: :func:`listen` makes one."""

    address: str
    """Where it listens, ip:port."""

    def __init__(self, welcome: host.Welcome | None) -> None:
        self._welcome: Final = welcome
        self._sessions: Final[asyncio.Queue[Session]] = asyncio.Queue()
        self._server: Final = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)])

    async def accept(self) -> Session:
        """Waits for the next host.

        Raises:
            TimeoutError: None has come.
        """
        async with asyncio.timeout(PATIENCE.total_seconds()):
            return await self._sessions.get()

    async def stop(self) -> None:
        """Breaks all sessions, as the death of a dispatcher does. A listener does not come back."""
        await self._server.stop(None)

    async def start(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        """Listens; :func:`listen` does it."""
        handler = cast("grpc.RpcMethodHandler[bytes, bytes]", grpc.stream_stream_rpc_method_handler(self._connect))
        service, method = METHOD.removeprefix("/").split("/")
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        server = self._server
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        self.address = f"{address.rpartition(':')[0]}:{port}"
        await self._server.start()

    async def _connect(self, _: Any, context: _Context) -> None:
        """Serves one session, and ends the stream when the host has closed its side."""
        session = await Session.accept(_Peer(context), self._welcome)
        self._sessions.put_nowait(session)
        await session.serve()


class _Peer:
    def __init__(self, context: _Context) -> None:
        self._context: Final = context
        self._sending: Final = asyncio.Lock()

    async def send(self, frame: bytes) -> None:
        async with self._sending:
            try:
                await self._context.write(frame)
            except grpc.aio.BaseError as error:
                raise RuntimeError("the host has left") from error

    async def receive(self) -> bytes | None:
        frame: Any = await self._context.read()
        return frame if isinstance(frame, bytes) else None


@asynccontextmanager
async def listen(
    *, welcome: host.Welcome | None = None, address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None
) -> AsyncGenerator[Listener]:
    """Serves hosts in any language over gRPC.

    Args:
        welcome: The answer to hosts, filled where it is absent.
        address: Where to listen; port 0 means a free one.
        credentials: Those of the server; None is no TLS.
    """
    listener = Listener(welcome)
    await listener.start(address, credentials)
    try:
        yield listener
    finally:
        await listener.stop()
