"""The dispatcher's side of a session, for tests."""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol, TypeVar, cast

from portcullis_host.contract import admission, host
from portcullis_host.testing._cases import Case
from portcullis_host.testing._verdict import Verdict, verdict_of

PATIENCE: Final = timedelta(seconds=30)
"""How long a fake dispatcher waits for a host."""

MAX_WHOLE: Final = 128 << 10
CHUNK_BYTES: Final = 64 << 10
FOREVER_MS: Final = (1 << 31) - 1

_T = TypeVar("_T")
_Key = tuple[str, int, int]


class Peer(Protocol):
    """The dispatcher's end of a stream."""

    async def send(self, frame: bytes) -> None:
        """Writes a ConnectResponse."""

    async def receive(self) -> bytes | None:
        """Waits for the next ConnectRequest; None means that the host sends no more."""


class Session:
    """A session with one host, which asks what a dispatcher asks.

    It accepts every hook that the host offers and puts it in rotation. It matches nothing and knows no failure policies: it shows what a
    host answers, not what the mesh makes of it.
    """

    def __init__(self, peer: Peer, hello: host.Hello) -> None:
        self.hello: Final = hello
        """How the host introduced itself."""
        self.credit = hello.max_outstanding
        """How many calls the host takes on this session now."""
        self.drain: host.HostDrain | None = None
        """What the host said when it began to leave."""
        self.pongs = 0
        """How many signs of life came that nobody asked for."""
        self.closed: Final = asyncio.Event()
        """Set when the host sends no more, or the stream is broken."""
        self.frames: Final[list[host.ConnectRequest]] = []
        """All frames of the host behind Hello."""
        self._peer: Final = peer
        self._ids: Final = itertools.count(1)
        self._answers: Final[dict[_Key, asyncio.Future[host.ConnectRequest]]] = {}
        self._changed: Final = asyncio.Condition()

    @classmethod
    async def accept(cls, peer: Peer, welcome: host.Welcome | None = None) -> "Session":
        """Takes the host's Hello and answers with a Welcome, in which what matters to a host is filled where it is absent.

        Raises:
            RuntimeError: The first frame is no Hello.
        """
        async with asyncio.timeout(PATIENCE.total_seconds()):
            first = await peer.receive()
        frame = host.ConnectRequest.FromString(first or b"")
        if not frame.HasField("hello"):
            raise RuntimeError(f"the first frame is {frame.WhichOneof('frame')}: want hello")
        session = cls(peer, frame.hello)
        await session.send(welcome=_complete(welcome, frame.hello))
        return session

    async def serve(self) -> None:
        """Reads the host's frames until it sends no more. A session answers nothing unless this runs."""
        try:
            while (encoded := await self._peer.receive()) is not None:
                frame = host.ConnectRequest.FromString(encoded)
                self.frames.append(frame)
                self._take(frame)
                await self._change()
        finally:
            self.closed.set()
            for answer in self._answers.values():
                answer.cancel()
            await self._change()

    async def send(
        self,
        *,
        welcome: host.Welcome | None = None,
        review: host.Review | None = None,
        cancel: host.Cancel | None = None,
        drain: host.DispatcherDrain | None = None,
        ping: host.Ping | None = None,
        hook_state: host.HookState | None = None,
        probe: host.Probe | None = None,
        reviews: host.Reviews | None = None,
        chunk: host.Chunk | None = None,
    ) -> None:
        """Writes a frame to the host."""
        frame = host.ConnectResponse(
            welcome=welcome,
            review=review,
            cancel=cancel,
            drain=drain,
            ping=ping,
            hook_state=hook_state,
            probe=probe,
            reviews=reviews,
            chunk=chunk,
        )
        await self.send_encoded(frame.SerializeToString())

    async def send_encoded(self, frame: bytes) -> None:
        """Writes any bytes to the host as a frame."""
        await self._peer.send(frame)

    async def play(self, case: Case) -> None:
        """Puts the request of a case to its hook, and compares the verdict.

        Raises:
            AssertionError: It is not the one that the case expects.
        """
        names = {offer.name for offer in self.hello.hooks}
        if not case.hook and len(names) != 1:
            raise LookupError(f"case {case.name!r} names no hook, and the host has {len(names)}")
        case.check(await self.review(case.hook or names.pop(), case.request))

    async def review(self, hook: str, request: admission.AdmissionRequest) -> Verdict:
        """Puts a request to one hook and returns its verdict.

        Raises:
            AssertionError: There is none: the handler failed, or was not started. Or its patch does not apply.
        """
        verdict = await self.ask(hook, request)
        if not verdict.HasField("response"):
            raise AssertionError(f"hook {hook!r} gave no verdict: {verdict}")
        return verdict_of(verdict.response, request)

    async def ask(
        self,
        hook: str,
        request: admission.AdmissionRequest,
        *,
        remaining: timedelta = PATIENCE,
        traceparent: str = "",
        span_id: bytes = b"",
    ) -> host.Verdict:
        """Puts a request to one hook and returns how the call ended.

        When the task is cancelled so is the call.

        Args:
            hook: Its name.
            request: The question.
            remaining: Time of the call, the host's to keep.
            traceparent: W3C traceparent of the review.
            span_id: Id of the span of the call.

        Raises:
            LookupError: The host does not offer the hook, or for several stages.
            TypeError: The request is an object, and no request.
            RuntimeError: The host left without an answer.
            TimeoutError: It does not answer.
        """
        call = host.HookCall(
            name=hook,
            stage=self._stage(hook),
            configuration="test",
            remaining_ms=remaining // timedelta(milliseconds=1),
            span_id=span_id,
        )
        call_id, verdicts = await self.post(request, [call], traceparent=traceparent)
        try:
            return (await self._answer(verdicts[0], remaining + PATIENCE)).verdict
        except asyncio.CancelledError:
            with suppress(RuntimeError):
                await self.send(cancel=host.Cancel(call_id=call_id))
            raise

    async def post(
        self, request: admission.AdmissionRequest, calls: Sequence[host.HookCall], *, traceparent: str = ""
    ) -> "tuple[int, list[asyncio.Future[host.ConnectRequest]]]":
        """Sends a request for several hooks, in chunks if it is large and the host takes them.

        Returns:
            The id of the call, and for each hook the future frame with its verdict.
        """
        if isinstance(cast("object", request), Mapping | str | bytes):
            raise TypeError(f"the request is a {type(request).__name__}: make one of the object by create, update or delete")
        review = host.Review(call_id=next(self._ids), hooks=calls, request=request, traceparent=traceparent)
        answers = [self._expect("verdict", review.call_id, index) for index in range(len(calls))]
        encoded = review.SerializeToString()
        if len(encoded) <= MAX_WHOLE or "chunks" not in self.hello.capabilities:
            await self.send(review=review)
            return review.call_id, answers
        for at in range(0, len(encoded), CHUNK_BYTES):
            data = encoded[at : at + CHUNK_BYTES]
            await self.send(chunk=host.Chunk(call_id=review.call_id, total_bytes=len(encoded), hooks=len(calls), data=data))
        return review.call_id, answers

    async def ping(self) -> timedelta:
        """Asks for a sign of life, and returns how long it took."""
        seq = next(self._ids)
        answer, began = self._expect("pong", seq), time.monotonic()
        await self.send(ping=host.Ping(seq=seq))
        await self._answer(answer)
        return timedelta(seconds=time.monotonic() - began)

    async def probe(self, hook: str) -> host.ProbeResult:
        """Asks whether a hook is ready."""
        seq = next(self._ids)
        answer = self._expect("probe_result", seq)
        await self.send(probe=host.Probe(seq=seq, hook=hook))
        return (await self._answer(answer)).probe_result

    async def until(self, condition: "Callable[[Session], _T]") -> _T:
        """Waits until a condition of the session holds, and returns its result; frames of the host may change it.

        Raises:
            TimeoutError: It does not.
        """
        async with asyncio.timeout(PATIENCE.total_seconds()), self._changed:
            return await self._changed.wait_for(lambda: condition(self))

    def _take(self, frame: host.ConnectRequest) -> None:
        match frame.WhichOneof("frame"):
            case "verdict":
                self._verdict(frame.verdict)
            case "verdicts":
                for verdict in frame.verdicts.verdicts:
                    self._verdict(verdict)
            case "pong":
                self.pongs += frame.pong.seq == 0
                self._resolve(("pong", frame.pong.seq, 0), frame)
            case "probe_result":
                self._resolve(("probe_result", frame.probe_result.seq, 0), frame)
            case "credit":
                self.credit = frame.credit.max_outstanding
            case "drain":
                self.drain = frame.drain
            case _:
                pass

    def _verdict(self, verdict: host.Verdict) -> None:
        self._resolve(("verdict", verdict.call_id, verdict.hook_index), host.ConnectRequest(verdict=verdict))

    def _expect(self, kind: str, number: int, index: int = 0) -> asyncio.Future[host.ConnectRequest]:
        answer = self._answers[kind, number, index] = asyncio.get_running_loop().create_future()
        if self.closed.is_set():
            answer.cancel()
        return answer

    def _resolve(self, key: _Key, frame: host.ConnectRequest) -> None:
        answer = self._answers.pop(key, None)
        if answer is not None and not answer.done():
            answer.set_result(frame)

    async def _answer(self, answer: asyncio.Future[host.ConnectRequest], patience: timedelta = PATIENCE) -> host.ConnectRequest:
        done, _ = await asyncio.wait({answer}, timeout=patience.total_seconds())
        if not done:
            raise TimeoutError("the host does not answer")
        if answer.cancelled():
            raise RuntimeError("the host left without an answer")
        return answer.result()

    async def _change(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _stage(self, hook: str) -> admission.Stage.ValueType:
        stages = [offer.stage for offer in self.hello.hooks if offer.name == hook]
        if len(stages) != 1:
            offered = ", ".join(sorted({offer.name for offer in self.hello.hooks}))
            raise LookupError(f"hook {hook!r} is offered for {len(stages)} stages, want one: the host has {offered}")
        return stages[0]


def _complete(given: host.Welcome | None, hello: host.Hello) -> host.Welcome:
    """Fills a welcome. Nothing is sent by itself, so silence must not end the session."""
    welcome = host.Welcome(
        session_id=f"session-of-{hello.instance}",
        dispatcher_id="test",
        protocol=1,
        revision="test",
        silence_ms=FOREVER_MS,
        max_verdict_bytes=4 << 20,
    )
    welcome.MergeFrom(given or host.Welcome())
    if not welcome.hooks:
        for offer in hello.hooks:
            welcome.hooks.add(name=offer.name, stage=offer.stage, state=host.STATE_IN_ROTATION, revision=welcome.revision)
    return welcome
