package stream

import (
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// received takes a frame from the host. It returns an error when the session has to end.
func (s *state) received(now time.Time, in *Incoming) error {
	s.heard = now
	if !s.closing.IsZero() { // whatever it says: nothing is outstanding, and the writer may still be on its way back
		return s.leaving
	}
	for i := range in.answers {
		if err := s.verdict(now, &in.answers[i]); err != nil {
			return err
		}
	}
	if len(in.answers) > 0 {
		return nil
	}
	switch x := in.message.GetFrame().(type) {
	case *hostv1.ConnectRequest_Drain:
		if !s.draining {
			s.draining = true
			s.notStarted(x.Drain.GetLastStartedCallId(), now)
			return nil
		}
	case *hostv1.ConnectRequest_Credit:
		s.credit = min(int(x.Credit.GetMaxOutstanding()), MaxOutstanding)
	case *hostv1.ConnectRequest_Pong:
		if seq := x.Pong.GetSeq(); seq > s.ponged && seq <= s.pings {
			s.ponged = seq
			return nil
		}
	case *hostv1.ConnectRequest_ProbeResult:
		if a, asked := s.probing.answer(now, x.ProbeResult); asked {
			s.probed = append(s.probed, a)
			return nil
		}
	case *hostv1.ConnectRequest_Hello:
		return errSecond
	}
	return s.countViolation(now, 1+in.bytes/MaxControlBytes)
}

// countViolation counts useless frames. A host that sends much of it takes the place of those that work.
func (s *state) countViolation(now time.Time, n int) error {
	if s.violations.add(now, n) > MaxStrays {
		return errStrays
	}
	return nil
}

// decaying is a number that falls by StraysPerSecond.
type decaying struct {
	n  int
	at time.Time
}

// add adds to the rest of the number, and returns it.
func (d *decaying) add(now time.Time, n int) int {
	if fallen := now.Sub(d.at) * StraysPerSecond / time.Second; fallen > 0 {
		d.n, d.at = max(0, d.n-int(fallen)), now
	}
	d.n += n
	return d.n
}

// verdict ends a call. A host that has not had the whole review cannot have judged it.
func (s *state) verdict(now time.Time, v *answer) error {
	f, i := s.calls[v.call], int(v.hook)
	if f == nil && s.crossed > 0 && v.call <= s.lastID {
		s.crossed--
		return nil // the host refuses calls that were on their way when it began to drain
	}
	if f == nil || f.progress < whole || i >= len(f.tickets) || f.tickets[i] == nil {
		return s.countViolation(now, 1+v.bytes/MaxControlBytes)
	}
	t, r := f.tickets[i], v.result
	if s.free(f, i); s.isVacant(t) {
		return nil
	}
	r.Timing.Queued = f.sent.Sub(t.Begun())
	r.Timing.Host, r.Timing.HostQueued = v.host, v.queued
	r.Timing.Wire = max(0, now.Sub(f.sent)-v.host)
	s.finish(t, r)
	return nil
}

// notStarted ends the calls behind the last call that a leaving host has started, and the calls that it does not have whole.
func (s *state) notStarted(last uint64, now time.Time) {
	if s.sending != nil {
		s.send(cancelOf(s.sending.frame.id)) // the host need not wait for the rest
	}
	s.forgetWrites()
	for id, f := range s.calls {
		if id > last || f.progress < whole {
			if f.progress != waiting {
				s.crossed += f.open
			}
			s.drop(f, review.Result{Failure: review.NotStarted(review.FailureRefused, "the host is leaving")}, now)
		}
	}
}

// carried takes note of how many bytes the connection has carried so far. A part of a frame that comes is a sign of life,
// and a part that leaves is progress. Neither is a reason for new calls: a verdict would queue behind that frame.
func (s *state) carried(now time.Time, in, out uint64) {
	if in-s.in >= CarriedBytes {
		s.in, s.coming = in, now
	}
	if out-s.out >= CarriedBytes {
		s.out, s.going = out, now
	}
}
