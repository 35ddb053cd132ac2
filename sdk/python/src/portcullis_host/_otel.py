"""Spans and metrics of handlers, by the API of OpenTelemetry."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from portcullis_host._hooks import Hook
from portcullis_host._session import Call
from portcullis_host._telemetry import Telemetry

SCOPE: Final = "portcullis_host"
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class OpenTelemetry(Telemetry):
    """Makes a span for each call of a handler, and counts calls by hook and outcome.

    Args:
        tracer_provider: None means OpenTelemetry's global one.
        meter_provider: Likewise.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None, meter_provider: metrics.MeterProvider | None) -> None:
        self._tracer: Final = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._calls: Final = meter.create_counter("portcullis.host.calls", unit="{call}", description="Calls of hooks, by outcome.")
        self._duration: Final = meter.create_histogram("portcullis.host.handler.duration", unit="s", description="Time that handlers take.")

    @contextmanager
    def handling(self, hook: Hook, call: Call, queued: float) -> Generator[trace.Span]:
        """Is a child of the call's span in the dispatcher. It begins with the receipt of the call."""
        received = time.time_ns() - (time.monotonic_ns() - call.received)
        span = self._tracer.start_span(f"handle {hook.name}", context=_parent(call), kind=trace.SpanKind.SERVER, start_time=received)
        if span.is_recording():
            span.set_attributes(
                {
                    "portcullis.hook": hook.name,
                    "portcullis.stage": hook.stage.name.lower(),
                    "k8s.cluster.name": call.review.request.cluster,
                    "portcullis.queue.duration": queued,
                    "portcullis.call": call.call_id,
                }
            )
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            yield span

    def judged(self, span: object, *, allowed: bool) -> None:
        """Notes a verdict on a span."""
        if isinstance(span, trace.Span):
            span.set_attribute("portcullis.allowed", allowed)

    def failed(self, span: object, why: str, error: BaseException | None) -> None:
        """Notes on a span that there is no verdict."""
        if not isinstance(span, trace.Span):
            return
        if error is not None:
            span.record_exception(error)
        span.set_status(trace.StatusCode.ERROR, why)

    def finished(self, hook: Hook, outcome: str, seconds: float | None) -> None:
        """Counts a call."""
        attributes = {"portcullis.hook": hook.name, "portcullis.stage": hook.stage.name.lower()}
        self._calls.add(1, {**attributes, "portcullis.outcome": outcome})
        if seconds is not None:
            self._duration.record(seconds, attributes)


def _parent(call: Call) -> Context:
    """Returns the context of the call's span."""
    carrier = {"traceparent": call.traceparent, "tracestate": call.review.tracestate}
    return _PROPAGATOR.extract(carrier, trace.set_span_in_context(trace.INVALID_SPAN))
