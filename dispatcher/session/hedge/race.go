package hedge

import "github.com/portcullis-mesh/portcullis/dispatcher/review"

// race decides which result of up to two attempts is the call's: the first verdict, or, when both have failed, the more
// telling failure. It has no lock and no clock.
type race struct {
	out    int            // attempts without a result
	failed *review.Result // the failure of the attempt that ended
	lost   bool           // a session ended while a handler may have had the call
	over   bool
}

func newRace() race { return race{out: 1} }

// join adds a second attempt. A call that is over needs none, and a call whose session ended does not go to a
// third session.
func (r *race) join() bool {
	if r.over || r.lost {
		return false
	}
	r.out++
	return true
}

// arrive takes the result of an attempt. It returns the result of the call, if that has one now.
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

// withdraw removes the attempt that joined and was never sent. It returns the result of the call, if the other attempt has
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

// mayRetryLost reports whether an attempt that was lost with its session may go to another one: not if that happened
// before, and not while the other attempt is out, which is on another one.
func (r *race) mayRetryLost() bool {
	if r.over || r.lost || r.out > 1 {
		return false
	}
	r.lost = true
	return true
}

// moreTelling ranks failures by their use to an operator: an answer of the host first, then a call that was
// sent, then a call that no replica took.
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
