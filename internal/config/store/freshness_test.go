package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

func TestFreshness(t *testing.T) {
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	now, later := []string{"1"}, []string{"2"}
	type shown struct {
		seen  []string
		begun time.Duration
		stale bool
	}
	for name, tc := range map[string]struct {
		shown []shown
		want  time.Duration
	}{
		"a listing that shows it":                    {[]shown{{now, time.Second, false}}, time.Second},
		"one that shows a newer one":                 {[]shown{{later, time.Second, false}}, time.Second},
		"one that shows it, when it was stale":       {[]shown{{now, time.Minute, true}}, time.Minute},
		"one that shows a newer one when it was":     {[]shown{{later, time.Minute, true}}, 0},
		"a newer one for as long as it may":          {[]shown{{later, time.Second, false}, {later, time.Second + MaxCompileTime, false}}, time.Second + MaxCompileTime},
		"a newer one for longer":                     {[]shown{{later, time.Second, false}, {later, 2*time.Second + MaxCompileTime, false}}, time.Second + MaxCompileTime},
		"another newer one does not begin it anew":   {[]shown{{later, time.Second, false}, {[]string{"3"}, 2*time.Second + MaxCompileTime, false}}, time.Second + MaxCompileTime},
		"a newer one, for long, and then it again":   {[]shown{{later, time.Second, false}, {now, time.Hour, false}}, time.Hour},
		"one of an old listing of another source":    {[]shown{{now, 2 * time.Second, false}, {later, time.Second, false}}, 2 * time.Second},
		"stale while a newer one was shown: no more": {[]shown{{later, time.Second, false}, {later, 9 * time.Second, true}}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			f := freshness{seen: now, begun: at(0)}
			for _, x := range tc.shown {
				f.update(x.seen, at(x.begun), at(x.begun), !x.stale)
			}
			if got := f.begun.Sub(at(0)); got != tc.want {
				t.Errorf("fresh since %s, want %s", got, tc.want)
			}
		})
	}
}

// aged is a Cluster document with a maximum age.
func aged(name, age string) string {
	return strings.Replace(clusterDoc(name, "1"), "spec: {", "spec: {maxConfigurationAge: "+age+", ", 1)
}

func TestAClusterMaySayHowOldItsConfigurationMayBe(t *testing.T) {
	m := &memory{name: "m", files: map[string]string{"a.yaml": aged("old", "30s") + aged("young", "2s") + clusterDoc("usual", "1")}}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		mustFresh(t, s)
		m.set(nil, errors.New("gone"))
		at := time.Duration(0)
		for _, step := range []struct {
			at   time.Duration
			want string // who is judged
		}{
			{2 * time.Second, "old young usual"},
			{2*time.Second + 1, "old usual"},
			{5 * time.Second, "old usual"},
			{5*time.Second + 1, "old"},
			{30 * time.Second, "old"},
			{30*time.Second + 1, ""},
		} {
			pass(step.at - at)
			at = step.at
			var judged []string
			for _, cluster := range []string{"old", "young", "usual"} {
				over, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := take(over, s, cluster, 0); err == nil {
					judged = append(judged, cluster)
				}
			}
			if got := strings.Join(judged, " "); got != step.want {
				t.Errorf("after %s judged are %q, want %q", step.at, got, step.want)
			}
			if ready := s.Ready() == nil; ready != (step.want != "") || s.Configuration().Judging != ready {
				t.Errorf("after %s ready is %v", step.at, ready)
			}
		}
		m.set(docs("old"), nil)
		mustFresh(t, s)
		if c := s.Configuration(); c.MaxAge() != 0 {
			t.Errorf("no cluster says an age, and it is %s", c.MaxAge())
		}
	})
}

func TestNothingIsJudgedByWhatIsOlderThanOthersWaitFor(t *testing.T) {
	cover := 10 * time.Second
	m := &memory{name: "m", files: map[string]string{"a.yaml": aged("old", "30s")}}
	opts := Options{Sources: []config.Source{m}, LeaseCoverage: func() time.Duration { return cover }}
	inBubble(t, opts, func(t *testing.T, s *Store) {
		mustFresh(t, s)
		m.set(nil, errors.New("gone"))
		pass(cover)
		if _, err := take(t.Context(), s, "old", 0); err != nil {
			t.Error(err)
		}
		pass(time.Nanosecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := take(ctx, s, "old", 0); !errors.Is(err, ErrStale) || s.Ready() == nil {
			t.Errorf("past what others wait for: %v", err)
		}
		cover = time.Second // of a lease that has just been made anew: the age of all is counted on
		pass(3 * time.Second)
		if s.maxAge(s.current.Load(), "old") != DefaultMaxAge {
			t.Errorf("maximum age %s", s.maxAge(s.current.Load(), "old"))
		}
	})
}
