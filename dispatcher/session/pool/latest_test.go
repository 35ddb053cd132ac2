package pool

import (
	"testing"
	"time"
)

func TestPercentilesAreOfTheLatestCalls(t *testing.T) {
	var l latest
	want := func(p50, p99 time.Duration) {
		t.Helper()
		if a, b := l.percentiles(); a != p50 || b != p99 {
			t.Errorf("%v and %v, want %v and %v", a, b, p50, p99)
		}
	}
	want(0, 0)
	l.record(3 * time.Millisecond)
	want(3*time.Millisecond, 3*time.Millisecond)
	l.record(time.Millisecond)
	want(time.Millisecond, 3*time.Millisecond)
	for i := range LatestCalls { // the first two are forgotten
		l.record(time.Duration(LatestCalls-i) * time.Microsecond)
	}
	want(64*time.Microsecond, 127*time.Microsecond)
	for range LatestCalls {
		l.record(2 * time.Hour) // more than fits
	}
	if p50, _ := l.percentiles(); p50 < time.Hour {
		t.Errorf("the longest call counts as %v", p50)
	}
	l.record(-time.Second)
	want(l.percentiles())
}
