package store

import (
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// heldNow is the revision, in the source m, of the oldest configuration that judges a review.
func (s *Store) heldNow() string { return s.Held()["m"] }

func TestNothingIsHeldBeforeTheFirstConfiguration(t *testing.T) {
	s, err := New(Options{Sources: []config.Source{&memory{name: "m"}}})
	if err != nil {
		t.Fatal(err)
	}
	if held := s.Held(); held != nil {
		t.Errorf("%v is held", held)
	}
}

func TestWhatReviewsAreJudgedByIsHeldUntilTheyEnd(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		pass(2 * time.Second)
		first := s.heldNow()
		early, err := s.Fresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.set(docs("a", "b"), nil)
		pass(2 * time.Second)
		late, err := s.Fresh(t.Context())
		if err != nil || late == early {
			t.Fatalf("the same snapshot, %v", err)
		}
		if held := s.heldNow(); held != first {
			t.Errorf("held %s, want %s", held, first)
		}
		m.set(docs("c"), nil)
		pass(2 * time.Second)
		s.Release(late)
		if held := s.heldNow(); held != first {
			t.Errorf("one that began later is over, and held is %s, want %s", held, first)
		}
		s.Release(early)
		if held := s.heldNow(); held != s.Configuration().Sources["m"] {
			t.Errorf("nothing is judged by an older one, and held is %s", held)
		}
		if n := len(s.retained.refs); n > 3 {
			t.Errorf("%d snapshots are kept", n)
		}
	})
}

func TestAConfigurationThatIsReadAgainIsHeldAsWhatItIsCalledNow(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		pass(2 * time.Second)
		snapshot, err := s.Fresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.set(map[string]string{"b.yaml": docs("a")["a.yaml"]}, nil) // says the same in another place
		pass(2 * time.Second)
		if held := s.heldNow(); held != s.Configuration().Sources["m"] {
			t.Errorf("held %s, and in force is %s", held, s.Configuration().Sources["m"])
		}
		s.Release(snapshot)
		for range 3 {
			pass(time.Second)
		}
		if n := s.current.Load().ref.reviews.Load(); n != 0 {
			t.Errorf("%d reviews are held", n)
		}
	})
}

// A review loads the generation in force; before it is counted another one comes into force.
func TestTheSnapshotOfASupersededGenerationIsNotAcquired(t *testing.T) {
	s, err := New(Options{Sources: []config.Source{&memory{name: "m"}}})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(revision string) {
		snapshot, _ := config.Compile(revision, nil)
		s.publish(&generation{snapshot: snapshot, sources: map[string]string{"m": revision}, freshness: freshness{begun: time.Now()}})
	}
	publish("old")
	loaded := s.current.Load()
	publish("new")
	if s.acquireSnapshot(loaded) {
		t.Error("a review begins with the old generation, after others were told that none is judged by it")
	}
	if n := loaded.ref.reviews.Load(); n != 0 {
		t.Errorf("%d reviews are counted on the old generation", n)
	}
	if held := s.heldNow(); held != "new" {
		t.Errorf("held %s, want new", held)
	}
	if snapshot, err := s.Fresh(t.Context()); err != nil || snapshot.Revision() != "new" {
		t.Errorf("judged by %s, %v", snapshot.Revision(), err)
	}
}
