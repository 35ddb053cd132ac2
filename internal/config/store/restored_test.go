package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

func TestABadDocumentBeginsWithItsLastGoodVersion(t *testing.T) {
	saved := listingOf("m", map[string]string{"a.yaml": clusterDoc("a", "1") + clusterDoc("b", "1"), "b.yaml": clusterDoc("c", "1"), "gone.yaml": clusterDoc("d", "1")}).Objects
	for i := range saved {
		saved[i].Source, saved[i].Saved = "m", time.Unix(1000, 0)
	}
	for name, tc := range map[string]struct {
		files     map[string]string
		inForce   string
		uncovered string // codes
	}{
		"all good": {
			files:   map[string]string{"a.yaml": clusterDoc("a", "2") + clusterDoc("b", "2"), "b.yaml": clusterDoc("c", "2")},
			inForce: "a=2@m b=2@m c=2@m",
		},
		"a bad field": {
			files:   map[string]string{"a.yaml": badField + clusterDoc("b", "2"), "b.yaml": clusterDoc("c", "2")},
			inForce: "a=1@m b=2@m c=2@m",
		},
		"a bad file": {
			files:   map[string]string{"a.yaml": badSyntax + clusterDoc("b", "2"), "b.yaml": clusterDoc("c", "2")},
			inForce: "a=1@m b=2@m c=2@m",
		},
		"an empty file": {
			files:   map[string]string{"a.yaml": "", "b.yaml": clusterDoc("c", "2")},
			inForce: "a=1@m b=1@m c=2@m",
		},
		"one twice": {
			files:   map[string]string{"a.yaml": clusterDoc("a", "2") + clusterDoc("b", "2"), "b.yaml": clusterDoc("a", "3")},
			inForce: "a=1@m b=2@m",
		},
		"a bad one that was never good": {
			files:     map[string]string{"a.yaml": clusterDoc("a", "2") + strings.ReplaceAll(badField, "name: a", "name: new")},
			inForce:   "a=2@m",
			uncovered: config.CodeField,
		},
		"two bad ones without a name, and one that was good": {
			files:     map[string]string{"a.yaml": badSyntax + badSyntax + clusterDoc("b", "2"), "b.yaml": clusterDoc("c", "2")},
			inForce:   "a=1@m b=2@m c=2@m",
			uncovered: config.CodeSyntax + "," + config.CodeSyntax,
		},
		"two bad ones without a name, and both were good": {
			files:   map[string]string{"a.yaml": badSyntax + badSyntax, "b.yaml": clusterDoc("c", "2")},
			inForce: "a=1@m b=1@m c=2@m",
		},
		"one without a name beside one that is kept for its own error": {
			files:     map[string]string{"a.yaml": badField + badSyntax + clusterDoc("b", "2"), "b.yaml": clusterDoc("c", "2")},
			inForce:   "a=1@m b=2@m c=2@m",
			uncovered: config.CodeSyntax,
		},
		"a bad file that never was": {
			files:     map[string]string{"a.yaml": clusterDoc("a", "2"), "new.yaml": badSyntax},
			inForce:   "a=2@m",
			uncovered: config.CodeSyntax,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{name: "m", files: tc.files}
			inBubble(t, Options{Sources: []config.Source{m}, LastGood: saved}, func(t *testing.T, s *Store) {
				mustFresh(t, s)
				c := s.Configuration()
				if got := inForce(mergedObjects{objects: c.Objects}); got != tc.inForce {
					t.Errorf("in force %s, want %s", got, tc.inForce)
				}
				if got := codes(c.Uncovered()); got != tc.uncovered {
					t.Errorf("uncovered %q", lines(c.Uncovered()))
				}
				for _, o := range c.Restored() {
					if o.Cluster.Metadata.Labels["version"] != "1" {
						t.Errorf("%s was not restored", o.Key)
					}
				}
				if n := strings.Count(tc.inForce, "=1"); len(c.Restored()) != n || len(c.Diverging()) != n ||
					strings.Count(strings.Join(lines(s.Configuration().Problems), "\n"), "saved at 1970-01-01T00:16:40Z: mend the errors") != n {
					t.Errorf("restored are %v; problems %q", c.Restored(), lines(s.Configuration().Problems))
				}
			})
		})
	}
}

func TestAConflictOfRoutesUncoversNothing(t *testing.T) {
	c := Configuration{Problems: config.Problems{
		{Severity: match.SeverityError, Code: match.CodeRouteConflict, Key: config.Key{Kind: "HookRoute", Name: "a"}},
		{Severity: match.SeverityWarning, Code: match.CodeNoHost, Key: config.Key{Kind: "HookRoute", Name: "a"}},
	}}
	if got := c.Uncovered(); len(got) > 0 {
		t.Errorf("uncovered %q", lines(got))
	}
}

// A first configuration that is refused is never judged by, however late it comes, and ends the store.
func TestTheFirstConfigurationIsCheckedHoweverLateItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, refused := &memory{name: "m", err: errors.New("away")}, errors.New("refused")
		told := 0
		s, err := New(Options{
			Sources: []config.Source{m}, OnSnapshot: func(*match.Snapshot) { told++ },
			First: func(c Configuration) error {
				if c.Uncovered().Err() == nil || c.Digest == "" {
					t.Errorf("asked about %v", c)
				}
				return refused
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context()) }()
		pass(time.Hour)
		m.set(map[string]string{"a.yaml": badField}, nil)
		if err := <-ended; !errors.Is(err, refused) {
			t.Errorf("Run: %v", err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{t.Context(), over} { // an error of Run may have ended the context too
			for range 20 {
				if _, err := s.Fresh(ctx); !errors.Is(err, ErrStopped) || told > 0 {
					t.Fatalf("judged by a configuration that was refused: %v, %d snapshots", err, told)
				}
			}
		}
	})
}

func TestOnlyTheFirstConfigurationIsChecked(t *testing.T) {
	m, asked := &memory{name: "m", files: docs("a")}, 0
	inBubble(t, Options{Sources: []config.Source{m}, First: func(Configuration) error { asked++; return nil }}, func(t *testing.T, s *Store) {
		mustFresh(t, s)
		m.set(map[string]string{"a.yaml": badField}, nil)
		pass(time.Minute)
		mustFresh(t, s)
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}
