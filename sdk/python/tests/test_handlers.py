"""Handlers, behind the fake dispatcher: frames are real, and the event loop too."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest
from simple import allowing, failing, measuring, naming

from portcullis_host import (
    Cause,
    Denied,
    HandlerError,
    Host,
    HostError,
    Mode,
    Request,
    Response,
    Stage,
    allow,
    change,
    deny,
    labels,
    patch,
)
from portcullis_host.contract import admission, host
from portcullis_host.testing import BlockingDispatcher, FakeDispatcher, create, delete, update

POD = create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}})


def new_host(*, max_outstanding: int = 64, drain_timeout: timedelta = timedelta(seconds=10)) -> Host:
    return Host("test", instance="test-1", zone="z", clusters=["c"], max_outstanding=max_outstanding, drain_timeout=drain_timeout)


async def test_a_host_introduces_itself() -> None:
    h = new_host()
    h.validate("v")(allowing)
    h.mutate("m", speculate=True)(allowing)
    async with FakeDispatcher(h) as dispatcher:
        hello = dispatcher.hello
        await asyncio.wait_for(h.ready(), 10)
        [session] = h.status()
    assert (hello.sdk, hello.sdk_version, hello.host, hello.instance) == ("portcullis-python", "0.1.0", "test", "test-1")
    assert (hello.max_outstanding, hello.max_frame_bytes, hello.zone, list(hello.clusters)) == (64, 16 << 20, "z", ["c"])
    assert [(offer.name, offer.stage, offer.speculate) for offer in hello.hooks] == [("v", 2, False), ("m", 1, True)]
    assert list(hello.capabilities) == ["batches", "chunks"]
    assert (session.dispatcher, session.revision, len(session.hooks), h.is_ready) == ("test", "test", 2, True)
    assert h.status() == ()


async def test_coroutines_and_plain_functions_judge() -> None:
    h = new_host()

    @h.validate("async")
    async def judge(request: Request) -> Response:
        await asyncio.sleep(0)
        return deny(request.namespace)

    @h.validate("plain")
    def judge_plainly(request: Request) -> Response:
        return deny(threading.current_thread().name)

    class Object:
        async def __call__(self, request: Request) -> Response:
            return patch([{"op": "add", "path": "/x", "value": request.name}])

    h.mutate("object")(Object())
    async with FakeDispatcher(h) as dispatcher:
        assert (await dispatcher.review("async", POD)).message == "b"
        assert (await dispatcher.review("plain", POD)).message.startswith("portcullis-handler")
        assert (await dispatcher.review("object", POD)).patch == [{"op": "add", "path": "/x", "value": "a"}]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
@pytest.mark.parametrize(
    ("error", "text", "panicked"),
    [
        (RuntimeError("hunter2"), "handler failed", False),
        (HandlerError("registry is down"), "registry is down", False),
        (asyncio.CancelledError(), "handler failed", False),
        (KeyboardInterrupt(), "handler panicked", True),
        (SystemExit(), "handler ended its goroutine", True),
        (None, "the handler returned neither a response nor an error", False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_handler_raises_is_contained(plain: bool, error: BaseException | None, text: str, panicked: bool) -> None:  # noqa: FBT001
    h = new_host()

    def fail(_: Request) -> Response:
        if error is not None:
            raise error
        return None  # type: ignore[return-value]

    async def fail_later(request: Request) -> Response:
        return fail(request)

    h.validate("fail")(fail if plain else fail_later)
    h.validate("allow")(allowing)
    async with FakeDispatcher(h) as dispatcher:
        verdict = await dispatcher.ask("fail", POD)
        assert (verdict.error.message, verdict.error.panicked) == (text, panicked)
        assert (await dispatcher.review("allow", POD)).allowed


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_handler_raises_a_denial(plain: bool) -> None:  # noqa: FBT001
    h = new_host()

    def judge(request: Request, document: object = None) -> Any:
        assert document is None or request.stage is Stage.INITIALIZE
        raise Denied("no", code=422, causes=[Cause("f", "m")])

    async def judge_late(request: Request, _: object = None) -> Any:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        judge(request)

    h.validate("v")(judge if plain else judge_late)
    h.mutate("m")(judge if plain else judge_late)

    @h.initialize("i")
    def _(document: dict[str, Any], request: Request) -> Any:
        return judge(request, document)

    async with FakeDispatcher(h) as dispatcher:
        for hook in ("v", "m", "i"):
            verdict = await dispatcher.ask(hook, POD, remaining=timedelta(seconds=60 if plain else 0.01))
            status = verdict.response.status
            assert (status.message, status.code, status.details.causes[0].field) == ("no", 422, "f")


async def test_a_request_says_what_its_call_says() -> None:
    h, asked = new_host(), list[Request]()

    @h.mutate("m")
    def keep(request: Request) -> Response:
        asked.append(request)
        return allow()

    call = host.HookCall(
        name="m",
        stage=admission.STAGE_MUTATE,
        configuration="c",
        round=1,
        mode=host.MODE_SHADOW,
        remaining_ms=60_000,
        span_id=bytes.fromhex("33" * 8),
    )
    async with FakeDispatcher(h) as dispatcher:
        _, [verdict] = await dispatcher.post(POD, [call], traceparent=f"00-{'11' * 16}-{'22' * 8}-01")
        assert (await verdict).verdict.response.allowed
    [request] = asked
    assert (request.hook, request.configuration, request.stage, request.round) == ("m", "c", Stage.MUTATE, 1)
    assert (request.mode, request.traceparent) == (Mode.SHADOW, f"00-{'11' * 16}-{'33' * 8}-01")


async def test_failures_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    h = new_host()

    @h.validate("fail")
    async def fail(_: Request) -> Response:
        raise RuntimeError("the cause")

    with caplog.at_level(logging.ERROR, "portcullis_host"):
        async with FakeDispatcher(h) as dispatcher:
            await asyncio.gather(*(dispatcher.ask("fail", POD) for _ in range(20)))
    [record] = caplog.records
    assert "hook=fail" in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "the cause"


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_what_a_denial_lacks_is_logged_once_a_second(plain: bool, caplog: pytest.LogCaptureFixture) -> None:  # noqa: FBT001
    h = new_host()

    def judge(_: Request) -> Response:
        return deny("no", code=200, warnings=[None, "w"])  # type: ignore[list-item]

    async def judge_later(request: Request) -> Response:
        return judge(request)

    h.validate("deny")(judge if plain else judge_later)
    with caplog.at_level(logging.ERROR, "portcullis_host"):
        async with FakeDispatcher(h) as dispatcher:
            for verdict in await asyncio.gather(*(dispatcher.review("deny", POD) for _ in range(20))):
                assert (verdict.allowed, verdict.code, verdict.warnings) == (False, 403, ("w",))
    [record] = caplog.records
    assert record.getMessage().startswith("a part of the verdict cannot be sent (code, warnings): hook=deny stage=validate")


class Refusing(logging.Filter):
    """A filter of a log that has a defect."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError(record.getMessage())


async def test_a_log_that_fails_costs_no_denial() -> None:
    log = logging.getLogger("defect")
    log.addFilter(Refusing())
    h = Host("test", logger=log)

    @h.validate("deny")
    async def judge(_: Request) -> Response:
        return deny("no", code=200)

    async with FakeDispatcher(h) as dispatcher:
        assert (await dispatcher.review("deny", POD)).message == "no"


async def test_a_coroutine_is_cancelled_by_the_dispatcher() -> None:
    h, began = new_host(), asyncio.Event()

    @h.validate("wait")
    async def wait(_: Request) -> Response:
        began.set()
        await asyncio.Event().wait()
        return allow()

    async with FakeDispatcher(h) as dispatcher:
        call = host.HookCall(name="wait", stage=admission.STAGE_VALIDATE, remaining_ms=60_000)
        call_id, [verdict] = await dispatcher.post(POD, [call])
        await began.wait()
        await dispatcher.send(cancel=host.Cancel(call_id=call_id))
        assert (await verdict).verdict.HasField("cancelled")


async def test_the_children_of_a_coroutine_are_cancelled_at_the_deadline() -> None:
    h, ended = new_host(), asyncio.Event()

    async def look_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @h.validate("wait")
    async def wait(_: Request) -> Response:
        async with asyncio.TaskGroup() as group:
            group.create_task(look_up())
        return allow()

    async with FakeDispatcher(h) as dispatcher:
        verdict = await dispatcher.ask("wait", POD, remaining=timedelta(milliseconds=30))
        assert verdict.HasField("cancelled")
        assert verdict.handle_us >= 20_000
    assert ended.is_set()


async def test_a_plain_function_is_told_that_its_call_is_over() -> None:
    h, began = new_host(), threading.Event()

    @h.validate("wait")
    def wait(request: Request) -> Response:
        began.set()
        assert request.wait_cancelled(timedelta(seconds=60))
        assert request.cancelled
        raise TimeoutError

    async with FakeDispatcher(h) as dispatcher:
        assert (await dispatcher.ask("wait", POD, remaining=timedelta(milliseconds=30))).HasField("cancelled")
        began.clear()
        call = host.HookCall(name="wait", stage=admission.STAGE_VALIDATE, remaining_ms=60_000)
        call_id, [verdict] = await dispatcher.post(POD, [call])
        await asyncio.to_thread(began.wait)
        await dispatcher.send(cancel=host.Cancel(call_id=call_id))
        ended = (await verdict).verdict
        assert ended.HasField("cancelled")
        assert ended.handle_us < 30_000_000


async def test_a_response_counts_also_after_the_end_of_the_call() -> None:
    h = new_host()

    @h.validate("stubborn")
    async def stubborn(_: Request) -> Response:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return deny("late")

    async with FakeDispatcher(h) as dispatcher:
        assert (await dispatcher.ask("stubborn", POD, remaining=timedelta(milliseconds=10))).response.status.message == "late"


async def test_calls_wait_for_a_slot_and_end_there() -> None:
    h, release = new_host(max_outstanding=1), asyncio.Event()

    @h.validate("wait")
    async def wait(_: Request) -> Response:
        await release.wait()
        return allow()

    one, two = FakeDispatcher(h), FakeDispatcher(h)
    async with one as dispatcher:
        with pytest.raises(HostError, match="twice"):
            async with two:
                pass
        # A share is 1 at least, so that sessions may take more than the host has slots. One session shows it by a raised credit.
        call = host.HookCall(name="wait", stage=admission.STAGE_VALIDATE, remaining_ms=60_000)
        _, [first] = await dispatcher.post(POD, [call])
        _, [second] = await dispatcher.post(POD, [call])
        assert (await second).verdict.refused.reason == "overloaded"
        release.set()
        assert (await first).verdict.response.allowed


async def test_pings_are_answered_while_every_thread_is_busy() -> None:
    h, release = new_host(max_outstanding=2), threading.Event()

    @h.validate("block")
    def block(_: Request) -> Response:
        release.wait()
        return allow()

    async with FakeDispatcher(h) as dispatcher:
        call = host.HookCall(name="block", stage=admission.STAGE_VALIDATE, remaining_ms=60_000)
        _, verdicts = await dispatcher.post(POD, [call, call])
        assert await dispatcher.ping() < timedelta(seconds=5)
        assert not any(verdict.done() for verdict in verdicts)
        release.set()
        assert all([(await verdict).verdict.response.allowed for verdict in verdicts])


async def test_a_context_variable_reaches_plain_functions() -> None:
    h, variable = new_host(), ContextVar("variable", default="unset")

    @h.validate("plain")
    def plain(_: Request) -> Response:
        return deny(variable.get())

    variable.set("of the caller")
    async with FakeDispatcher(h) as dispatcher:
        assert (await dispatcher.review("plain", POD)).message == "of the caller"


async def test_large_reviews_come_in_chunks() -> None:
    h = new_host()
    h.validate("size")(measuring)
    large = create({"kind": "ConfigMap", "data": {"x": "y" * 700_000}})
    async with FakeDispatcher(h) as dispatcher:
        verdicts = await asyncio.gather(*(dispatcher.review("size", large) for _ in range(3)))
    assert [verdict.message for verdict in verdicts] == [str(len(large.object.raw))] * 3


async def test_readiness_is_the_callbacks() -> None:
    h = new_host()
    problems: list[BaseException] = [HandlerError("cache is empty"), RuntimeError("hunter2"), KeyboardInterrupt()]

    async def ready() -> None:
        if problems:
            raise problems.pop(0)

    def ready_plainly() -> None:
        raise HandlerError("not yet")

    h.validate("v", ready=ready)(allowing)
    h.validate("plain", ready=ready_plainly)(allowing)
    h.validate("w")(allowing)
    async with FakeDispatcher(h) as dispatcher:
        results = [await dispatcher.probe(hook) for hook in ("v", "v", "v", "v", "plain", "w")]
    assert [result.message for result in results] == ["cache is empty", "the hook is not ready", "the hook is not ready", "", "not yet", ""]
    assert [result.ready for result in results] == [False, False, False, True, False, True]


async def test_a_stop_lets_calls_finish() -> None:
    h, began, release = new_host(), asyncio.Event(), asyncio.Event()

    @h.validate("wait")
    async def wait(_: Request) -> Response:
        began.set()
        await release.wait()
        return allow()

    async with FakeDispatcher(h) as dispatcher:
        asked = asyncio.create_task(dispatcher.review("wait", POD))
        await began.wait()
        h.stop()
        drain = await dispatcher.until(lambda session: session.drain)
        assert drain is not None
        assert drain.last_started_call_id == 1
        assert (await dispatcher.ask("wait", POD)).refused.reason == "draining"
        release.set()
        assert (await asked).allowed
        await asyncio.wait_for(dispatcher.closed.wait(), 10)


async def test_calls_that_do_not_finish_are_cut_off() -> None:
    h, began, cancelled = new_host(drain_timeout=timedelta(milliseconds=20)), asyncio.Event(), asyncio.Event()

    @h.validate("wait")
    async def wait(_: Request) -> Response:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return allow()

    fake = FakeDispatcher(h)
    dispatcher = await fake.__aenter__()
    asked = asyncio.create_task(dispatcher.ask("wait", POD))
    await began.wait()
    with pytest.raises(AssertionError, match="still running"):
        await fake.__aexit__(None, None, None)
    with pytest.raises(RuntimeError):
        await asked
    assert cancelled.is_set()


async def test_a_host_without_hooks_cannot_serve() -> None:
    with pytest.raises(HostError, match="no hooks"):
        async with FakeDispatcher(new_host()):
            pass


def test_registrations_at_fault() -> None:
    h = new_host()
    v = h.validate("v", ready=lambda: None)
    v(allowing)
    h.mutate("v")(allowing)
    for name, why in (("v", "twice"), ("", "empty"), ("\ud800", "Unicode")):
        with pytest.raises(HostError, match=why):
            h.validate(name)
    with pytest.raises(HostError, match="two"):
        h.initialize("v", ready=lambda: None)
    with pytest.raises(HostError, match=r"registered twice to validate$"):
        v(allowing)


async def test_a_hook_has_a_handler() -> None:
    h = new_host()
    h.validate("v")
    with pytest.raises(HostError, match="'v' has no handler"):
        async with FakeDispatcher(h):
            pass


async def test_no_hook_is_registered_after_the_start() -> None:
    h = new_host()
    h.validate("v")(allowing)
    async with FakeDispatcher(h):
        with pytest.raises(HostError, match="after the host had started"):
            h.validate("w")


async def test_each_operation_has_its_own_handler() -> None:
    h = new_host()
    hook = h.mutate("m")

    @hook.create
    async def created(pod: dict[str, Any], request: Request) -> Response:
        labels(pod)["team"] = request.namespace
        return change(request)

    @hook.update
    def updated(pod: dict[str, Any], old: dict[str, Any], _: Request) -> Response:
        return deny(f"{old['metadata']['name']} to {pod['metadata']['name']}")

    @hook.delete
    async def deleted(old: dict[str, Any], _: Request) -> Response:
        raise Denied(old["metadata"]["name"])

    with pytest.raises(HostError, match="registered twice to mutate CREATE"):
        hook.create(created)
    creations, updates = h.validate("creations"), h.validate("updates")
    creations.create(deleted)
    updates.update(updated)
    pod, old = {"metadata": {"name": "a", "namespace": "b"}}, {"metadata": {"name": "o"}}
    async with FakeDispatcher(h) as dispatcher:
        assert (await dispatcher.review("m", create(pod))).patch == [{"op": "add", "path": "/metadata/labels", "value": {"team": "b"}}]
        assert (await dispatcher.review("m", update(old, pod))).message == "o to a"
        assert (await dispatcher.review("m", delete(old))).message == "o"
        missing = await dispatcher.ask("m", admission.AdmissionRequest(operation="UPDATE", object=admission.Object(raw=b"{}")))
        assert missing.error.message == "the request has no old object"
        assert (await dispatcher.review("creations", delete(old))).allowed
        assert not (await dispatcher.review("creations", create(old))).allowed
        assert (await dispatcher.review("updates", create(pod))).allowed
        assert (await dispatcher.review("updates", delete(old))).allowed
        assert not (await dispatcher.review("updates", update(old, pod))).allowed


async def test_an_own_handler_goes_before_that_of_all_operations() -> None:
    h = new_host()
    hook = h.validate("v")
    hook(naming)

    @hook.delete
    def _(old: dict[str, Any], _: Request) -> Response:
        return deny(f"deleted {old['metadata']['name']}")

    async with FakeDispatcher(h) as dispatcher:
        assert (await dispatcher.review("v", POD)).message == "a"
        assert (await dispatcher.review("v", delete({"metadata": {"name": "o"}}))).message == "deleted o"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": ""}, "name is empty"),
        ({"name": "\ud800"}, "Unicode"),
        ({"name": "n", "dispatchers": ["mesh"]}, "host:port"),
        ({"name": "n", "dispatchers": "mesh:1"}, "dispatchers is a text"),
        ({"name": "n", "clusters": "prod"}, "clusters is a text"),
        ({"name": "n", "max_outstanding": 0}, "max_outstanding is 0"),
        ({"name": "n", "max_frame_bytes": 1 << 31}, "max_frame_bytes is"),
        ({"name": "n", "drain_timeout": timedelta()}, "drain timeout"),
    ],
)
def test_options_at_fault(options: dict[str, object], why: str) -> None:
    with pytest.raises(HostError, match=why):
        Host(**options)  # type: ignore[arg-type]


def test_a_test_without_an_event_loop(portcullis_dispatcher: Callable[[Host], BlockingDispatcher]) -> None:
    h = new_host()
    h.validate("v")(naming)
    dispatcher = portcullis_dispatcher(h)
    assert dispatcher.review("v", POD).message == "a"
    assert dispatcher.ask("v", POD).HasField("response")
    assert dispatcher.probe("v").ready
    assert dispatcher.hello.host == "test"
    with pytest.raises(LookupError, match="the host has v"):
        dispatcher.review("w", POD)
    with pytest.raises(TypeError, match="make one of the object by create"):
        dispatcher.review("v", {"kind": "Pod"})  # type: ignore[arg-type]
    h2 = new_host()
    h2.validate("fail")(failing)
    with pytest.raises(AssertionError, match="no verdict"):
        portcullis_dispatcher(h2).review("fail", POD)


def test_a_host_that_cannot_serve_ends_the_blocking_test_too(portcullis_dispatcher: Callable[[Host], BlockingDispatcher]) -> None:
    with pytest.raises(HostError, match="no hooks"):
        portcullis_dispatcher(new_host())
