"""Limits and intervals that hold for every host. Times are integers in nanoseconds, of a monotonic clock."""

from typing import Final

MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000 * MILLISECOND

PROTOCOL: Final = 1
"""The one version of the protocol that this SDK speaks."""

MAX_HOOKS: Final = 1024
"""Hooks that one host may offer."""

SILENCE: Final = 5 * SECOND
"""A session without a frame ends after this time, until a Welcome says otherwise."""

ALIVE_INTERVAL: Final = 500 * MILLISECOND
"""Frames come for this time without one to go before the host says by itself that it lives."""

CONNECT_TIMEOUT: Final = 10 * SECOND
"""A dial, and then the Welcome, may take this time."""

REFUSAL_TIMEOUT: Final = 1 * SECOND
"""A dispatcher may take this time to refuse the certificate of the host."""

CLOSE_TIMEOUT: Final = 2 * SECOND
"""The end of the stream may take this time once a side has nothing more to say."""

BLOCKED: Final = 1 * SECOND
"""A handler that keeps the event loop from running for longer is logged."""

HANDLER_GRACE: Final = 1 * SECOND
"""Handlers may take this time to return after the end of their session."""

PROBE_TIMEOUT: Final = 5 * SECOND
"""A readiness callback may take this time."""

VERDICT_BYTES: Final = 4 << 20
"""Size of the largest verdict for a dispatcher that names no limit: what gRPC takes by default."""

WIRE_BYTES: Final = 128 << 10
"""Size of the largest frame with reviews of a dispatcher that sends larger ones in chunks."""

MAX_REVIEW_HOOKS: Final = 1 << 16
"""Hooks that one review may ask: more than this a dispatcher has not outstanding on a session."""

MAX_ERROR_BYTES: Final = 1 << 10
"""Size of the longest text of a failure."""

MAX_BATCH: Final = 64
MAX_BATCH_BYTES: Final = 64 << 10
"""Number and size of the verdicts in one frame."""

BATCH_TURNS: Final = 5
"""Turns of the event loop in which further verdicts may join several that wait."""

MAX_EARLY_CANCELS: Final = 1024
"""Cancellations that a session remembers before their reviews, and hooks that they name."""

MAX_PROBES: Final = 16
"""Readiness callbacks that run at a time in a session."""

MAX_HOOK_STATES: Final = 4 * MAX_HOOKS
"""States of hooks, by hook and clusters, that are remembered of a dispatcher."""

MAX_OUTBOX: Final = 1024
"""Verdicts and other frames that wait for the writer of a session before its reader waits too."""

MAX_TARGETS: Final = 64
"""Dispatchers that a host holds sessions to; further peers are ignored."""

RESOLVE_INTERVAL: Final = 5 * SECOND
"""The addresses of the dispatchers are resolved anew after this time."""

PEER_DELAY: Final = 1 * SECOND
"""A peer's own address, found by name resolution, has this time to be dialled first."""

BACKOFF_MIN: Final = 100 * MILLISECOND
BACKOFF_MAX: Final = 5 * SECOND
"""Bounds of the time between two attempts to reach a dispatcher."""

COMPLAINT_INTERVAL: Final = 1 * SECOND
"""The failures of one hook are logged once in this time."""
