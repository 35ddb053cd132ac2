package pool

import (
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// mayRetry reports whether a failed call may go to another replica. The rules:
//
//   - never past its deadline, never once it has its result, and at most [MaxAttempts] times in all;
//   - a call that no handler has seen, because it was never handed over or was refused as not started, may go whatever its side
//     effects;
//   - a call that a handler may have seen may go when its session ended, if the hook has no side effects, and once: a review that
//     ends the session it is delivered on must not end a third. All calls that the session had are under suspicion, and
//     each goes alone;
//   - an answer of a host ends the call, also the answer that its handler failed;
//   - a second ticket of a call never goes again: the first one is still there.
//
// An instance that has not had it is preferred.
func (t *ticket) mayRetry(f *review.Failure, now time.Time) bool {
	if t.ended.Load() || t.call.Mode == review.Hedge || t.attempts >= MaxAttempts || !now.Before(t.call.Deadline) {
		return false
	}
	return f.NotStarted || f.Kind == review.FailureLost && t.call.Hook.WithoutSideEffects(t.request) && t.mayRetryLost()
}

// tried reports whether the process behind a session has had the ticket before.
func (t *ticket) tried(s *stream.Session) bool {
	return t.attempts > 0 && slices.Contains(t.had[:t.attempts], s.Instance())
}

// failedOn records the instance that had the ticket last.
func (t *ticket) failedOn(s *stream.Session) { t.had[t.attempts-1] = s.Instance() }

// mayRetryLost takes note that a session ended that may have been ended by the ticket. It reports whether another one may be
// tried.
func (t *ticket) mayRetryLost() bool {
	if t.hedged != nil {
		return t.hedged.MayRetryLost()
	}
	before := t.lost
	t.lost = true
	return !before
}
