package etcdstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAttempts asks members that answer after a time, and checks the answer that the caller gets.
func TestAttempts(t *testing.T) {
	away, full := status.Error(codes.Unavailable, "away"), errors.New("full")
	type member struct {
		after time.Duration
		err   error
	}
	const never = time.Hour
	for name, tc := range map[string]struct {
		members []member // in the order in which they are asked
		want    error
		after   time.Duration
	}{
		"the first one answers":                {[]member{{100 * time.Millisecond, nil}}, nil, 100 * time.Millisecond},
		"the first one hangs":                  {[]member{{never, nil}, {0, nil}}, nil, attemptAfter},
		"the first one is away":                {[]member{{0, away}, {0, nil}}, nil, attemptAfter},
		"a refusal":                            {[]member{{100 * time.Millisecond, full}}, full, 100 * time.Millisecond},
		"a refusal beside what comes late":     {[]member{{700 * time.Millisecond, nil}, {50 * time.Millisecond, full}}, nil, 700 * time.Millisecond},
		"a refusal, and nothing beside it":     {[]member{{700 * time.Millisecond, away}, {50 * time.Millisecond, full}}, full, 700 * time.Millisecond},
		"all are away":                         {[]member{{0, away}, {0, away}, {0, away}, {0, away}}, away, 3 * attemptAfter},
		"a refusal beside a member that hangs": {[]member{{never, nil}, {0, full}}, full, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				begun, left := time.Now(), make(chan member, len(tc.members))
				for _, m := range tc.members {
					left <- m
				}
				_, err := Attempt(ctx, func(ctx context.Context) (bool, error) {
					m := <-left
					select {
					case <-time.After(m.after):
						return true, m.err
					case <-ctx.Done():
						return false, ctx.Err()
					}
				})
				if !errors.Is(err, tc.want) || time.Since(begun) != tc.after {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(begun), tc.want, tc.after)
				}
			})
		})
	}
}

// TestRetries asks an etcd that has no leader for a while: attempts hang, or members say that they are away.
func TestRetries(t *testing.T) {
	away, full := status.Error(codes.Unavailable, "away"), errors.New("full")
	const election, limit = 5 * time.Second, 9 * time.Second
	for name, tc := range map[string]struct {
		hang         bool
		refusal      error // after the election
		lasts        time.Duration
		want         error
		after, orYet time.Duration
		slow         time.Duration // the time of an answer
		asked        int32         // attempts, if that matters
	}{
		"members hang during an election":     {hang: true, lasts: election, after: election, orYet: election + retryInterval},
		"members are away during an election": {lasts: election, after: election, orYet: election + attemptAfter},
		"a refusal after an election":         {lasts: election, refusal: full, want: full, after: election, orYet: election + attemptAfter},
		"a refusal at once":                   {refusal: full, want: full},
		"members hang for ever":               {hang: true, lasts: time.Hour, want: context.DeadlineExceeded, after: limit, orYet: limit},
		"members are away for ever":           {lasts: time.Hour, want: away, after: limit, orYet: limit + attemptAfter},
		"etcd takes its time":                 {slow: 2 * time.Second, after: 2 * time.Second, orYet: 2 * time.Second, asked: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				begun, asked := time.Now(), atomic.Int32{}
				_, err := Retry(ctx, func(ctx context.Context) (bool, error) {
					asked.Add(1)
					switch {
					case tc.slow > 0:
						select {
						case <-time.After(tc.slow):
							return true, nil
						case <-ctx.Done():
							return false, ctx.Err()
						}
					case time.Since(begun) >= tc.lasts:
						return true, tc.refusal
					case !tc.hang:
						return false, away
					}
					<-ctx.Done() // a member has passed it on to a leader that is gone
					return false, ctx.Err()
				})
				if got := asked.Load(); tc.asked > 0 && got != tc.asked {
					t.Errorf("%d attempts, want %d", got, tc.asked)
				}
				if took := time.Since(begun); !errors.Is(err, tc.want) || took < tc.after || took > tc.orYet {
					t.Errorf("%v after %v, want %v after %v to %v", err, took, tc.want, tc.after, tc.orYet)
				}
			})
		})
	}
}
