package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// decoding is a source in memory with a function that runs in the builder before the objects of a listing are there.
type decoding struct {
	*memory

	decode atomic.Pointer[func(objects []config.Object)]
}

func (d *decoding) List(ctx context.Context) (config.Listing, error) {
	l, err := d.memory.List(ctx)
	objects, problems := l.Objects, l.Problems
	l.Objects, l.Problems = nil, nil
	l.Decode = func() ([]config.Object, config.Problems) {
		if f := d.decode.Load(); f != nil {
			(*f)(objects)
		}
		return objects, problems
	}
	return l, err
}

func (d *decoding) before(f func(objects []config.Object)) { d.decode.Store(&f) }

// takes makes each generation take so long to build.
func (d *decoding) takes(long time.Duration) { d.before(func([]config.Object) { <-time.After(long) }) }

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
	m := &decoding{memory: &memory{name: "m", files: docs("a")}}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		pass(100 * time.Millisecond)
		before := mustFresh(t, s)
		m.takes(20 * time.Second)
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
	m := &decoding{memory: &memory{name: "m", files: docs("a")}}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		pass(100 * time.Millisecond)
		before := mustFresh(t, s)
		m.takes(2 * MaxCompileTime)
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
	m := &decoding{memory: &memory{name: "m", files: docs("a")}}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		m.takes(3 * time.Second)
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
	m := &decoding{memory: &memory{name: "m", files: docs("a")}}
	var mu sync.Mutex
	var built []string
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		mustFresh(t, s)
		m.before(func(objects []config.Object) {
			mu.Lock()
			built = append(built, objects[len(objects)-1].Name)
			mu.Unlock()
			<-time.After(2500 * time.Millisecond)
		})
		for _, name := range []string{"b", "c", "d", "e"} {
			pass(time.Second)
			m.set(docs(name), nil)
		}
		if _, none := judged(t, s, 10*time.Second); none > 0 {
			t.Errorf("%d were not judged", none)
		}
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(built, ""); got != "bde" {
			t.Errorf("built %s", got)
		}
	})
}

func TestAChangeThatIsTakenBackWhileItIsCompiledIsNotPutIntoForce(t *testing.T) {
	m := &decoding{memory: &memory{name: "m", files: docs("a")}}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		m.takes(3 * time.Second)
		m.set(docs("b"), nil)
		pass(1500 * time.Millisecond)
		m.set(docs("a"), nil)
		by, none := judged(t, s, MaxCompileTime+10*time.Second)
		if none > 0 || len(by) != 1 || by[before] == 0 {
			t.Errorf("judged by %v, want %s alone, and %d by none", by, before, none)
		}
	})
}
