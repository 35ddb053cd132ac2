package session

import (
	"errors"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// received takes a frame from the host. It returns an error when the session has to end.
func (s *state) received(now time.Time, in *hostv1.ConnectRequest) error {
	s.heard = now
	switch x := in.GetFrame().(type) {
	case *hostv1.ConnectRequest_Verdict:
		return s.verdict(now, x.Verdict)
	case *hostv1.ConnectRequest_Drain:
		s.draining = true
		s.notStarted(x.Drain.GetLastStartedCallId())
		return nil
	case *hostv1.ConnectRequest_Credit:
		s.credit = min(int(x.Credit.GetMaxOutstanding()), MaxOutstanding)
		return nil
	case *hostv1.ConnectRequest_Pong:
		return nil
	case *hostv1.ConnectRequest_Hello:
		return errSecond
	}
	return s.stray()
}

// stray counts a frame without meaning.
func (s *state) stray() error {
	s.strays++
	if s.strays > MaxStrays {
		return errStrays
	}
	return nil
}

// verdict ends a pair. Who has not had the whole review cannot have judged it.
func (s *state) verdict(now time.Time, v *hostv1.Verdict) error {
	f, i := s.calls[v.GetCallId()], int(v.GetHookIndex())
	if f == nil && s.draining && v.GetCallId() <= s.lastID {
		return nil // the host refuses what was on its way when it said that it leaves
	}
	if f == nil || f.progress < whole || i >= len(f.tickets) || f.tickets[i] == nil {
		return s.stray()
	}
	t := f.tickets[i]
	s.free(f, i)
	if t == s.nobody {
		return nil
	}
	r := resultOf(v)
	r.Timing.Queued = f.sent.Sub(t.begun)
	r.Timing.Host = (time.Duration(v.GetQueueUs()) + time.Duration(v.GetHandleUs())) * time.Microsecond
	r.Timing.Wire = max(0, now.Sub(f.sent)-r.Timing.Host)
	s.finish(t, r)
	return nil
}

// resultOf is a verdict as the result of a call.
func resultOf(v *hostv1.Verdict) review.Result {
	switch x := v.GetOutcome().(type) {
	case *hostv1.Verdict_Response:
		if x.Response != nil {
			return review.Result{Verdict: x.Response}
		}
	case *hostv1.Verdict_Error:
		if x.Error.GetPanicked() {
			return review.Fail(review.FailurePanic, "the handler panicked")
		}
		return review.Fail(review.FailureHandler, "%s", orElse(x.Error.GetMessage(), "the handler failed"))
	case *hostv1.Verdict_Cancelled:
		return review.Fail(review.FailureTimeout, "the handler stopped without a verdict")
	case *hostv1.Verdict_Refused:
		return review.Result{Failure: notStarted(
			review.FailureRefused, "the host refused: "+orElse(x.Refused.GetReason(), "no reason"))}
	}
	return review.Fail(review.FailureBadAnswer, "a verdict without an outcome")
}

// orElse is text, or another one if it is empty.
func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// notStarted is the failure of a call that no handler has seen.
func notStarted(kind review.FailureKind, why string) *review.Failure {
	return &review.Failure{Kind: kind, Err: errors.New(why), NotStarted: true}
}

// notStarted ends the calls behind the last one that a leaving host has started, and those that it does not have whole.
func (s *state) notStarted(last uint64) {
	if s.sending != nil {
		s.send(cancelOf(s.sending.frame.id)) // the host need not wait for the rest
	}
	s.forgetWrites()
	for id, f := range s.calls {
		if id > last || f.progress < whole {
			s.drop(f, review.Result{Failure: notStarted(review.FailureRefused, "the host is leaving")})
		}
	}
}
