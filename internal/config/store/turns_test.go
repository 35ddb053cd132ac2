package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// turn is the time that a holder waits for its turn, which it ends at once.
func turn(t *testing.T, work *turns.Queue, holder string) time.Duration {
	t.Helper()
	begun := time.Now()
	done, err := work.Wait(t.Context(), holder, true)
	if err != nil {
		t.Fatal(err)
	}
	done()
	return time.Since(begun)
}

// TestAChangeIsBuiltInItsTurn while a call computes. A call that does not end delays it for maxTurn.
func TestAChangeIsBuiltInItsTurn(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		inForce := func(when string, want int) {
			t.Helper()
			if mustFresh(t, s); len(s.Configuration().Objects) != want {
				t.Errorf("%s: %d objects are in force, want %d", when, len(s.Configuration().Objects), want)
			}
		}
		pass(time.Second)
		work := s.opts.Work
		done, err := work.Wait(t.Context(), "ann", false)
		if err != nil {
			t.Fatal(err)
		}
		m.set(docs("a", "b"), nil)
		pass(time.Second + maxTurn/2)
		inForce("while a call computes", 1)
		done()
		pass(0)
		inForce("after it", 2)
		if done, err = work.Wait(t.Context(), "ann", false); err != nil {
			t.Fatal(err)
		}
		m.set(docs("a", "b", "c"), nil)
		pass(time.Second + maxTurn)
		inForce("while a call does not end", 3)
		done()
	})
}

// by is a source whose objects have authors, by name.
type by struct {
	*decoding

	authors map[string]string
}

func (b by) List(ctx context.Context) (config.Listing, error) {
	l, err := b.decoding.List(ctx)
	decode := l.Decode
	l.Decode = func() ([]config.Object, config.Problems) {
		objects, problems := decode()
		for i := range objects {
			objects[i].Author = b.authors[objects[i].Name]
		}
		return objects, problems
	}
	return l, err
}

// TestAuthorsRestFromWhatTheirChangesCost: the time of a generation is booked to the authors of the new objects in it, in equal parts.
func TestAuthorsRestFromWhatTheirChangesCost(t *testing.T) {
	const long = 8 * time.Second
	for _, test := range []struct {
		changed []string
		rest    time.Duration // of the author of b
	}{{[]string{"a"}, 3*long - time.Second}, {[]string{"a", "b"}, 3*long - time.Second}, {[]string{"a", "b", "c"}, 2*long - long/2 - time.Second}} {
		source := by{&decoding{memory: &memory{name: "m", files: docs("a")}}, map[string]string{"b": "ann", "c": "ben"}}
		inBubble(t, Options{Sources: []config.Source{source}}, func(t *testing.T, s *Store) {
			pass(time.Second)
			source.takes(long)
			source.set(docs(test.changed...), nil)
			mustFresh(t, s)
			pass(time.Second + long)
			rest, own := turn(t, s.opts.Work, "ann"), time.Duration(0)
			if len(test.changed) > 1 {
				own = test.rest
			}
			if rest > own || rest < own-2*time.Second {
				t.Errorf("%v: ann rests for %v, want %v", test.changed, rest, own)
			}
		})
	}
}

// TestInspectionsRest: changes that never stop have them work a part of the time. No caller rests with them, whatever its name.
func TestInspectionsRest(t *testing.T) {
	m, worked := &memory{name: "m", files: docs("a")}, time.Duration(0)
	inspect := func(context.Context, *match.Snapshot, []config.Object) config.Problems {
		<-time.After(time.Second)
		worked += time.Second
		return nil
	}
	inBubble(t, Options{Sources: []config.Source{m}, Inspect: inspect}, func(t *testing.T, s *Store) {
		const long = 400 * time.Second
		for n := range int(long / time.Second) {
			m.set(docs("a", fmt.Sprint("b", n)), nil)
			pass(time.Second)
		}
		if worked > long/4+2*time.Second || worked < long/8 {
			t.Errorf("they worked for %v of %v", worked, long)
		}
		for _, name := range []string{"findings", "inspecting", building} {
			if rest := turn(t, s.opts.Work, name); rest > time.Second { // one inspection
				t.Errorf("%s rests for %v", name, rest)
			}
		}
	})
}
