package remote

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
)

// situation is a webhook as checks find it, and the host.
type situation struct {
	mu            sync.Mutex
	gone, unready error
	told          []int
}

func (s *situation) set(gone, unready error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone, s.unready = gone, unready
}

func (s *situation) connect(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

func (s *situation) ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unready
}

// SetMaxOutstanding implements [Capacity].
func (s *situation) SetMaxOutstanding(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, n)
}

// last is the last limit that the host received.
func (s *situation) last() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.told) == 0 {
		return -1
	}
	return s.told[len(s.told)-1]
}

func governor(t *testing.T, s *situation, o GovernorOptions) *Governor {
	t.Helper()
	o.MaxSlots, o.Connect = 64, s.connect
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g, err := NewGovernor(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func call(g *Governor, outcome adapt.Outcome) {
	now := time.Now()
	g.Began()
	g.Ended(adapt.Call{Began: now, Ended: now, Deadline: now.Add(time.Minute), Outcome: outcome})
}

func TestAHostTakesNoCallsWhileItsWebhookIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &situation{gone: errors.New("refused")}
		g := governor(t, s, GovernorOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.AfterFunc(900*time.Millisecond, func() { s.set(nil, nil) })
		began := time.Now()
		if err := g.Await(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("waited %v, %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { g.Run(ctx, s) })
		if s.last() != DefaultSlots || !g.Up() {
			t.Errorf("told %d", s.last())
		}
		call(g, adapt.Overloaded)
		if s.last() != DefaultSlots/2 {
			t.Errorf("told %d after an overload", s.last())
		}
		s.set(errors.New("refused again"), nil)
		call(g, adapt.Unreachable)
		if s.last() != 0 || g.Slots() != 0 || g.Up() {
			t.Errorf("told %d without a webhook", s.last())
		}
		s.set(nil, nil)
		sleep(downInterval)
		if s.last() != DefaultSlots {
			t.Errorf("told %d when it is back", s.last())
		}
		call(g, adapt.Unreachable) // It is back at once: a full backlog, or a restart.
		if s.last() != DefaultSlots/2 {
			t.Errorf("told %d after a connection that failed", s.last())
		}
		cancel()
		running.Wait()
		for _, want := range []string{"error=refused", `error="refused again"`, "the webhook can be called"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, &log)
			}
		}
	})
}

// sleep is of the fake clock.
func sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // of the fake clock
	synctest.Wait()
}

func TestAHostTakesNoCallsWhileItsWebhookIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &situation{}
		g := governor(t, s, GovernorOptions{Slots: 4, Ready: s.ready})
		if err := g.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { g.Run(ctx, s) })
		sleep(time.Minute)
		s.set(nil, errors.New("caches"))
		sleep((maxUnready - 1) * readyInterval)
		if s.last() != 4 {
			t.Errorf("told %d after %d failures", s.last(), maxUnready-1)
		}
		sleep(readyInterval)
		if s.last() != 0 {
			t.Errorf("told %d after %d failures", s.last(), maxUnready)
		}
		s.set(nil, nil)
		sleep(downInterval)
		if s.last() != 4 {
			t.Errorf("told %d when it is ready", s.last())
		}
		cancel()
		running.Wait()
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := governor(t, &situation{gone: errors.New("refused")}, GovernorOptions{})
		stop := errors.New("stop")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, stop)
		defer cancel()
		if err := g.Await(ctx); !errors.Is(err, stop) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestGovernorOptions(t *testing.T) {
	connect := func(context.Context) error { return nil }
	for want, o := range map[string]GovernorOptions{
		"MaxSlots is not positive": {Connect: connect},
		"more than MaxSlots":       {Connect: connect, MaxSlots: 4, Slots: 5},
		"Slow is negative":         {Connect: connect, MaxSlots: 4, Slow: -1},
		"Connect is not set":       {MaxSlots: 4},
	} {
		if _, err := NewGovernor(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	if g, err := NewGovernor(GovernorOptions{Connect: connect, MaxSlots: 4}); err != nil || g.slots.count() != 4 {
		t.Errorf("%v, %v", g, err)
	}
}
