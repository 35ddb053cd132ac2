package session

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/hedge"
)

// TestWhatSecondCallsAreWorth compares, in a bubble's own time, the times of calls with and without a second replica: 10,000
// calls, about 1000 in a second, to three replicas. It prints the figures.
func TestWhatSecondCallsAreWorth(t *testing.T) {
	const usual = 5 * time.Millisecond
	healthy := func(*rand.Rand, int) time.Duration { return usual }
	slow := func(_ *rand.Rand, replica int) time.Duration { return usual * time.Duration(1+9*(2/(2+replica))) }
	stalls := func(r *rand.Rand, _ int) time.Duration { return usual * time.Duration(1+9*(r.IntN(50)/49)) }
	on := match.Hedge{Enabled: true}
	base := measured(t, "three healthy replicas", match.Hedge{}, healthy)
	for _, test := range []struct {
		name  string
		takes func(*rand.Rand, int) time.Duration
		most  float64 // p99, as a multiple of that with three healthy replicas
	}{
		{"one of three replicas takes ten times as long", slow, 1.5},
		{"two of a hundred calls take ten times as long, anywhere", stalls, 2.5},
	} {
		measured(t, test.name, match.Hedge{}, test.takes)
		with := measured(t, test.name+", with second calls", on, test.takes)
		if with.extra > hedge.DefaultPercent {
			t.Errorf("%s: %.2f %% extra calls", test.name, with.extra)
		}
		if with.p99 > time.Duration(test.most*float64(base.p99)) {
			t.Errorf("%s: p99 is %s, of healthy replicas %s", test.name, with.p99, base.p99)
		}
	}
}

// figures are the times of calls.
type figures struct {
	p50, p99, p999 time.Duration
	extra          float64 // percent
}

// measured makes 10,000 calls to three replicas.
func measured(t *testing.T, name string, o match.Hedge, takes func(r *rand.Rand, replica int) time.Duration) (f figures) {
	t.Helper()
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		t.Helper()
		m.hedge = o
		m.configure("a")
		var replicas sync.WaitGroup
		for i := range 3 {
			h := m.connect(string('a'+rune(i)), &hostv1.Hello{MaxOutstanding: 1000}, "a")
			r := rand.New(rand.NewPCG(11, uint64(i)))
			replicas.Go(func() { h.serve(func() time.Duration { return takes(r, i) }) })
		}
		const calls = 10_000
		random, took := rand.New(rand.NewPCG(12, 13)), make([]time.Duration, calls)
		var open sync.WaitGroup
		for i := range calls {
			elapse(time.Duration(1 + random.ExpFloat64()*float64(time.Millisecond)))
			open.Add(1)
			begun := time.Now()
			m.router.Start(t.Context(), m.call(), func(_ int, r review.Result) {
				if took[i] = time.Since(begun); r.Failure != nil {
					t.Error(r.Failure)
				}
				open.Done()
			})
		}
		open.Wait()
		slices.Sort(took)
		second := testutil.ToFloat64(m.router.metrics.hedges.Vec.WithLabelValues("won")) + testutil.ToFloat64(m.router.metrics.hedges.Vec.WithLabelValues("lost"))
		f = figures{took[calls/2], took[calls*99/100], took[calls*999/1000], 100 * second / calls}
		t.Logf("%-82s p50 %8s, p99 %8s, p99.9 %8s, extra calls %.2f %%", name, f.p50, f.p99, f.p999, f.extra)
		for _, s := range m.router.all() {
			s.Close(errors.New("the measurement is over"))
		}
		replicas.Wait()
	})
	return f
}

// serve answers every call after a while, or at once when it is cancelled, until the session ends.
func (h *host) serve(takes func() time.Duration) {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	cancelled := map[uint64]chan struct{}{}
	for {
		select {
		case <-h.ctx.Done():
			return
		case f := <-h.out:
			m := decode(h.t, f)
			if c := m.GetCancel(); c != nil && cancelled[c.GetCallId()] != nil {
				close(cancelled[c.GetCallId()])
				delete(cancelled, c.GetCallId())
			}
			if m.GetPing() != nil {
				handlers.Go(func() { h.tell(pong()) })
			}
			r := m.GetReview()
			if r == nil {
				continue
			}
			after, stop := time.After(takes()), make(chan struct{})
			cancelled[r.GetCallId()] = stop
			handlers.Go(func() {
				select {
				case <-after:
					h.tell(allowed(r))
				case <-stop:
					h.tell(say(r, &hostv1.Verdict{Outcome: &hostv1.Verdict_Cancelled{}}))
				case <-h.ctx.Done():
				}
			})
		}
	}
}

// tell sends a frame, unless the session has ended.
func (h *host) tell(f *hostv1.ConnectRequest) {
	select {
	case h.in <- f:
	case <-h.ctx.Done():
	}
}
