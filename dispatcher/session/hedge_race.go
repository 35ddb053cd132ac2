package session

import "github.com/portcullis-mesh/portcullis/dispatcher/review"

// race is one call with up to two tickets, and decides which of their results is the call's: the first verdict, or, when
// both have failed, the failure that says more. It has no lock and no clock.
type race struct {
	out    int            // tickets whose results are awaited
	failed *review.Result // of the one that came to nothing
	lost   bool           // a session ended while a handler may have had the call
	over   bool
}

// newRace is a race with one ticket.
func newRace() race { return race{out: 1} }

// join lets a second ticket in. A call that is over needs none, and one that has already been on a session that ended
// is not tried on a third.
func (r *race) join() bool {
	if r.over || r.lost {
		return false
	}
	r.out++
	return true
}

// arrive takes the result of a ticket. It returns the result of the call, if that has one now.
func (r *race) arrive(x review.Result) (end review.Result, ends bool) {
	if r.over {
		return review.Result{}, false
	}
	r.out--
	if x.Verdict == nil {
		r.lost = r.lost || x.Failure.Kind == review.FailureLost && !x.Failure.NotStarted
		if r.failed != nil && moreTelling(r.failed.Failure) >= moreTelling(x.Failure) {
			x = *r.failed
		}
		if r.failed = &x; r.out > 0 {
			return review.Result{}, false
		}
	}
	r.over = true
	return x, true
}

// withdraw takes back the ticket that joined and was never sent. It returns the result of the call, if the other ticket has
// failed meanwhile.
func (r *race) withdraw() (end review.Result, ends bool) {
	if r.over {
		return review.Result{}, false
	}
	r.out--
	if r.out > 0 {
		return review.Result{}, false
	}
	r.over = true
	return *r.failed, true
}

// abort ends the race without a result. It returns false if there was one.
func (r *race) abort() bool {
	if r.over {
		return false
	}
	r.over = true
	return true
}

// noteLost reports whether a ticket that was lost with its session may go to another one: not if that happened before, and
// not while the other ticket is out, which is that other session.
func (r *race) noteLost() bool {
	if r.over || r.lost || r.out > 1 {
		return false
	}
	r.lost = true
	return true
}

// moreTelling sorts failures by what they tell an operator about the hook: most what the host said of the call, then what
// became of it, least that nobody took it.
func moreTelling(f *review.Failure) int {
	switch f.Kind {
	case review.FailureHandler, review.FailurePanic, review.FailureBadAnswer:
		return 3
	case review.FailureTooLarge, review.FailureTimeout, review.FailureLost:
		return 2
	case review.FailureRefused, review.FailureOverload, review.FailureUnavailable:
		return 1
	case review.FailureCancelled:
	}
	return 0
}
