package etcdstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAttempts asks members each of which answers after a time, and says what is made of their answers.
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
