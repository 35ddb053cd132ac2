package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// rejecting is Compile that cannot compile some objects.
func rejecting(bad func(o Object) bool) func(*match.Snapshot, string, []Object) (*match.Snapshot, Problems) {
	return func(_ *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems) {
		var good []Object
		var problems Problems
		for _, o := range objects {
			if bad(o) {
				problems = append(problems, at(&o, match.SeverityError, match.CodeRejected, "", "cannot be compiled"))
			} else {
				good = append(good, o)
			}
		}
		snapshot, more := Compile(revision, good)
		return snapshot, append(problems, more...)
	}
}

func TestAnObjectThatCannotBeCompiledIsRejectedAlone(t *testing.T) {
	var clusters string
	m := &memory{name: "m", files: map[string]string{"a.yaml": clusterDoc("a", "1") + clusterDoc("b", "1")}}
	opts := StoreOptions{
		Sources: []Source{m},
		Compile: rejecting(func(o Object) bool { return o.Cluster.Metadata.Labels["version"] == "bad" }),
		OnClusters: func(all []*kinds.Cluster) {
			clusters = ""
			for _, c := range all {
				clusters += " " + c.Metadata.Name + c.Metadata.Labels["version"]
			}
		},
	}
	inBubble(t, opts, func(t *testing.T, s *Store) {
		mustFresh(t, s)
		m.set(map[string]string{"a.yaml": clusterDoc("a", "bad") + clusterDoc("b", "2") + clusterDoc("c", "bad")}, nil)
		pass(time.Second)
		mustFresh(t, s)
		if clusters != " a1 b2" {
			t.Errorf("in force:%s", clusters)
		}
		if got := codes(s.Problems()); got != "kept,rejected,rejected" {
			t.Errorf("problems %q", lines(s.Problems()))
		}
		m.set(map[string]string{"a.yaml": clusterDoc("a", "3") + clusterDoc("b", "2")}, nil)
		pass(time.Second)
		if mustFresh(t, s); clusters != " a3 b2" || len(s.Problems()) > 0 {
			t.Errorf("in force:%s, problems %q", clusters, lines(s.Problems()))
		}
	})
}

func TestAPanicInCompilingKeepsTheSnapshotUntilItIsStale(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	var broken atomic.Bool
	compile := func(_ *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems) {
		if broken.Load() {
			panic("boom")
		}
		return Compile(revision, objects)
	}
	inBubble(t, StoreOptions{Sources: []Source{m}, Compile: compile}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		broken.Store(true)
		m.set(docs("a", "b"), nil)
		pass(2 * time.Second)
		if mustFresh(t, s) != before {
			t.Error("another snapshot")
		}
		if got := codes(s.Problems()); got != CodeInternal {
			t.Errorf("problems %q", lines(s.Problems()))
		}
		pass(5 * time.Second)
		if err := s.Ready(); !errors.Is(err, ErrStale) {
			t.Errorf("judging by what is not the configuration: %v", err)
		}
		broken.Store(false)
		m.set(docs("a"), nil)
		if mustFresh(t, s) != before || len(s.Problems()) > 0 {
			t.Errorf("problems %q", lines(s.Problems()))
		}
	})
}

// TestAPoisonedObjectIsRejectedAlone has objects that make the compiler panic, alone or beside another one, among many.
func TestAPoisonedObjectIsRejectedAlone(t *testing.T) {
	version := func(o *Object) string { return o.Cluster.Metadata.Labels["version"] }
	compile := func(last *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems) {
		seen := map[string]bool{}
		for i := range objects {
			if seen[version(&objects[i])] = true; version(&objects[i]) == "poison" {
				panic("poison")
			}
		}
		if seen["left"] && seen["right"] {
			panic("left and right")
		}
		return Recompile(last, revision, objects)
	}
	documents := func(versions map[int]string) map[string]string {
		all := ""
		for i := range 100 {
			all += clusterDoc(fmt.Sprintf("c%02d", i), cmp.Or(versions[i], "good"))
		}
		return map[string]string{"a.yaml": all}
	}
	m := &memory{name: "m", files: documents(nil)}
	inBubble(t, StoreOptions{Sources: []Source{m}, Compile: compile}, func(t *testing.T, s *Store) {
		inForce := func(want map[int]string) {
			t.Helper()
			mustFresh(t, s)
			got, all := map[int]string{}, s.Configuration().Objects
			for i := range 100 {
				o, ok := all[Key{Kind: "Cluster", Name: fmt.Sprintf("c%02d", i)}]
				if !ok {
					got[i] = "missing"
				} else if v := version(&o); v != "good" {
					got[i] = v
				}
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("in force (-want +got):\n%s", diff)
			}
		}
		inForce(map[int]string{})
		m.set(documents(map[int]string{3: "poison", 50: "new", 77: "poison", 99: "new"}), nil)
		pass(time.Second)
		inForce(map[int]string{50: "new", 99: "new"})
		if got := codes(s.Problems()); got != "kept,kept,rejected,rejected" {
			t.Errorf("problems %q", lines(s.Problems()))
		}
		if got := strings.Join(lines(s.Problems()), "\n"); !strings.Contains(got, `Cluster "c03": compiling the configuration failed, which is a fault of portcullis: poison`) {
			t.Errorf("problems %q", got)
		}
		m.set(documents(map[int]string{3: "newer", 20: "left", 80: "right"}), nil)
		pass(time.Second)
		inForce(map[int]string{3: "newer", 20: "left"})
		m.set(documents(nil), nil)
		pass(time.Second)
		if inForce(map[int]string{}); len(s.Problems()) > 0 {
			t.Errorf("problems %q", lines(s.Problems()))
		}
	})
	m = &memory{name: "m", files: documents(map[int]string{3: "poison"})}
	inBubble(t, StoreOptions{Sources: []Source{m}, Compile: compile}, func(t *testing.T, s *Store) {
		mustFresh(t, s)
		if n := len(s.Configuration().Objects); n != 99 {
			t.Errorf("%d objects are in force from the start on", n)
		}
	})
}
