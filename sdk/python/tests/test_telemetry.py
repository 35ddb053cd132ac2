"""Spans and metrics of handlers."""

import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from simple import allowing, denying, exiting, failing

from portcullis_host import Host, Request, Response, deny
from portcullis_host._telemetry import Telemetry, telemetry
from portcullis_host.testing import FakeDispatcher, create

TRACE, PARENT, CALL = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
@pytest.mark.parametrize(("span_id", "parent"), [(CALL, CALL), ("", PARENT), ("00" * 8, PARENT)])
async def test_the_span_of_a_handler_is_a_child_of_the_call(plain: bool, span_id: str, parent: str) -> None:  # noqa: FBT001
    exporter, seen = InMemorySpanExporter(), list[str]()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    h = Host("test", tracer_provider=provider)

    def judge(_: Request) -> Response:
        seen.append(trace.format_span_id(trace.get_current_span().get_span_context().span_id))
        return deny("no")

    async def judge_later(request: Request) -> Response:
        return judge(request)

    h.validate("h")(judge if plain else judge_later)
    async with FakeDispatcher(h) as dispatcher:
        await dispatcher.ask("h", create({}), traceparent=TRACEPARENT, span_id=bytes.fromhex(span_id))
    [span] = exporter.get_finished_spans()
    assert span.name == "handle h"
    assert span.parent is not None
    assert trace.format_trace_id(span.parent.trace_id) == TRACE
    assert trace.format_span_id(span.parent.span_id) == parent
    assert span.context is not None
    assert seen == [trace.format_span_id(span.context.span_id)]
    assert span.attributes is not None
    assert span.attributes["portcullis.allowed"] is False


async def test_a_call_in_no_trace_begins_one() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    h = Host("test", tracer_provider=provider)
    h.validate("h")(failing)
    with provider.get_tracer("t").start_as_current_span("of the test"):
        async with FakeDispatcher(h) as dispatcher:
            await dispatcher.ask("h", create({}))
    span = exporter.get_finished_spans()[0]
    assert span.parent is None
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "handler failed"
    assert [event.name for event in span.events] == ["exception"]


async def test_calls_are_counted_by_hook_and_outcome() -> None:
    reader = InMemoryMetricReader()
    h = Host("test", meter_provider=MeterProvider([reader]))
    h.validate("allow")(allowing)
    h.validate("deny")(denying)
    h.validate("fail")(failing)
    h.validate("exit")(exiting)
    async with FakeDispatcher(h) as dispatcher:
        for hook in ("allow", "deny", "fail", "deny", "exit"):
            await dispatcher.ask(hook, create({}))
    points = metrics(reader)
    calls = {(p.attributes["portcullis.hook"], p.attributes["portcullis.outcome"]): p.value for p in points["portcullis.host.calls"]}
    assert calls == {("allow", "allowed"): 1, ("deny", "denied"): 2, ("fail", "failed"): 1, ("exit", "panicked"): 1}
    assert sum(p.count for p in points["portcullis.host.handler.duration"]) == 5


def metrics(reader: InMemoryMetricReader) -> dict[str, Any]:
    data: Any = reader.get_metrics_data()
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_opentelemetry_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")] + ["opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "portcullis_host._otel")
    assert type(telemetry(None, None)) is Telemetry
