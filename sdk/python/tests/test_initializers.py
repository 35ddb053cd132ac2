"""Initializers, behind the fake dispatcher."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from portcullis_host import Cause, HandlerError, Host, HostError, Initialized, Request, Stage, deny, difference
from portcullis_host.contract import admission, host
from portcullis_host.testing import FakeDispatcher, create, delete

POD = create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}, "spec": {"later": 1}})


async def test_coroutines_and_plain_functions_initialize() -> None:
    h = Host("test")

    @h.initialize("async")
    async def label(pod: dict[str, Any], request: Request) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        pod["metadata"]["labels"] = {"team": request.namespace}
        return pod

    @h.initialize("plain")
    def name_thread(pod: dict[str, Any], request: Request) -> Mapping[str, Any]:
        assert request.stage is Stage.INITIALIZE
        return {**pod, "thread": threading.current_thread().name[:18]}

    class Object:
        async def __call__(self, pod: dict[str, Any], _: Request) -> Mapping[str, Any]:
            return pod

    h.initialize("object")(Object())
    async with FakeDispatcher(h) as dispatcher:
        assert [(offer.name, offer.stage) for offer in dispatcher.hello.hooks] == [("async", 5), ("plain", 5), ("object", 5)]
        assert (await dispatcher.probe("plain")).ready
        assert (await dispatcher.review("async", POD)).patch == [{"op": "add", "path": "/metadata/labels", "value": {"team": "b"}}]
        assert (await dispatcher.review("plain", POD)).patch == [{"op": "add", "path": "/thread", "value": "portcullis-handler"}]
        unchanged = await dispatcher.review("object", POD)
        assert (unchanged.allowed, unchanged.patch) == (True, [])


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_an_initializer_refuses_by_a_denial(plain: bool) -> None:  # noqa: FBT001
    h = Host("test")

    def refuse(pod: dict[str, Any], _: Request) -> Initialized:
        pod.clear()
        return deny("no", code=422, reason="Invalid", causes=[Cause("spec", "bad")])

    async def refuse_later(pod: dict[str, Any], request: Request) -> Initialized:
        return refuse(pod, request)

    h.initialize("refuse")(refuse if plain else refuse_later)
    async with FakeDispatcher(h) as dispatcher:
        verdict = await dispatcher.review("refuse", POD)
    assert not verdict.allowed
    assert (verdict.message, verdict.code, verdict.reason) == ("no", 422, "Invalid")
    assert verdict.causes[0].field == "spec"
    assert verdict.patch == []


async def test_a_model_of_ones_own_returns_the_difference() -> None:
    h = Host("test")

    @h.initialize("model")
    async def model(_: dict[str, Any], request: Request) -> Initialized:
        return difference(request, {"metadata": {"name": "z"}}, before={"metadata": {"name": "a"}})

    async with FakeDispatcher(h) as dispatcher:
        assert (await dispatcher.review("model", POD)).patch == [{"op": "replace", "path": "/metadata/name", "value": "z"}]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "the initializer returned no object"),
        ([], "the initializer returned a list: want the object, or deny(...)"),
        (HandlerError("registry is down"), "registry is down"),
        (RuntimeError("hunter2"), "handler failed"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_is_no_object_is_a_failure(result: object, text: str) -> None:
    h = Host("test")

    @h.initialize("fail")
    async def fail(_: dict[str, Any], __: Request) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    async with FakeDispatcher(h) as dispatcher:
        assert (await dispatcher.ask("fail", POD)).error.message == text


async def test_an_initializer_is_not_called_without_an_object() -> None:
    h, called = Host("test"), False

    @h.initialize("i")
    def initialize(pod: dict[str, Any], _: Request) -> Initialized:
        nonlocal called
        called = True
        return pod

    async with FakeDispatcher(h) as dispatcher:
        verdict = await dispatcher.ask("i", delete({"kind": "Pod"}))
    assert verdict.error.message == "the request has no object"
    assert not called


async def test_a_stage_that_is_not_offered_is_refused() -> None:
    h = Host("test")

    def same(pod: dict[str, Any], _: Request) -> Initialized:
        return pod

    h.initialize("i")(same)
    with pytest.raises(HostError, match="registered twice to initialize"):
        h.initialize("i")(same)
    async with FakeDispatcher(h) as dispatcher:
        stages = [admission.Stage.ValueType(stage) for stage in (0, 1, 2, 4, 77, -1)]
        calls = [host.HookCall(name="i", stage=stage, remaining_ms=60_000) for stage in stages]
        _, verdicts = await dispatcher.post(POD, calls)
        assert {(await verdict).verdict.refused.reason for verdict in verdicts} == {"unknown hook"}
