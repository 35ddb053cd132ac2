package observe

import (
	"fmt"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// A hook that fails at every request has a line for each kind of failure at a time, and loses no count.
func TestTheLogHasOneLineOfFailuresThatAreAlike(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one, other := match.HookID{Name: "one"}, match.HookID{Name: "other"}
	l := newLogLimit[failureKey]()
	for i, step := range []struct {
		after time.Duration
		failureKey
		want string
	}{
		{0, failureKey{one, review.FailureLost}, "logged"},
		{0, failureKey{one, review.FailureLost}, ""},
		{0, failureKey{one, review.FailureTimeout}, "logged"},
		{0, failureKey{other, review.FailureLost}, "logged"},
		{LogInterval - 1, failureKey{one, review.FailureLost}, ""},
		{1, failureKey{one, review.FailureLost}, "logged, and 2 more"},
		{0, failureKey{one, review.FailureLost}, ""},
		{LogInterval, failureKey{one, review.FailureLost}, "logged, and 1 more"},
		{time.Hour, failureKey{one, review.FailureLost}, "logged"},
	} {
		now = now.Add(step.after)
		got := ""
		if more, ok := l.allow(step.failureKey, now); ok {
			got = "logged"
			if more > 0 {
				got += fmt.Sprintf(", and %d more", more)
			}
		}
		if got != step.want {
			t.Errorf("failure %d: %q, want %q", i, got, step.want)
		}
	}
}

func TestFailuresThatAreOverAreForgotten(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := newLogLimit[failureKey]()
	for i := range 100 * minPrune {
		now = now.Add(LogInterval)
		l.allow(failureKey{match.HookID{Name: fmt.Sprint(i)}, review.FailureLost}, now)
		if n := len(l.last); n > 2*minPrune {
			t.Fatalf("%d kinds of failures are remembered", n)
		}
	}
}
