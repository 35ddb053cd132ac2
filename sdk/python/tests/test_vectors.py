"""Plays the transcripts of sdk/conformance/vectors against the pure core, under a fake clock."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from portcullis_host import Cause, HandlerError, Mode, Request, Response, Stage, allow, deny, patch
from portcullis_host._caller import verdict_of_error
from portcullis_host._limits import MILLISECOND
from portcullis_host._request import Lifetime
from portcullis_host._response import to_message
from portcullis_host._session import Abort, Action, Call, Cancel, Probe, Session, Start
from portcullis_host.contract import admission, host

VECTORS = Path(os.environ.get("PORTCULLIS_VECTORS") or Path(__file__).parents[2] / "conformance" / "vectors")
FILES = sorted(VECTORS.glob("*.json"))


def test_there_are_vectors() -> None:
    assert FILES, f"no vectors in {VECTORS}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_vector(file: Path) -> None:
    stage: Stage_ | None = None
    for number, step in enumerate(json.loads(file.read_text())["steps"]):
        if step["do"] == "host":
            stage = Stage_(step)
        assert stage is not None, "the first step starts a host"
        stage.play(step)
        assert stage.happened() == expected(step["expect"]), f"step {number}: {step.get('text') or step['do']}"


class Hold(Exception):  # noqa: N818 (no error)
    """A handler that waits until it is released."""


class Stage_:  # noqa: N801 (Stage is the SDK's)
    """One host and its dispatcher."""

    def __init__(self, step: dict[str, Any]) -> None:
        self.now = 1_000_000 * MILLISECOND
        self.started: list[str] = []
        self.frames: list[host.ConnectRequest] = []
        self.closed = False
        self.ended: str | None = None
        self.held: dict[Call, str] = {}
        hello = host.Hello(
            protocol_min=1,
            protocol_max=1,
            host="imagepolicy",
            instance="imagepolicy-1",
            max_outstanding=step.get("maxOutstanding") or 64,
            max_frame_bytes=16 << 20,
            capabilities=["batches", "chunks"],
        )
        for hook in step["hooks"]:
            stages = {"patch": admission.STAGE_MUTATE, "initialize": admission.STAGE_INITIALIZE}
            hello.hooks.add(name=hook, stage=stages.get(hook, admission.STAGE_VALIDATE))
        self.session = Session(self.now, hello, drain_timeout=(step.get("drainTimeoutMs") or 10_000) * MILLISECOND)

    def play(self, step: dict[str, Any]) -> None:
        match step["do"]:
            case "host":
                pass
            case "send":
                for frame in step["frames"]:
                    self.carry_out(self.session.frame(self.now, bytes.fromhex(frame)))
            case "advance":
                self.advance(self.now + step["ms"] * MILLISECOND)
            case "release":
                for call in [call for call, hook in self.held.items() if hook == step["hook"]]:
                    self.answer(call, allow)
            case "drain":
                self.session.drain(self.now)
            case "end":
                self.end(step.get("code") or "")
            case unknown:
                raise AssertionError(unknown)

    def advance(self, until: int) -> None:
        while self.session.wake() <= until:
            self.now = self.session.wake()
            self.carry_out(self.session.tick(self.now))
        self.now = until

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start(call):
                    call.started = self.now
                    self.answer(call, partial(handle, call))
                case Cancel(call):
                    if self.held.get(call) == "wait":
                        self.answer(call, cancel)
                case Probe(seq, hook):
                    self.session.probed(seq, "cache is empty" if hook == "unready" else None)
                case Abort(error):
                    self.end(str(error))
                case _:
                    pass

    def answer(self, call: Call, handler: Callable[[], Response]) -> None:
        try:
            verdict = host.Verdict(response=to_message(handler(), Stage(call.hook.stage)))
        except Hold:
            self.held[call] = call.hook.name
            self.started.append(call.hook.name)
            return
        except BaseException as error:  # noqa: BLE001 (as the SDK does)
            verdict = verdict_of_error(error, over=call.ended != "")
        self.held.pop(call, None)
        self.session.finish(self.now, call, verdict)

    def end(self, error: str) -> None:
        self.ended = error
        self.carry_out(self.session.end())

    def happened(self) -> list[Any]:
        last = self.session.last
        frames = [host.ConnectRequest.FromString(frame) for frame in self.session.take_frames()]
        out = outcome(frames, self.started, closed=last, ended=self.ended)
        if last:
            self.session.closed()
        self.started, self.ended = [], None
        return out


def handle(call: Call) -> Response:  # noqa: C901, PLR0911 (a handler for each name)
    """Does what the name of the hook says, as stage.handler of hostsdk/protocol_test.go."""
    request = Request(
        hook=call.hook.name,
        stage=Stage(call.hook.stage),
        admission=call.review.request,
        configuration=call.hook.configuration,
        round=call.hook.round,
        mode=Mode(call.hook.mode),
        _lifetime=Lifetime(call.deadline),
    )
    match call.hook.name:
        case "allow" | "unready":
            return allow()
        case "deny":
            return deny("no", causes=[Cause("spec.image", "latest")])
        case "deny-at-length":
            return deny("no " * 100)
        case "patch" | "stray-patch" | "initialize":
            return patch(request.raw_object or b"", warnings=[f"patched in round {request.round}"])
        case "name-configuration":
            return allow(audit={"configuration": request.configuration})
        case "name-mode":
            return allow(audit={"mode": f"MODE_{request.mode.name}"})
        case "fail":
            raise RuntimeError("password is hunter2")
        case "fail-in-public":
            raise RuntimeError("wrapped") from HandlerError("registry is down")
        case "panic":
            raise KeyboardInterrupt("password is hunter2")
        case "exit":
            raise SystemExit
        case "wait" | "stubborn":
            raise Hold
        case _:  # say-nothing
            return None  # type: ignore[return-value]


def cancel() -> Response:
    raise asyncio.CancelledError


def expected(entries: list[dict[str, Any]]) -> list[Any]:
    frames = [host.ConnectRequest.FromString(bytes.fromhex(e["frame"])) for e in entries if "frame" in e]
    started = [e["started"] for e in entries if "started" in e]
    ended = next((e["ended"] for e in entries if "ended" in e), None)
    return outcome(frames, started, closed=any("closed" in e for e in entries), ended=ended)


def outcome(frames: list[host.ConnectRequest], started: list[str], *, closed: bool, ended: str | None) -> list[Any]:
    """Is what happened, so that it can be compared: the order of verdicts next to each other is free, and so are their frames."""
    sequence: list[Any] = []
    verdicts: list[str] = []
    for frame in frames:
        if frame.HasField("verdict") or frame.HasField("verdicts"):
            some = [frame.verdict] if frame.HasField("verdict") else frame.verdicts.verdicts
            verdicts.extend(map(str, some))
            continue
        if verdicts:
            sequence.append(sorted(verdicts))
            verdicts = []
        if frame.HasField("hello"):
            frame.hello.sdk = frame.hello.sdk_version = ""
        sequence.append(str(frame))
    if verdicts:
        sequence.append(sorted(verdicts))
    end = None if ended is None else "in error" if ended else "cleanly"
    return [sorted(Counter(started).items()), sequence, ("closed", closed), ("ended", end)]
