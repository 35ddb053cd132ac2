package config

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// costly is a source in memory whose listings take long to decode.
type costly struct {
	*memory

	decode atomic.Int64 // in ns
}

func (c *costly) List(ctx context.Context) (Listing, error) {
	l, err := c.memory.List(ctx)
	objects, problems := l.Objects, l.Problems
	l.Objects, l.Problems = nil, nil
	l.Decode = func() ([]Object, Problems) {
		if d := time.Duration(c.decode.Load()); d > 0 {
			<-time.After(d)
		}
		return objects, problems
	}
	return l, err
}

// compilesFor is a compiler that takes so long for everything after the first configuration.
func compilesFor(d time.Duration) func(*match.Snapshot, string, []Object) (*match.Snapshot, Problems) {
	return func(last *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems) {
		if last != nil {
			<-time.After(d)
		}
		return Recompile(last, revision, objects)
	}
}

// judged has a review begin each 100 ms for so long, and returns how many were judged by each revision, and how many by none.
func judged(t *testing.T, s *Store, long time.Duration) (by map[string]int, none int) {
	t.Helper()
	by = map[string]int{}
	for range long / (100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		snapshot, err := s.Fresh(ctx)
		cancel()
		if err != nil {
			none++
		} else {
			by[snapshot.Revision()]++
			s.Release(snapshot)
		}
		pass(100*time.Millisecond - time.Duration(time.Now().UnixNano())%(100*time.Millisecond))
	}
	return by, none
}

func TestNoReviewIsHeldWhileAChangeIsDecodedAndCompiled(t *testing.T) {
	m := &costly{memory: &memory{name: "m", files: docs("a")}}
	inBubble(t, StoreOptions{Sources: []Source{m}, Compile: compilesFor(10 * time.Second)}, func(t *testing.T, s *Store) {
		pass(100 * time.Millisecond)
		before := mustFresh(t, s)
		m.decode.Store(int64(10 * time.Second))
		m.set(docs("a", "b"), nil)
		by, none := judged(t, s, 19*time.Second)
		if none > 0 || len(by) != 1 || by[before] == 0 {
			t.Errorf("judged by %v, want %s alone, and %d by none", by, before, none)
		}
		if c := s.Configuration(); c.Digest != before || !strings.Contains(c.Sources["m"], docs("a")["a.yaml"]) || strings.Contains(c.Sources["m"], "name: b") {
			t.Errorf("it says that %v is in force", c.Sources)
		}
		if held := s.heldNow(); strings.Contains(held, "name: b") {
			t.Errorf("it says that no review is judged by what is before %s", held)
		}
		pass(3 * time.Second)
		if c := s.Configuration(); mustFresh(t, s) == before || !strings.Contains(c.Sources["m"], "name: b") {
			t.Error("the change is not in force")
		}
	})
}

func TestWhatTakesTooLongToCompileMakesTheConfigurationStale(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, StoreOptions{Sources: []Source{m}, Compile: compilesFor(2 * MaxCompileTime)}, func(t *testing.T, s *Store) {
		pass(100 * time.Millisecond)
		before := mustFresh(t, s)
		m.set(docs("a", "b"), nil)
		pass(time.Second) // listed
		if _, none := judged(t, s, MaxCompileTime+DefaultMaxAge-time.Second); none > 0 {
			t.Errorf("%d were not judged", none)
		}
		pass(time.Second)
		if _, none := judged(t, s, time.Second); none != 10 {
			t.Errorf("%d were not judged of 10", none)
		}
		if err := s.Ready(); !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "is not compiled yet") {
			t.Errorf("ready: %v", err)
		}
		if mustFresh(t, s) == before {
			t.Error("judged by the old one")
		}
	})
}

// Who waits for a change may have been told that a dispatcher is gone which nobody could hear.
func TestAStaleConfigurationIsNotJudgedByAgainWhileANewerOneIsCompiled(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, StoreOptions{Sources: []Source{m}, Compile: compilesFor(3 * time.Second)}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		m.set(nil, errors.New("gone"))
		pass(DefaultMaxAge + 2*time.Second)
		m.set(docs("a", "b"), nil)
		if by, none := judged(t, s, 3*time.Second); none != 30 {
			t.Errorf("judged by %v", by)
		}
		if mustFresh(t, s) == before {
			t.Error("judged by the old one")
		}
	})
}

func TestOfChangesThatComeWhileOneIsCompiledTheLatestIsNext(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	var mu sync.Mutex
	var compiled []string
	slow := compilesFor(2500 * time.Millisecond)
	compile := func(last *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems) {
		mu.Lock()
		compiled = append(compiled, objects[len(objects)-1].Name)
		mu.Unlock()
		return slow(last, revision, objects)
	}
	inBubble(t, StoreOptions{Sources: []Source{m}, Compile: compile}, func(t *testing.T, s *Store) {
		for _, name := range []string{"b", "c", "d", "e"} {
			pass(time.Second)
			m.set(docs(name), nil)
		}
		if _, none := judged(t, s, 10*time.Second); none > 0 {
			t.Errorf("%d were not judged", none)
		}
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(compiled, ""); got != "abde" {
			t.Errorf("compiled %s", got)
		}
	})
}

func TestAChangeThatIsTakenBackWhileItIsCompiledIsNotPutIntoForce(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, StoreOptions{Sources: []Source{m}, Compile: compilesFor(3 * time.Second)}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		m.set(docs("b"), nil)
		pass(1500 * time.Millisecond)
		m.set(docs("a"), nil)
		by, none := judged(t, s, MaxCompileTime+10*time.Second)
		if none > 0 || len(by) != 1 || by[before] == 0 {
			t.Errorf("judged by %v, want %s alone, and %d by none", by, before, none)
		}
	})
}
