"""What is told of handlers: nothing, unless OpenTelemetry's API is installed."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from portcullis_host._hooks import Hook
from portcullis_host._session import Call

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


class Telemetry:
    """Tells nothing. Its methods are called in any thread."""

    def handling(self, hook: Hook, call: Call, queued: float) -> AbstractContextManager[object]:  # noqa: ARG002
        """Is the span of a handler, the current one meanwhile. The call waited for it in the host for some seconds."""
        return nullcontext()

    def judged(self, span: object, *, allowed: bool) -> None:
        """Notes a verdict on a span."""

    def failed(self, span: object, why: str, error: BaseException | None) -> None:
        """Notes on a span that there is no verdict."""

    def finished(self, hook: Hook, outcome: str, seconds: float | None) -> None:
        """Counts a call; seconds is the time of its handler, None if it was never started."""


def telemetry(tracer_provider: "TracerProvider | None", meter_provider: "MeterProvider | None") -> Telemetry:
    """Returns what the packages that are installed allow; None means OpenTelemetry's global provider."""
    try:
        from portcullis_host._otel import OpenTelemetry  # noqa: PLC0415 (it fails without the package)
    except ImportError:
        return Telemetry()
    return OpenTelemetry(tracer_provider, meter_provider)
