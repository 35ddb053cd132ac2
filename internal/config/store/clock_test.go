package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

func TestTheLongerOfTwoClocksCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		passed interval
		want   time.Duration
	}{
		"both agree":                             {interval{time.Second, time.Second}, time.Second},
		"the machine was suspended":              {interval{time.Second, time.Hour}, time.Hour},
		"the wall clock was set back":            {interval{time.Second, -time.Hour}, time.Second},
		"a moment to come, and no suspension":    {interval{-time.Minute, -time.Minute}, -time.Minute},
		"a moment that came during a suspension": {interval{-time.Minute, time.Minute}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.passed.longer(); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
	if i := elapsed(time.Now(), time.Now().Add(-time.Minute)); i.monotonic > time.Minute || i.monotonic < time.Minute-time.Second ||
		(i.wall-i.monotonic).Abs() > time.Second {
		t.Errorf("a minute ago was %+v ago", i)
	}
}

// A machine is suspended for ten minutes, during which the monotonic clock stands still.
func TestAListingFromBeforeASuspensionIsOldAfterIt(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	var resumed atomic.Pointer[time.Time]
	opts := Options{Sources: []config.Source{m}, clock: func(t time.Time) interval {
		i := elapsedNow(t)
		if r := resumed.Load(); r != nil && t.Before(*r) {
			i.wall += 10 * time.Minute
		}
		return i
	}}
	inBubble(t, opts, func(t *testing.T, s *Store) {
		pass(time.Millisecond)
		if err := s.Ready(); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		resumed.Store(&now)
		if s.Ready() == nil {
			t.Error("ready by a listing of ten minutes ago")
		}
		mustFresh(t, s)
		if e := s.current.Load(); e.begun.Before(now) {
			t.Errorf("a review was judged by a listing that began %s before the resume", now.Sub(e.begun))
		}
	})
}
