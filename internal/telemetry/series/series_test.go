package series

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// counted is a set of at most two objects with one counter.
func counted() (*Set[string], *prometheus.CounterVec) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calls_total", Help: "Calls."}, []string{"name"})
	return New(Options[string]{
		Max: 2, Name: "cut", Help: "Cut.", Labels: func(k string) prometheus.Labels { return prometheus.Labels{"name": k} },
		Begin: func(k string) { vec.WithLabelValues(k) }, Vecs: []Vec{vec},
	}), vec
}

func count(s *Set[string], vec *prometheus.CounterVec, name string) {
	if !s.Own(name) {
		name = Other
	}
	vec.WithLabelValues(name).Inc()
}

// expect compares all that the set exports: the gauge and values of calls_total.
func expect(t *testing.T, s *Set[string], cut int, calls ...string) {
	t.Helper()
	want := fmt.Sprintf("# HELP cut Cut.\n# TYPE cut gauge\ncut %d\n", cut)
	if len(calls) > 0 {
		want = "# HELP calls_total Calls.\n# TYPE calls_total counter\n" + strings.Join(calls, "\n") + "\n" + want
	}
	if err := testutil.CollectAndCompare(s, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestSeriesBeginAndEndWithTheirObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vec := counted()
		count(s, vec, "early")
		expect(t, s, 0, `calls_total{name="early"} 1`)
		s.Update([]string{"early", "b", "early", "c", "d"})
		expect(t, s, 2, `calls_total{name="b"} 0`, `calls_total{name="early"} 1`)
		count(s, vec, "c")
		count(s, vec, "d")
		expect(t, s, 2, `calls_total{name="(other)"} 2`, `calls_total{name="b"} 0`, `calls_total{name="early"} 1`)

		s.Update([]string{"d", "c", "b"}) // b was first to have series
		expect(t, s, 1, `calls_total{name="(other)"} 2`, `calls_total{name="b"} 0`, `calls_total{name="d"} 0`)
		vec.WithLabelValues("early").Inc() // by an observation that began before
		expect(t, s, 1, `calls_total{name="(other)"} 2`, `calls_total{name="b"} 0`, `calls_total{name="d"} 0`)
		count(s, vec, "early")
		expect(t, s, 1, `calls_total{name="(other)"} 3`, `calls_total{name="b"} 0`, `calls_total{name="d"} 0`)

		s.Update([]string{"early"})
		s.Update([]string{"early"})
		count(s, vec, "early")
		expect(t, s, 0, `calls_total{name="(other)"} 3`, `calls_total{name="early"} 1`)
		<-time.After(lateObservations + time.Second)
		expect(t, s, 0, `calls_total{name="(other)"} 3`, `calls_total{name="early"} 1`)
		if len(s.left) != 0 {
			t.Errorf("%d objects that left are remembered", len(s.left))
		}
	})
}

func TestASetIsUsedConcurrently(t *testing.T) {
	s, vec := counted()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 100 {
				s.Update([]string{fmt.Sprint(j % 3), fmt.Sprint(i)})
				count(s, vec, fmt.Sprint(j%5))
				testutil.CollectAndCount(s)
			}
		})
	}
	all.Wait()
	s.Update(nil)
	if n := testutil.CollectAndCount(s); n > 2 {
		t.Errorf("%d series are left, want the gauge and %s at most", n, Other)
	}
}
