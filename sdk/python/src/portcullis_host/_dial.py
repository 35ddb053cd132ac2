"""Streams over gRPC."""

import asyncio
from contextlib import suppress
from typing import Any, Final, NoReturn, cast

import grpc
import grpc.aio

from portcullis_host._dial_plan import Endpoint, is_ip, join, split
from portcullis_host._errors import SessionError
from portcullis_host._limits import CONNECT_TIMEOUT, MILLISECOND, REFUSAL_TIMEOUT, SECOND, WIRE_BYTES
from portcullis_host._tls import TLS, context, credentials, read

METHOD: Final = "/portcullis.host.v1.HostService/Connect"

WINDOW: Final = 4 << 20
"""Flow-control window of a session: a review of usual size never waits for it to be opened."""

_Call = grpc.aio.StreamStreamCall[bytes, bytes]


class GrpcStream:
    """The host's end of a gRPC stream.

    Args:
        call: The stream.
    """

    def __init__(self, call: _Call) -> None:
        self._call: Final = call

    async def read(self) -> bytes | None:
        """Implements Stream."""
        try:
            frame = await self._call.read()
        except grpc.aio.AioRpcError as error:
            _raise(error)
        return frame if isinstance(frame, bytes) else None

    async def write(self, frame: bytes) -> None:
        """Implements Stream."""
        try:
            await self._call.write(frame)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise SessionError("the stream has ended") from error

    async def close_sending(self) -> None:
        """Implements Stream."""
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise SessionError("the stream has ended") from error

    def abort(self) -> None:
        """Implements Stream."""
        self._call.cancel()


def channel(at: Endpoint, tls: TLS, *, max_frame_bytes: int) -> grpc.aio.Channel:
    """Returns a connection to one address, which connects later.

    Raises:
        OSError: A file of TLS is at fault.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.ssl_target_name_override", at.server_name),
        ("grpc.default_authority", at.server_name),
        # What Hello announces. Verdicts are made to fit what the dispatcher announces in turn.
        ("grpc.max_receive_message_length", max(max_frame_bytes, WIRE_BYTES)),
        ("grpc.max_send_message_length", -1),
        ("grpc.http2.lookahead_bytes", WINDOW),
        ("grpc.http2.bdp_probe", 0),
        # The dispatcher retries: it alone knows which calls may be repeated.
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.enable_http_proxy", 0),
        # A connection makes one attempt. The loop's own back-off comes between two, and no other channel's state counts.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT // MILLISECOND),
        # No keepalive: the dispatcher's pings and the silence that Welcome names are the one clock of a session.
    ]
    pem = read(tls)
    if pem is None:
        return grpc.aio.insecure_channel(_target(at.address), options)
    return grpc.aio.secure_channel(_target(at.address), credentials(pem), options)


async def connect(to: grpc.aio.Channel, at: Endpoint, tls: TLS) -> GrpcStream:
    """Connects, and opens the stream of a session.

    Raises:
        SessionError: There is no connection within CONNECT_TIMEOUT.
        OSError: A file of TLS is at fault, or the dispatcher is not who it should be.
    """
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT / SECOND):
            await meet(at, tls)
            state = to.get_state(try_to_connect=True)
            while state not in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
                await to.wait_for_state_change(state)
                state = to.get_state(try_to_connect=True)
            call = cast("_Call", to.stream_stream(METHOD)())
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await call.read()  # It says why.
    except grpc.aio.AioRpcError as error:
        _raise(error)
    except TimeoutError:  # Before OSError, which it is.
        raise SessionError("no connection in time") from None
    return GrpcStream(call)


async def meet(at: Endpoint, tls: TLS) -> None:
    """Checks by a connection of its own that the dispatcher speaks TLS 1.3.

    gRPC for Python cannot be told to speak nothing older, which shows the certificate of the host to everybody on the way
    (github.com/grpc/grpc/pull/43045). With a dispatcher that can, it speaks 1.3: TLS prevents a downgrade.
    """
    pem = read(tls)
    if pem is None:
        return
    hostname, port = split(at.address)
    reader, writer = await asyncio.open_connection(hostname, int(port), ssl=context(pem), server_hostname=at.server_name)
    try:
        # By TLS 1.3 a server refuses a client after the handshake of the client. One of gRPC speaks first, if it does not.
        with suppress(TimeoutError):
            async with asyncio.timeout(REFUSAL_TIMEOUT / SECOND):
                await reader.read(1)
    finally:
        writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _target(address: str) -> str:
    """Returns an address as gRPC reads it. Names were resolved before, but for those of peers."""
    hostname, port = split(address)
    if not is_ip(hostname):
        return f"dns:///{address}"
    return f"ipv6:{join(hostname, port)}" if ":" in hostname else f"ipv4:{address}"


def _raise(error: grpc.aio.AioRpcError) -> NoReturn:
    raise SessionError(f"{error.code().name}: {error.details()}") from None
