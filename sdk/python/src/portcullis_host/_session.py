"""Decides what one session does. Pure: no I/O, no thread, no clock; time comes in as a parameter, in nanoseconds.

Events come in by the methods of :class:`Session`; what to do about them comes out as a list of actions, and frames to send by
:meth:`Session.take_frames`. One caller at a time.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from portcullis_host._chunks import Assembly
from portcullis_host._early import EarlyCancels
from portcullis_host._errors import BrokenContractError, DrainedError, SessionError
from portcullis_host._limits import (
    ALIVE_INTERVAL,
    CLOSE_TIMEOUT,
    CONNECT_TIMEOUT,
    MAX_ERROR_BYTES,
    MAX_PROBES,
    MAX_REVIEW_HOOKS,
    MILLISECOND,
    PROTOCOL,
    SILENCE,
    VERDICT_BYTES,
    WIRE_BYTES,
)
from portcullis_host._outbox import FRAME_OVERHEAD, Outbox
from portcullis_host._verdict import cancelled, fit, refused, shorten
from portcullis_host.contract import host

NO_TIME: Final = "no time left"
CANCELLED: Final = "cancelled before its start"
UNKNOWN_HOOK: Final = "unknown hook"
TRACEPARENT_PARTS: Final = 4
SPAN_ID_BYTES: Final = 8
NEVER: Final = 1 << 63
"""A time that does not come."""

HookKey: TypeAlias = tuple[str, int]
"""Name and stage of a hook."""


@dataclass(slots=True, eq=False)
class Call:
    """One hook of one review; a verdict ends it."""

    call_id: int
    index: int
    key: HookKey
    review: host.Review
    received: int
    """When the review was whole."""
    deadline: int
    started: int = 0
    """When the handler was called; 0 before. The shell sets it."""
    ended: str = ""
    """Why the handler should stop, or not start; empty while it need not."""

    @property
    def hook(self) -> host.HookCall:
        """The part of the review for this hook."""
        return self.review.hooks[self.index]

    @property
    def traceparent(self) -> str:
        """The W3C traceparent of the call's span: that of the review, which may hold calls of several hooks, with the id of the span."""
        parts, span = self.review.traceparent.split("-"), self.hook.span_id
        if len(parts) < TRACEPARENT_PARTS or len(span) != SPAN_ID_BYTES or not any(span):
            return self.review.traceparent
        parts[2] = span.hex()
        return "-".join(parts)


@dataclass(slots=True, frozen=True)
class Start:
    """Start the handler of a call, and report its verdict to :meth:`Session.finish`."""

    call: Call


@dataclass(slots=True, frozen=True)
class Cancel:
    """Tell the handler of a call to stop, or do not start it. Its verdict is still owed; call.ended says why."""

    call: Call


@dataclass(slots=True, frozen=True)
class Probe:
    """Ask whether a hook is ready, and report to :meth:`Session.probed`."""

    seq: int
    hook: str


@dataclass(slots=True, frozen=True)
class Welcomed:
    """The dispatcher has accepted the host, or says more about itself."""

    welcome: host.Welcome


@dataclass(slots=True, frozen=True)
class HookChanged:
    """A hook stands differently with the dispatcher."""

    state: host.HookState


@dataclass(slots=True, frozen=True)
class Leaving:
    """The dispatcher drains: it sends no new calls."""

    drain: host.DispatcherDrain


@dataclass(slots=True, frozen=True)
class Abort:
    """End the stream at once."""

    error: SessionError


Action: TypeAlias = Start | Cancel | Probe | Welcomed | HookChanged | Leaving | Abort


@dataclass(slots=True)
class _Live:
    """A call id with handlers that have not finished, by hook index."""

    running: dict[int, Call] = field(default_factory=dict[int, Call])

    def named(self, indexes: Sequence[int]) -> list[Call]:
        """Returns the running calls of a list of hook indexes; an empty list means all."""
        if not indexes:
            return list(self.running.values())
        return [self.running[index] for index in indexes if index in self.running]


class Session:
    """The state of one session.

    Args:
        now: The time.
        hello: The first frame to send.
        drain_timeout: How long a drain may take.
    """

    def __init__(self, now: int, hello: host.Hello, *, drain_timeout: int) -> None:
        self._hooks: Final = frozenset((offer.name, int(offer.stage)) for offer in hello.hooks)
        self._drain_timeout: Final = drain_timeout

        # From the welcome.
        self._welcomed = False
        self._silence = SILENCE
        self._max_verdict = VERDICT_BYTES

        # Life.
        self.useful = False
        """A frame came after the welcome."""
        self.ignored = 0
        """Frames of unknown types."""
        self._opened = self._last_frame = now
        self._owing = 0
        """Time of the first frame since the host's last one; 0 if there is none."""

        # Calls.
        self._live: dict[int, _Live] = {}
        self._outstanding = 0
        self._limit = self._announced = hello.max_outstanding
        """The limit is the highest bound ever announced: the dispatcher may not know a lower one yet."""
        self._deadlines: list[tuple[int, int, Call]] = []
        """A heap; calls that have finished are still in it."""
        self._order = itertools.count()
        self._highest = -1
        self._last_whole = -1
        self._last_started = 0
        self._early = EarlyCancels()
        self._assembly = Assembly(hello.max_frame_bytes)
        self._probing = 0

        # The end.
        self._draining = False
        self._drain_until = self._end_until = NEVER
        self._finishing = False
        self._closed = False
        self._over = False

        self._out = Outbox()
        self._out.add(host.ConnectRequest(hello=hello))

    # What comes in.

    def frame(self, now: int, encoded: bytes) -> list[Action]:
        """Takes a frame of the dispatcher, an encoded ConnectResponse."""
        if self._over:
            return []
        self._last_frame = now
        try:
            try:
                message = host.ConnectResponse.FromString(encoded)
            except DecodeError:
                raise BrokenContractError("a frame cannot be decoded") from None
            actions = self._received(now, message)
        except SessionError as error:
            return self._abort(error)
        self._say_alive(now)
        return actions

    def finish(self, now: int, call: Call, verdict: host.Verdict) -> None:
        """Takes the verdict of a call. It is sent also for a cancelled call: it alone frees the slot."""
        live = self._live.get(call.call_id)
        if live is None or live.running.pop(call.index, None) is None:
            return
        self._outstanding -= 1
        if not live.running:
            del self._live[call.call_id]
        verdict.queue_us = _microseconds((call.started or now) - call.received)
        verdict.handle_us = _microseconds(now - call.started) if call.started else 0
        self._send_verdict(call.call_id, call.index, verdict)
        self._finish_when_drained(now)

    def probed(self, seq: int, not_ready: str | None) -> None:
        """Takes the result of a probe; None means ready."""
        self._probing -= 1
        self._send_probe_result(seq, not_ready)

    def credit(self, most: int) -> None:
        """Announces a new bound on outstanding calls."""
        if self._draining or most == self._announced:
            return
        self._announced = most
        self._limit = max(self._limit, most)
        self._send(host.ConnectRequest(credit=host.Credit(max_outstanding=most)))

    def drain(self, now: int) -> None:
        """Announces that the host takes no new calls. Those in flight finish."""
        if self._draining:
            return
        self._draining = True
        self._drain_until = now + self._drain_timeout
        self._send(host.ConnectRequest(drain=host.HostDrain(last_started_call_id=self._last_started)))
        self._finish_when_drained(now)

    def tick(self, now: int) -> list[Action]:
        """Cancels the calls whose time is over, and aborts the session when one of its own deadlines has passed."""
        if self._over:
            return []
        for at, why in self._ends():
            if now >= at:
                return self._abort(why)
        actions: list[Action] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            call = heapq.heappop(self._deadlines)[2]
            if self._is_running(call):
                actions += self._end([call], NO_TIME)
        return actions

    def end(self) -> list[Action]:
        """Ends the session with its stream, however that ended: the handlers that still run are cancelled."""
        self._over = self._closed = True
        return self._end([call for live in self._live.values() for call in live.running.values()], "the session is lost")

    # What goes out.

    def wake(self) -> int:
        """Returns when to call :meth:`tick` next. A call of another method may make it earlier."""
        if self._over:
            return NEVER
        while self._deadlines and not self._is_running(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        first = self._deadlines[0][0] if self._deadlines else NEVER
        return min(first, *(at for at, _ in self._ends()))

    def take_frames(self) -> list[bytes]:
        """Removes the frames to send, encoded, and returns them."""
        return self._out.take()

    @property
    def waiting(self) -> int:
        """How many frames and verdicts wait to be sent."""
        return len(self._out)

    @property
    def last(self) -> bool:
        """Whether the host's side of the stream is to be closed behind the frames that wait."""
        return self._finishing and not self._closed

    def closed(self) -> None:
        """Notes that the host's side of the stream is closed, or broken: nothing can be sent any more."""
        self._closed = True
        self._out = Outbox()

    # Frames.

    def _received(self, now: int, message: host.ConnectResponse) -> list[Action]:  # noqa: C901, PLR0911 (a case for each frame)
        kind = message.WhichOneof("frame")
        if kind == "welcome":
            return self._welcome(message.welcome)
        if kind is None:
            self.ignored += 1
            return []
        if not self._welcomed:
            raise BrokenContractError(f"{kind} came before Welcome")
        self.useful = True
        match kind:
            case "review":
                return self._whole(now, [message.review])
            case "reviews":
                return self._batch(now, message.reviews)
            case "chunk":
                return self._chunk(now, message.chunk)
            case "cancel":
                return self._cancel(now, message.cancel)
            case "ping":
                self._send(host.ConnectRequest(pong=host.Pong(seq=message.ping.seq)))
                return []
            case "probe":
                return self._probe(message.probe)
            case "hook_state":
                return [HookChanged(message.hook_state)]
            case "drain":
                self._end_by(now + message.drain.grace_ms * MILLISECOND + CLOSE_TIMEOUT)
                return [Leaving(message.drain)]

    def _welcome(self, welcome: host.Welcome) -> list[Action]:
        if welcome.protocol != PROTOCOL:
            raise SessionError(f"the dispatcher chose protocol {welcome.protocol}, this host speaks {PROTOCOL}")
        self._welcomed = True
        self._silence = welcome.silence_ms * MILLISECOND or self._silence
        self._max_verdict = welcome.max_verdict_bytes or self._max_verdict
        if "batches" in welcome.capabilities:
            self._out.allow_batches(self._max_verdict)
        return [Welcomed(welcome)]

    def _probe(self, probe: host.Probe) -> list[Action]:
        if not any(name == probe.hook for name, _ in self._hooks):
            self._send_probe_result(probe.seq, UNKNOWN_HOOK)
            return []
        if self._probing >= MAX_PROBES:
            self._send_probe_result(probe.seq, "too many probes at a time")
            return []
        self._probing += 1
        return [Probe(probe.seq, probe.hook)]

    # Reviews.

    def _batch(self, now: int, reviews: host.Reviews) -> list[Action]:
        size = reviews.ByteSize()
        if size > WIRE_BYTES:
            raise BrokenContractError(f"a frame of several reviews has {size} bytes, this host takes {WIRE_BYTES}")
        return self._whole(now, reviews.reviews)

    def _whole(self, now: int, reviews: Sequence[host.Review]) -> list[Action]:
        """Takes reviews that come in one piece. Their ids increase, so that one that comes again is noticed also after its end."""
        for review in reviews:
            if review.call_id <= self._last_whole:
                raise BrokenContractError(
                    f"call {review.call_id} came after call {self._last_whole}: each comes once, in the order of their ids"
                )
            self._last_whole = review.call_id
        return [action for review in reviews for action in self._review(now, now, review)]

    def _chunk(self, now: int, chunk: host.Chunk) -> list[Action]:
        if chunk.call_id in self._live:
            raise BrokenContractError(f"call {chunk.call_id} came twice")
        encoded = self._assembly.add(now, chunk)
        self._highest = max(self._highest, chunk.call_id)
        if encoded is None:
            return []
        try:
            review = host.Review.FromString(encoded)
        except DecodeError:
            raise BrokenContractError(f"the chunks of call {chunk.call_id} are no review") from None
        if review.call_id != chunk.call_id or len(review.hooks) != chunk.hooks:
            raise BrokenContractError(
                f"the chunks of call {chunk.call_id} hold call {review.call_id} of {len(review.hooks)} hooks, not {chunk.hooks}"
            )
        actions = self._review(now, self._assembly.began, review)
        self._finish_when_drained(now)
        return actions

    def _review(self, now: int, written: int, review: host.Review) -> list[Action]:
        """Starts handlers, and refuses the calls that cannot start. Their time counts from written."""
        call_id, hooks = review.call_id, review.hooks
        if call_id in self._live or self._assembly.in_progress == call_id:
            raise BrokenContractError(f"call {call_id} came twice")
        if len(hooks) > MAX_REVIEW_HOOKS:
            raise BrokenContractError(f"call {call_id} asks {len(hooks)} hooks, more than {MAX_REVIEW_HOOKS}")
        self._highest = max(self._highest, call_id)
        early = self._early.take(now - self._silence, call_id)
        live = _Live()
        actions: list[Action] = []
        for index, hook in enumerate(hooks):
            key = (hook.name, int(hook.stage))
            reason = self._refusal(review, hook, key, cancelled=any(not named or index in named for named in early))
            if reason:
                self._send_verdict(call_id, index, refused(reason))
                continue
            call = Call(call_id, index, key, review, now, written + hook.remaining_ms * MILLISECOND)
            live.running[index] = call
            self._outstanding += 1
            heapq.heappush(self._deadlines, (call.deadline, next(self._order), call))
            actions.append(Start(call))
        if live.running:
            self._live[call_id] = live
            self._last_started = max(self._last_started, call_id)
        return actions

    def _refusal(self, review: host.Review, hook: host.HookCall, key: HookKey, *, cancelled: bool) -> str:
        """Returns the reason not to start the handler of a hook; empty if it starts."""
        reasons = (
            (self._draining, "draining"),
            (key not in self._hooks, UNKNOWN_HOOK),
            (not review.HasField("request"), "review without a request"),
            (cancelled, CANCELLED),
            (hook.remaining_ms == 0, NO_TIME),
            (self._outstanding >= self._limit, "overloaded"),
        )
        return next((reason for applies, reason in reasons if applies), "")

    # Cancellations.

    def _cancel(self, now: int, cancel: host.Cancel) -> list[Action]:
        """Cancels running handlers. One before its review is remembered; one after the verdict is ignored."""
        call_id, indexes = cancel.call_id, tuple(cancel.hook_indexes)
        if self._assembly.in_progress == call_id:
            return self._cancel_chunks(now, call_id, indexes)
        live = self._live.get(call_id)
        if live is not None:
            return self._end(live.named(indexes), CANCELLED)
        if call_id > self._highest:
            self._early.remember(now, now - self._silence, call_id, indexes)
        return []

    def _cancel_chunks(self, now: int, call_id: int, indexes: Sequence[int]) -> list[Action]:
        """Cancels a review that has come in part. If a hook remains, the review still has to come."""
        if not self._assembly.covers(indexes):
            self._early.remember(now, now - self._silence, call_id, indexes)
            return []
        self._assembly.drop()
        for index in range(self._assembly.hooks):
            self._send_verdict(call_id, index, cancelled())
        self._finish_when_drained(now)
        return []

    def _end(self, calls: Iterable[Call], why: str) -> list[Action]:
        ending = [call for call in calls if not call.ended]
        for call in ending:
            call.ended = why
        return [Cancel(call) for call in ending]

    def _is_running(self, call: Call) -> bool:
        live = self._live.get(call.call_id)
        return live is not None and live.running.get(call.index) is call and not call.ended

    # Sending.

    def _say_alive(self, now: int) -> None:
        """Sends an unasked Pong when frames have come for a while and the host has sent none: a Ping may be behind them."""
        if self.waiting:
            return
        if not self._owing:
            self._owing = now
        elif now - self._owing >= ALIVE_INTERVAL:
            self._send(host.ConnectRequest(pong=host.Pong()))
            self._owing = now

    def _send(self, frame: host.ConnectRequest) -> None:
        self._owing = 0
        if not self._finishing and not self._closed:
            self._out.add(frame)

    def _send_verdict(self, call_id: int, index: int, verdict: host.Verdict) -> None:
        self._owing = 0
        if self._finishing or self._closed:
            return
        verdict.call_id, verdict.hook_index = call_id, index
        size = verdict.ByteSize()
        if size + FRAME_OVERHEAD > self._max_verdict:
            verdict = fit(verdict, self._max_verdict)
            size = verdict.ByteSize()
        self._out.add_verdict(verdict, size)

    def _send_probe_result(self, seq: int, not_ready: str | None) -> None:
        result = host.ProbeResult(seq=seq, ready=not_ready is None, message=shorten(not_ready or "", MAX_ERROR_BYTES))
        self._send(host.ConnectRequest(probe_result=result))

    # The end.

    def _finish_when_drained(self, now: int) -> None:
        """Ends a draining session once all calls have their verdicts.

        An incomplete review needs one if a call with a greater id was started: by HostDrain the dispatcher takes it as started too.
        """
        incomplete = self._assembly.in_progress
        owed = self._outstanding > 0 or (incomplete is not None and incomplete < self._last_started)
        if self._draining and not self._finishing and not owed:
            self._finishing = True
            self._end_by(now + CLOSE_TIMEOUT)

    def _end_by(self, at: int) -> None:
        self._end_until = min(self._end_until, at)

    def _ends(self) -> Iterator[tuple[int, SessionError]]:
        """Yields when the session is aborted, and why."""
        if self._welcomed:
            yield self._last_frame + self._silence, SessionError("the dispatcher fell silent")
        else:
            yield self._opened + CONNECT_TIMEOUT, SessionError("the dispatcher sent no welcome in time")
        if self._draining and not self._finishing:
            yield self._drain_until, DrainedError("calls were still running when the time to drain was over")
        yield self._end_until, SessionError("the dispatcher did not end the stream")

    def _abort(self, error: SessionError) -> list[Action]:
        self._over = True
        return [Abort(error)]


def _microseconds(nanoseconds: int) -> int:
    return min(max(nanoseconds // 1000, 0), (1 << 32) - 1)
