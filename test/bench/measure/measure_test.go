package measure

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	tests := map[string]struct {
		of   []time.Duration
		p    int
		want time.Duration
	}{
		"without values it is zero":                        {p: 50},
		"one value is every percentile":                    {of: []time.Duration{7}, p: 99, want: 7},
		"half of a hundred do not exceed the fiftieth":     {of: hundred, p: 50, want: 50},
		"the 99th of a hundred is not the largest":         {of: hundred, p: 99, want: 99},
		"the whole is the largest":                         {of: hundred, p: 100, want: 100},
		"the 99th of few is the largest":                   {of: []time.Duration{1, 2, 3}, p: 99, want: 3},
		"the median of an even number is the lower middle": {of: []time.Duration{1, 2, 3, 4}, p: 50, want: 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := percentile(tt.of, tt.p); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestASampleIsPerReview(t *testing.T) {
	cost := usage{wall: 2 * time.Second, cpu: 40 * time.Microsecond, allocs: 8, bytes: 400}
	latencies := []time.Duration{3 * time.Microsecond, time.Microsecond, 2 * time.Microsecond, 9 * time.Microsecond}
	got, err := newSample(Load{Rate: 5}, cost, latencies)
	want := Sample{Reviews: 4, Rate: 5, Throughput: 2, P50: 2, P99: 9, Allocs: 2, AllocBytes: 100, CPU: 10}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := newSample(Load{}, cost, nil); err == nil {
		t.Error("a load without a review has a result")
	}
}

func TestAClosedLoadHasAsManyReviewsAtATimeAsCallers(t *testing.T) {
	var now, most atomic.Int32
	gate := make(chan struct{})
	got, err := Run(t.Context(), func(context.Context) error {
		defer now.Add(-1)
		if n := now.Add(1); n == 4 {
			close(gate) // only once: then all are let through
			most.Store(n)
		}
		<-gate
		return nil
	}, Load{Callers: 4, Least: 1})
	if err != nil || got.Reviews != 4 || most.Load() != 4 {
		t.Errorf("%+v, %v, %d at a time", got, err, most.Load())
	}
}

func TestAnOpenLoadSendsAtItsRate(t *testing.T) {
	var calls atomic.Int32
	got, err := Run(t.Context(), func(context.Context) error {
		calls.Add(1)
		return nil
	}, Load{Rate: 1000, Duration: 20 * time.Millisecond, Least: 5})
	if err != nil || got.Reviews != 20 || calls.Load() != 20 {
		t.Errorf("%+v, %v, %d calls", got, err, calls.Load())
	}
}

func TestAnOpenLoadDoesNotWaitForAnswers(t *testing.T) {
	const reviews = 5
	var now atomic.Int32
	gate := make(chan struct{})
	got, err := Run(t.Context(), func(context.Context) error {
		if now.Add(1) == reviews {
			close(gate)
		}
		<-gate
		return nil
	}, Load{Rate: 10_000, Least: reviews})
	if err != nil || got.Reviews != reviews {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestARateThatCannotBeHeldIsAnError(t *testing.T) {
	_, err := Run(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}, Load{Rate: 1e6, Least: 10 * maxInFlight})
	if !errors.Is(err, errOverrun) {
		t.Errorf("got %v", err)
	}
}

func TestAFailedReviewEndsTheLoad(t *testing.T) {
	broken := errors.New("broken")
	for name, load := range map[string]Load{"closed": {Duration: time.Hour}, "open": {Rate: 1000, Duration: time.Hour}} {
		if _, err := Run(t.Context(), func(context.Context) error { return broken }, load); !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheEndOfTheContextEndsTheLoad(t *testing.T) {
	for name, load := range map[string]Load{"closed": {Duration: time.Hour}, "open": {Rate: 1000, Duration: time.Hour}} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Run(ctx, func(context.Context) error {
			cancel()
			return ctx.Err()
		}, load)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASearchEndsWhereMoreCallersDoNotHelp(t *testing.T) {
	// Four at a time are served; more only wait.
	places := make(chan struct{}, 4)
	review := func(context.Context) error {
		places <- struct{}{}
		defer func() { <-places }()
		<-time.After(time.Millisecond)
		return nil
	}
	callers, throughput, err := Search(t.Context(), review, 64, 20*time.Millisecond)
	if err != nil || callers < 2 || callers > 64 || throughput <= 0 {
		t.Errorf("%d callers, %g a second, %v", callers, throughput, err)
	}
	broken := errors.New("broken")
	if _, _, err := Search(t.Context(), func(context.Context) error { return broken }, 64, time.Hour); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestASearchStaysBelowItsBound(t *testing.T) {
	var now, most atomic.Int32
	review := func(context.Context) error {
		defer now.Add(-1)
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		return nil
	}
	if callers, _, err := Search(t.Context(), review, 1, time.Millisecond); err != nil || callers != 1 || most.Load() != 1 {
		t.Errorf("%d callers, %d at a time, %v", callers, most.Load(), err)
	}
}

func TestBusy(t *testing.T) {
	tests := map[string]struct {
		line string
		want time.Duration
	}{
		"nothing is known":                  {},
		"idle and waiting are not busy":     {"cpu 100 0 0 900 50 0 0 0 0 0", time.Second},
		"what others stole is busy":         {"cpu 100 10 20 900 50 5 5 60 0 0", 2 * time.Second},
		"guests are in the time of users":   {"cpu 100 0 0 0 0 0 0 0 80 80", time.Second},
		"an old system says less":           {"cpu 100 0 100 900", 2 * time.Second},
		"what is no number counts for none": {"cpu x 0 100 900", time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := busy(strings.Fields(tt.line)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTheMachineIsNotBusierThanItsProcessors(t *testing.T) {
	m := NewMachine()
	if others := m.Others(); others < 0 {
		t.Errorf("others keep %g processors busy", others)
	}
	if LoadAverage() < 0 {
		t.Error("the load average is negative")
	}
}

func TestAnAlarmWakesAtItsMoment(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, after := range []time.Duration{-time.Second, 0, time.Nanosecond, time.Millisecond, time.Microsecond, 21 * time.Millisecond} {
		due := time.Now().Add(after)
		if err := a.wait(t.Context(), due); err != nil || time.Now().Before(due) {
			t.Errorf("after %s: %v, %s early", after, err, time.Until(due))
		}
	}
	over, end := context.WithCancel(t.Context())
	end()
	if err := a.wait(over, time.Now().Add(time.Hour)); !errors.Is(err, context.Canceled) {
		t.Errorf("without a caller: %v", err)
	}
}
