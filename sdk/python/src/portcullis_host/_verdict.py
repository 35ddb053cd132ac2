"""Makes the verdicts of calls. Pure."""

from portcullis_host._limits import MAX_ERROR_BYTES
from portcullis_host._outbox import FRAME_OVERHEAD
from portcullis_host.contract import admission, host

CUT_OFF = " ... (cut)"


def valid(text: str) -> str:
    """Makes text fit for a protobuf string: one lone surrogate would fail the frame, and with it other calls."""
    return text.encode("utf-8", "replace").decode()


def shorten(text: str, limit: int) -> str:
    """Cuts text to at most limit bytes of UTF-8, between characters."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    cut = limit - len(CUT_OFF)
    return encoded[:cut].decode("utf-8", "ignore") + CUT_OFF if cut > 0 else ""


def failure(message: str, *, panicked: bool = False) -> host.Verdict:
    """Is the verdict of a call whose handler gave none."""
    return host.Verdict(error=host.HandlerError(message=shorten(message, MAX_ERROR_BYTES), panicked=panicked))


def refused(reason: str) -> host.Verdict:
    """Is the verdict of a call whose handler was never started."""
    return host.Verdict(refused=host.Refused(reason=reason))


def cancelled() -> host.Verdict:
    """Is the verdict of a call whose handler stopped as asked."""
    return host.Verdict(cancelled=host.Cancelled())


def fit(verdict: host.Verdict, limit: int) -> host.Verdict:
    """Makes a verdict small enough for a dispatcher that takes frames of limit bytes.

    A denial stays a denial: it loses all but its code and message, then the end of the message. Any other verdict becomes a failure.
    """
    size = verdict.ByteSize() + FRAME_OVERHEAD
    if size <= limit:
        return verdict
    if verdict.WhichOneof("outcome") != "response" or verdict.response.allowed:
        small = failure(f"a verdict of {size} bytes is larger than the {limit} that the dispatcher takes")
        _of_same_call(small, verdict)
        return small
    status = admission.Status(status="Failure", code=verdict.response.status.code)
    small = host.Verdict(response=admission.AdmissionResponse(status=status))
    _of_same_call(small, verdict)
    # The lengths of the nested messages grow with the text.
    remaining = limit - small.ByteSize() - 2 * FRAME_OVERHEAD
    small.response.status.message = shorten(verdict.response.status.message, remaining)
    return small


def _of_same_call(small: host.Verdict, verdict: host.Verdict) -> None:
    small.call_id, small.hook_index = verdict.call_id, verdict.hook_index
    small.queue_us, small.handle_us = verdict.queue_us, verdict.handle_us
