package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// permitFor is a permit that begins now.
func permitFor(life time.Duration) *Permit {
	return &Permit{Given: time.Now(), Until: time.Now().Add(life), Actor: "ann", Reason: "the store burns"}
}

func TestAPermitLetsAnOldConfigurationJudgeUntilItLapses(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		s.Permit(permitFor(2 * time.Hour))
		if stale, err := take(t.Context(), s, "a", 0); stale != "" || err != nil {
			t.Errorf("what is fresh is said to be stale: %q, %v", stale, err)
		}
		m.set(nil, errors.New("gone"))
		pass(time.Hour)
		snapshot, stale, err := s.Acquire(t.Context(), "a", 0)
		if err != nil || snapshot.Revision() != before {
			t.Fatalf("judged by another configuration, or none: %v", err)
		}
		s.Release(snapshot)
		for _, part := range []string{`"age":"1h0m0s"`, `"actor":"ann"`, `"reason":"the store burns"`, `"until":"2000-01-01T02:`} {
			if !strings.Contains(stale, part) {
				t.Errorf("no %s in %s", part, stale)
			}
		}
		if c := s.Configuration(); c.Fresh || !c.Judging || s.Ready() != nil || len(s.Notes()) != 2 {
			t.Errorf("fresh %v, judging %v, ready %v, notes %q", c.Fresh, c.Judging, s.Ready(), s.Notes())
		}
		pass(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := take(ctx, s, "a", 0); !errors.Is(err, ErrStale) || s.Ready() == nil || s.Permitted() != nil {
			t.Errorf("the permit has lapsed: %v", err)
		}
		m.set(docs("b"), nil)
		if mustFresh(t, s) == before {
			t.Error("judged by the old configuration")
		}
	})
}

func TestReviewsThatWaitGoOnWhenThatIsPermitted(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		mustFresh(t, s)
		m.set(nil, errors.New("gone"))
		pass(time.Minute)
		judged := make(chan string, 1)
		go func() {
			stale, err := take(t.Context(), s, "a", 10)
			if err != nil {
				t.Error(err)
			}
			judged <- stale
		}()
		synctest.Wait()
		if metric(t, s, "held_reviews") != 1 || metric(t, s, "held_bytes") != 10 {
			t.Error("it is not held")
		}
		s.Permit(permitFor(time.Hour))
		if stale := <-judged; stale == "" {
			t.Error("it is not said that it was judged by a stale configuration")
		}
		if metric(t, s, "held_reviews") != 0 || metric(t, s, "stale_reviews_total") != 1 || metric(t, s, "stale_permitted_until_timestamp_seconds") == 0 {
			t.Error("the metrics say something else")
		}
		s.Permit(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := take(ctx, s, "a", 0); !errors.Is(err, ErrStale) {
			t.Errorf("the permit is taken back: %v", err)
		}
		if metric(t, s, "refused_total") != 1 {
			t.Error("nobody counted it")
		}
	})
}

func TestAPermitPermitsNothingBeforeTheFirstConfiguration(t *testing.T) {
	inBubble(t, Options{Sources: []config.Source{gone()}}, func(t *testing.T, s *Store) {
		s.Permit(permitFor(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := take(ctx, s, "", 0); !errors.Is(err, ErrStale) || s.Ready() == nil {
			t.Error(err)
		}
	})
}

func TestAPermitIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	good := Permit{Given: now, Until: now.Add(MaxPermit), Actor: "ann", Reason: strings.Repeat("x", MaxPermitReason)}
	if err := good.Validate(now); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Permit){
		"too long":       func(p *Permit) { p.Until = p.Until.Add(1) },
		"no life":        func(p *Permit) { p.Until = now },
		"in the future":  func(p *Permit) { p.Given, p.Until = p.Given.Add(1), p.Until.Add(1) },
		"nobody's":       func(p *Permit) { p.Actor = "" },
		"for no reason":  func(p *Permit) { p.Reason = " " },
		"too many words": func(p *Permit) { p.Reason += "x" },
		"no words":       func(p *Permit) { p.Reason = "\xff" },
	} {
		p := good
		if change(&p); p.Validate(now) == nil {
			t.Errorf("%s is a permit", what)
		}
	}
}

// metric is the sum of the series of a metric of the store.
func metric(t *testing.T, s *Store, name string) (sum float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector())
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "portcullis_configuration_"+name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
