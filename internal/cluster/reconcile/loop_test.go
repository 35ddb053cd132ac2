package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestALoopReconcilesAtOnceAndForEachReason plays the reasons one after another.
func TestALoopReconcilesAtOnceAndForEachReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, next, wake := "one", make(chan struct{}), make(chan struct{}, 1)
		change := func(to string) { before := next; name, next = to, make(chan struct{}); close(before) }
		var calls, failures atomic.Int64
		var failure error
		lease := NewCandidate("a", FollowLease(), slog.New(slog.DiscardHandler))
		l := &Loop{
			Lease: lease, Configuration: func() (any, <-chan struct{}) { return name, next }, Wake: wake, Failed: func(error) { failures.Add(1) },
			Reconcile: func(context.Context) (time.Duration, error) { calls.Add(1); return time.Minute, failure },
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		for _, step := range []struct {
			name   string
			reason func()
			calls  int64
		}{
			{"the begin", func() {}, 1},
			{"nothing", func() { <-time.After(time.Minute - 1) }, 1},
			{"the time is over", func() { <-time.After(1) }, 2},
			{"the same configuration", func() { change("one") }, 2},
			{"another configuration", func() { change("two") }, 3},
			{"a token", func() { wake <- struct{}{} }, 4},
			{"a gained Lease", func() { lease.set(true) }, 5},
			{"a failure", func() { failure = errors.New("no"); wake <- struct{}{} }, 6},
			{"the same failure", func() { wake <- struct{}{}; <-time.After(wakeInterval) }, 7},
			{"another failure", func() { failure = errors.New("not now"); wake <- struct{}{}; <-time.After(wakeInterval) }, 8},
		} {
			step.reason()
			synctest.Wait()
			if calls := calls.Load(); calls != step.calls {
				t.Errorf("after %s: %d calls, want %d", step.name, calls, step.calls)
			}
		}
		stop()
		<-ended
		if n := failures.Load(); n != 2 {
			t.Errorf("logged %d failures, want 2", n)
		}
	})
}

// TestALoopIsWokenAtOnceAndThenOnceInASecond: a cluster sends changes without an end.
func TestALoopIsWokenAtOnceAndThenOnceInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		var calls atomic.Int64
		l := &Loop{
			Lease: NewCandidate("a", FollowLease(), slog.New(slog.DiscardHandler)), Wake: wake,
			Reconcile: func(context.Context) (time.Duration, error) { calls.Add(1); return time.Hour, nil },
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		synctest.Wait()
		for second := range int64(10) {
			for range 1000 {
				select {
				case wake <- struct{}{}:
				default:
				}
				<-time.After(time.Millisecond)
				synctest.Wait()
				if n := calls.Load(); second == 0 && n < wakeBurst {
					t.Fatalf("%d calls after the first event", n)
				}
			}
			if n, most := calls.Load(), 1+wakeBurst+second+1; n > most || n < most-2 {
				t.Errorf("%d calls after %d s, want at most %d", n, second+1, most)
			}
		}
		stop()
		<-ended
	})
}
