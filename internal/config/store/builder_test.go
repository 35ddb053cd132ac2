package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// uncompiled is a source in memory. Webhook configurations with the label version "bad" come without the compiled form of their
// matchConditions, which makes the compiler of package match panic.
type uncompiled struct{ *memory }

func (u uncompiled) List(ctx context.Context) (config.Listing, error) {
	l, err := u.memory.List(ctx)
	for i := range l.Objects {
		if o := &l.Objects[i]; o.Validating.Labels["version"] == "bad" {
			o.Conditions = [][]*match.Expression{{nil}}
		}
	}
	return l, err
}

func TestAnObjectThatMakesTheCompilerPanicIsRejectedAlone(t *testing.T) {
	documents := func(versions ...string) map[string]string {
		all := ""
		for _, v := range versions {
			name, version, _ := strings.Cut(v, "=")
			all += strings.Replace(goodHook, "  name: imagepolicy\n", fmt.Sprintf("  name: %s\n  labels: {version: %q}\n", name, version), 1) +
				"  clientConfig: {url: 'https://example.com/'}\n  matchConditions: [{name: c, expression: 'true'}]\n---\n"
		}
		return map[string]string{"a.yaml": all}
	}
	m := &memory{name: "m", files: documents("a=1", "b=1")}
	inBubble(t, Options{Sources: []config.Source{uncompiled{m}}}, func(t *testing.T, s *Store) {
		inForce := func(want string) {
			t.Helper()
			mustFresh(t, s)
			var all []string
			for key, o := range s.Configuration().Objects {
				all = append(all, key.Name+"="+o.Validating.Labels["version"])
			}
			slices.Sort(all)
			if got := strings.Join(all, " "); got != want {
				t.Errorf("in force: %s, want %s", got, want)
			}
		}
		inForce("a=1 b=1")
		m.set(documents("a=bad", "b=2", "c=bad"), nil)
		pass(time.Second)
		inForce("a=1 b=2")
		got := strings.Join(lines(s.Configuration().Problems), "\n")
		if codes(s.Configuration().Problems) != "kept,rejected,rejected" || !strings.Contains(got, `"c": the object cannot be compiled: panic:`) {
			t.Errorf("problems %s", got)
		}
		m.set(documents("a=3", "b=2"), nil)
		pass(time.Second)
		if inForce("a=3 b=2"); len(s.Configuration().Problems) > 0 {
			t.Errorf("problems %q", lines(s.Configuration().Problems))
		}
	})
}

func TestAPanicInBuildingKeepsTheSnapshotUntilItIsStale(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	source := &decoding{memory: m}
	inBubble(t, Options{Sources: []config.Source{source}}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		source.before(func([]config.Object) { panic("boom") })
		m.set(docs("a", "b"), nil)
		pass(2 * time.Second)
		if mustFresh(t, s) != before {
			t.Error("another snapshot")
		}
		if got := codes(s.Configuration().Problems); got != config.CodeInternal {
			t.Errorf("problems %q", lines(s.Configuration().Problems))
		}
		pass(5 * time.Second)
		if err := s.Ready(); !errors.Is(err, ErrStale) {
			t.Errorf("judging by what is not the configuration: %v", err)
		}
		m.set(docs("a"), nil)
		if mustFresh(t, s) != before || len(s.Configuration().Problems) > 0 {
			t.Errorf("problems %q", lines(s.Configuration().Problems))
		}
	})
}
