package dispatcher

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
	l := newFailureLog()
	for i, step := range []struct {
		after time.Duration
		failures
		want string
	}{
		{0, failures{one, review.FailureLost}, "logged"},
		{0, failures{one, review.FailureLost}, ""},
		{0, failures{one, review.FailureTimeout}, "logged"},
		{0, failures{other, review.FailureLost}, "logged"},
		{FailureLogInterval - 1, failures{one, review.FailureLost}, ""},
		{1, failures{one, review.FailureLost}, "logged, and 2 more"},
		{0, failures{one, review.FailureLost}, ""},
		{FailureLogInterval, failures{one, review.FailureLost}, "logged, and 1 more"},
		{time.Hour, failures{one, review.FailureLost}, "logged"},
	} {
		now = now.Add(step.after)
		got := ""
		if more, ok := l.take(step.failures, now); ok {
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
	l := newFailureLog()
	for i := range 100 * fewFailures {
		now = now.Add(FailureLogInterval)
		l.take(failures{match.HookID{Name: fmt.Sprint(i)}, review.FailureLost}, now)
		if n := len(l.last); n > 2*fewFailures {
			t.Fatalf("%d kinds of failures are remembered", n)
		}
	}
}
