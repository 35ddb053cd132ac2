"""The shell of a session, over a stream that a test plays."""

import asyncio

from simple import allowing

from portcullis_host import Host, Request, Response, SessionError, allow
from portcullis_host._limits import MAX_OUTBOX
from portcullis_host.contract import admission, host


class Flood:
    """A dispatcher that sends one Ping after the other, and reads when it is told to."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.reading = asyncio.Event()
        self.went_on = asyncio.Event()

    async def read(self) -> bytes | None:
        self.sent += 1
        if self.sent == 1:
            return host.ConnectResponse(welcome=host.Welcome(protocol=1)).SerializeToString()
        await asyncio.sleep(0)
        return host.ConnectResponse(ping=host.Ping(seq=self.sent)).SerializeToString()

    async def write(self, frame: bytes) -> None:
        assert frame
        await self.reading.wait()
        self.received += 1
        if self.received > 3 * MAX_OUTBOX:
            self.went_on.set()

    async def close_sending(self) -> None:
        pass

    def abort(self) -> None:
        pass

    async def stands(self) -> int:
        """Waits until nothing is read any more, and returns how many frames were."""
        before = -1
        while before != self.sent:
            before = self.sent
            for _ in range(100):
                await asyncio.sleep(0)
        return before


async def test_a_dispatcher_that_does_not_read_is_not_read_from() -> None:
    h, flood = Host("test"), Flood()
    h.validate("v")(allowing)
    serving = asyncio.create_task(h.serve(flood))
    stood = await flood.stands()
    assert MAX_OUTBOX <= stood <= 2 * MAX_OUTBOX + 10, "frames wait for the writer, and as many again are being written"
    flood.reading.set()
    await asyncio.wait_for(flood.went_on.wait(), 20)
    serving.cancel()
    await asyncio.wait({serving})


class Batches(Flood):
    """A dispatcher that sends frames of two reviews each, one in each turn of the event loop, and then nothing."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.frames = frames
        self.verdicts: list[int] = []
        self.ended = asyncio.Event()

    async def read(self) -> bytes | None:
        self.sent += 1
        if self.sent == 1:
            welcome = host.Welcome(protocol=1, capabilities=["batches"])
            return host.ConnectResponse(welcome=welcome).SerializeToString()
        if self.sent > self.frames + 1:
            await self.ended.wait()
            return None
        await asyncio.sleep(0)
        reviews = [review(2 * self.sent), review(2 * self.sent + 1)]
        return host.ConnectResponse(reviews=host.Reviews(reviews=reviews)).SerializeToString()

    async def write(self, frame: bytes) -> None:
        message = host.ConnectRequest.FromString(frame)
        if message.HasField("verdict") or message.HasField("verdicts"):
            self.verdicts.append(max(1, len(message.verdicts.verdicts)))
        if sum(self.verdicts) == 2 * self.frames:
            self.ended.set()


def review(call_id: int) -> host.Review:
    hook = host.HookCall(name="v", stage=admission.STAGE_VALIDATE, remaining_ms=10_000)
    return host.Review(call_id=call_id, hooks=[hook], request=admission.AdmissionRequest(uid=str(call_id)))


async def test_verdicts_of_reviews_that_come_one_after_the_other_go_together() -> None:
    h, batches = Host("test"), Batches(3)

    @h.validate("v")
    async def _(_request: Request) -> Response:  # Not in a thread, which runs when it can.
        return allow()

    await asyncio.wait_for(h.serve(batches), 20)
    assert batches.verdicts == [6]


class Broken(Flood):
    """A stream that breaks."""

    async def read(self) -> bytes | None:
        raise SessionError("UNAVAILABLE: gone")

    async def write(self, frame: bytes) -> None:
        raise SessionError(f"the stream has ended before {len(frame)} bytes")


async def test_the_end_of_a_session_is_what_the_reader_learns() -> None:
    h = Host("test")
    h.validate("v")(allowing)
    serving = asyncio.create_task(h.serve(Broken()))
    await asyncio.wait({serving}, timeout=10)
    assert str(serving.exception()) == "UNAVAILABLE: gone"


class Faulty(Flood):
    """A stream with a fault, as the SDK might have one."""

    async def read(self) -> bytes | None:
        raise ZeroDivisionError


async def test_a_fault_of_the_sdk_ends_the_session_and_not_the_host_in_silence() -> None:
    h = Host("test")
    h.validate("v")(allowing)
    serving = asyncio.create_task(h.serve(Faulty()))
    await asyncio.wait({serving}, timeout=10)
    assert isinstance(serving.exception(), SessionError)
