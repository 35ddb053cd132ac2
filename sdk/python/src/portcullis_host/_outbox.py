"""Frames that are to be sent, in order. Pure."""

from dataclasses import dataclass, field

from portcullis_host._limits import MAX_BATCH, MAX_BATCH_BYTES
from portcullis_host.contract import host

FRAME_OVERHEAD = 16
"""Bounds what a frame holds beside its verdict, in bytes."""


@dataclass(slots=True)
class Outbox:
    """Successive verdicts become one frame if the dispatcher takes batches; no verdict waits for others to come."""

    _batch: int = 0
    """Size of a frame with several verdicts; 0: none."""
    _frames: list[bytes] = field(default_factory=list[bytes])
    _run: list[host.Verdict] = field(default_factory=list[host.Verdict])
    """Verdicts behind the frames."""
    _run_bytes: int = 0
    _waiting: int = 0

    def __len__(self) -> int:
        """Counts each verdict, also of those that share a frame: it bounds what a dispatcher that does not read can make the host keep."""
        return self._waiting

    def allow_batches(self, limit: int) -> None:
        """Allows several verdicts in a frame, of at most limit bytes."""
        self._batch = min(limit, MAX_BATCH_BYTES)

    def add(self, frame: host.ConnectRequest) -> None:
        """Adds a frame."""
        self._seal()
        self._frames.append(frame.SerializeToString())
        self._waiting += 1

    def add_verdict(self, verdict: host.Verdict, size: int) -> None:
        """Adds a verdict, which must not change afterwards, and its encoded size."""
        size += FRAME_OVERHEAD
        if not self._batch or len(self._run) == MAX_BATCH or self._run_bytes + size + FRAME_OVERHEAD > self._batch:
            self._seal()
        self._run.append(verdict)
        self._run_bytes += size
        self._waiting += 1

    def take(self) -> list[bytes]:
        """Empties the outbox and returns its frames, encoded."""
        self._seal()
        frames, self._frames, self._waiting = self._frames, [], 0
        return frames

    def _seal(self) -> None:
        """Makes the run one frame."""
        if not self._run:
            return
        if len(self._run) == 1:
            frame = host.ConnectRequest(verdict=self._run[0])
        else:
            frame = host.ConnectRequest(verdicts=host.Verdicts(verdicts=self._run))
        self._frames.append(frame.SerializeToString())
        self._run, self._run_bytes = [], 0
