"""Rules of the core that the vectors do not show: its bounds."""

import logging
import random
from unittest.mock import Mock

import pytest

from portcullis_host import TLSPEM, HostError, Stage
from portcullis_host import _limits as limits
from portcullis_host._board import Board
from portcullis_host._budget import Budget
from portcullis_host._decoration import MAX_ITEMS
from portcullis_host._dial_plan import backoff
from portcullis_host._early import EarlyCancels
from portcullis_host._hooks import Hooks
from portcullis_host._limits import BACKOFF_MAX, BACKOFF_MIN, MAX_EARLY_CANCELS, MAX_PROBES, MILLISECOND, SECOND
from portcullis_host._outbox import FRAME_OVERHEAD, Outbox
from portcullis_host._session import Abort, Cancel, Probe, Session, Start
from portcullis_host._verdict import fit, refused, shorten
from portcullis_host.contract import admission, host

NOW = 1000 * SECOND


def new_session(*, most: int = 4, batches: bool = False) -> Session:
    offer = host.HookOffer(name="h", stage=admission.STAGE_VALIDATE)
    session = Session(NOW, host.Hello(hooks=[offer], max_outstanding=most, max_frame_bytes=1000), drain_timeout=SECOND)
    welcome = host.Welcome(protocol=1, capabilities=["batches"] if batches else [])
    session.frame(NOW, host.ConnectResponse(welcome=welcome).SerializeToString())
    session.take_frames()
    return session


def review(call_id: int, *, hooks: int = 1, remaining_ms: int = 1000) -> bytes:
    call = host.HookCall(name="h", stage=admission.STAGE_VALIDATE, remaining_ms=remaining_ms)
    asked = host.Review(call_id=call_id, hooks=[call] * hooks, request=admission.AdmissionRequest())
    return host.ConnectResponse(review=asked).SerializeToString()


def sent(session: Session) -> list[host.ConnectRequest]:
    return [host.ConnectRequest.FromString(frame) for frame in session.take_frames()]


def test_the_limits_are_those_of_the_protocol() -> None:
    assert (limits.MAX_HOOKS, limits.MAX_REVIEW_HOOKS, limits.MAX_EARLY_CANCELS, limits.MAX_PROBES) == (1024, 65_536, 1024, 16)
    assert (limits.MAX_BATCH, limits.MAX_BATCH_BYTES, limits.WIRE_BYTES, limits.VERDICT_BYTES) == (64, 65_536, 131_072, 4_194_304)
    assert (MAX_ITEMS, limits.MAX_ERROR_BYTES, limits.MAX_OUTBOX, limits.MAX_TARGETS) == (4096, 1024, 1024, 64)
    assert (limits.SILENCE, limits.CONNECT_TIMEOUT, limits.PROBE_TIMEOUT, limits.RESOLVE_INTERVAL) == (
        5 * SECOND,
        10 * SECOND,
        5 * SECOND,
        5 * SECOND,
    )
    assert (limits.ALIVE_INTERVAL, limits.CLOSE_TIMEOUT, limits.PEER_DELAY) == (500 * MILLISECOND, 2 * SECOND, SECOND)
    assert (BACKOFF_MIN, BACKOFF_MAX) == (100 * MILLISECOND, 5 * SECOND)


def test_a_host_offers_no_more_hooks_than_a_dispatcher_takes() -> None:
    hooks = Hooks()
    for i in range(limits.MAX_HOOKS):
        hooks.add(f"h{i}", Stage.VALIDATE, ready=None)
    with pytest.raises(HostError, match="one more than the 1024"):
        hooks.add("h", Stage.VALIDATE, ready=None)


def test_the_states_that_a_dispatcher_names_are_bounded() -> None:
    board, link = Board(logging.getLogger("test")), Mock(ignored_frames=0)
    states = [host.HookState(name=f"h{i}", stage=admission.STAGE_VALIDATE) for i in range(limits.MAX_HOOK_STATES + 1)]
    board.welcomed(link, host.Welcome(hooks=states))
    assert len(board.status()[0].hooks) == limits.MAX_HOOK_STATES


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(TLSPEM(cert=b"cert", key=b"secret", ca=b"ca"))


def test_a_call_beyond_a_lowered_credit_is_still_taken() -> None:
    session = new_session(most=2)
    session.credit(1)
    assert len(session.frame(NOW, review(1, hooks=2))) == 2, "the dispatcher may not know the lower bound yet"
    assert [frame.credit.max_outstanding for frame in sent(session)] == [1]


def test_the_session_wakes_for_the_earliest_deadline() -> None:
    session = new_session()
    [first] = session.frame(NOW, review(1, remaining_ms=300))
    [second] = session.frame(NOW, review(2, remaining_ms=200))
    assert isinstance(first, Start)
    assert isinstance(second, Start)
    assert session.wake() == NOW + 200 * MILLISECOND
    assert session.tick(NOW + 200 * MILLISECOND) == [Cancel(second.call)]
    assert session.wake() == NOW + 300 * MILLISECOND
    session.finish(NOW, first.call, refused("no"))
    assert session.wake() == NOW + 5 * SECOND, "silence is what is left"


def test_a_frame_that_is_no_message_ends_the_session() -> None:
    session = new_session()
    [action] = session.frame(NOW, b"\xff\xff")
    assert isinstance(action, Abort)
    assert session.frame(NOW, review(1)) == []


def test_a_verdict_is_sent_once() -> None:
    session = new_session()
    [start] = session.frame(NOW, review(1))
    assert isinstance(start, Start)
    session.finish(NOW, start.call, refused("no"))
    session.finish(NOW, start.call, refused("no"))
    assert len(sent(session)) == 1


def test_probes_are_bounded() -> None:
    session = new_session()
    probe = host.ConnectResponse(probe=host.Probe(seq=1, hook="h")).SerializeToString()
    actions = [action for _ in range(MAX_PROBES + 1) for action in session.frame(NOW, probe)]
    assert actions == [Probe(1, "h")] * MAX_PROBES
    assert [frame.probe_result.message for frame in sent(session)] == ["too many probes at a time"]
    session.probed(1, None)
    assert len(session.frame(NOW, probe)) == 1


def test_a_review_of_too_many_bytes_ends_the_session() -> None:
    session = new_session()
    chunk = host.Chunk(call_id=1, total_bytes=1001, hooks=1, data=b"x")
    [action] = session.frame(NOW, host.ConnectResponse(chunk=chunk).SerializeToString())
    assert isinstance(action, Abort)


@pytest.mark.parametrize(
    "chunks",
    [
        [host.Chunk(call_id=1, total_bytes=9, hooks=1, data=b"xx"), host.Chunk(call_id=2, total_bytes=9, hooks=1, data=b"xx")],
        [host.Chunk(call_id=1, total_bytes=9, hooks=1, data=b"xx"), host.Chunk(call_id=1, total_bytes=8, hooks=1, data=b"xx")],
        [host.Chunk(call_id=1, total_bytes=9, hooks=1, data=b"xx"), host.Chunk(call_id=1, total_bytes=9, hooks=1)],
        [host.Chunk(call_id=1, total_bytes=3, hooks=1, data=b"xxxx")],
        [host.Chunk(call_id=1, total_bytes=3, hooks=1, data=b"xxx")],
        [host.Chunk(call_id=1, total_bytes=3, hooks=(1 << 16) + 1, data=b"x")],
    ],
    ids=["another call", "another total", "no data", "too much data", "no review", "too many hooks"],
)
def test_chunks_that_do_not_fit_end_the_session(chunks: list[host.Chunk]) -> None:
    session = new_session()
    actions = [session.frame(NOW, host.ConnectResponse(chunk=chunk).SerializeToString()) for chunk in chunks]
    assert isinstance(actions[-1][0], Abort)
    assert not any(actions[:-1])


def test_reviews_that_share_a_frame_of_too_many_bytes_end_the_session() -> None:
    def frame(size: int) -> bytes:
        request = admission.AdmissionRequest(uid="u" * size)
        return host.ConnectResponse(reviews=host.Reviews(reviews=[host.Review(call_id=1, request=request)])).SerializeToString()

    assert new_session().frame(NOW, frame(limits.WIRE_BYTES - 100)) == []
    [action] = new_session().frame(NOW, frame(limits.WIRE_BYTES))
    assert isinstance(action, Abort)
    assert "of several reviews" in str(action.error)


def test_verdicts_share_a_frame_of_bounded_size() -> None:
    session = new_session(most=200, batches=True)
    for action in session.frame(NOW, review(1, hooks=200)):
        assert isinstance(action, Start)
        session.finish(NOW, action.call, refused("no"))
    assert session.waiting == 200, "each verdict counts for the bound at which the reader stops"
    counts = [len(frame.verdicts.verdicts) for frame in sent(session)]
    assert counts == [64, 64, 64, 8]


def test_a_batch_is_no_larger_than_the_dispatcher_takes() -> None:
    out = Outbox()
    out.allow_batches(1000)
    verdict = refused("x" * 200)
    for _ in range(9):
        out.add_verdict(verdict, verdict.ByteSize())
    frames = out.take()
    assert len(frames) == 3
    assert max(map(len, frames)) <= 1000


def test_early_cancellations_are_bounded() -> None:
    early = EarlyCancels()
    for call_id in range(MAX_EARLY_CANCELS + 1):
        early.remember(NOW, NOW, call_id, ())
    assert early.take(NOW, 0) == [], "the oldest is forgotten"
    assert early.take(NOW, 1) == [()]
    early.remember(NOW, NOW, 5000, range(MAX_EARLY_CANCELS))
    assert early.take(NOW, 5000) == [], "one that names too many hooks is not remembered"
    assert early.take(NOW, 2) == [()]
    assert early.take(NOW + 1, 3) == [], "it came too long ago"


def test_text_is_cut_between_characters() -> None:
    assert shorten("ä" * 10, 20) == "ä" * 10
    assert shorten("ä" * 20, 20) == "ä" * 5 + " ... (cut)"
    assert shorten("a" * 20, 5) == ""
    assert shorten("\ud800", 10) == "?"


def test_a_verdict_that_is_cut_fits() -> None:
    for limit in range(60, 400):
        denial = host.Verdict(call_id=1 << 40, hook_index=9, queue_us=1 << 20)
        denial.response.status.message = "é" * 300
        denial.response.status.code = 422
        denial.response.warnings.append("w" * 300)
        small = fit(denial, limit)
        assert small.ByteSize() + FRAME_OVERHEAD <= limit
        assert (small.call_id, small.hook_index, small.queue_us) == (1 << 40, 9, 1 << 20)
        assert not small.response.allowed
        assert small.response.status.code == 422


class Member:
    def __init__(self, budget: Budget) -> None:
        self.budget, self.told = budget, list[int]()

    def share_changed(self) -> None:
        self.told.append(self.budget.share)


def test_the_budget_is_divided_evenly() -> None:
    budget = Budget(64)
    members = [Member(budget) for _ in range(3)]
    for member in members:
        budget.add(member)
    budget.remove(members[2])
    budget.remove(members[2])
    assert budget.share == 32
    assert [member.told for member in members] == [[32, 21, 32], [21, 32], []]
    assert Budget(2).share == 2


def test_a_session_always_has_a_share() -> None:
    budget = Budget(2)
    for _ in range(5):
        budget.add(Member(budget))
    assert budget.share == 1


def test_back_off_grows_and_is_bounded() -> None:
    assert [backoff(n, 1.0) // MILLISECOND for n in range(8)] == [200, 400, 800, 1600, 3200, 5000, 5000, 5000]
    assert all(BACKOFF_MIN <= backoff(n, random.random()) <= BACKOFF_MAX for n in range(1000))  # noqa: S311
