package initializer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// authorsModel is an object that initializers of two authors are about, with one set of names. Each author does all that it may, in a random
// order, with whatever names it likes. The model knows who has acted, independent of the product: by the identity of each caller.
type authorsModel struct {
	random  *rand.Rand
	object  *initializerv1.StagedObject
	version int
	acted   map[string]bool // initializers that their author has taken off, or whose time was over
	refused string          // the author who has refused the object
	log     []string
}

func authorOf(pending string) string { return pending[:strings.IndexByte(pending, '/')] }

// configured has both authors use the names x and y, and each a name of its own.
func (*authorsModel) configured(name string) []string {
	switch name {
	case "x", "y":
		return []string{"one/" + name, "two/" + name}
	case "one", "two":
		return []string{name + "/" + name}
	}
	return nil
}

// step has a random author make a random change.
func (m *authorsModel) step() error {
	author, names := []string{"one", "two"}[m.random.IntN(2)], []string{}
	for _, p := range m.object.GetPending()[m.random.IntN(2):] {
		if m.random.IntN(8) == 0 {
			names = append(names, []string{"x", "y", "one", "two", "none"}[m.random.IntN(5)])
		}
		if m.random.IntN(10) > 0 {
			names = append(names, NameOf(p))
		}
	}
	change := UpdateRequest{ResourceVersion: m.object.GetResourceVersion(), Pending: names}
	if m.random.IntN(20) == 0 {
		change.Result = &admissionv1.Status{Status: failure}
	}
	before := m.object.GetPending()
	next, err := Update(m.object, change, Rules{
		Granted: func(pending string) bool { return authorOf(pending) == author }, Configured: m.configured, MaxObjectBytes: 1000, Now: time.Unix(1, 0),
	})
	m.log = append(m.log, fmt.Sprintf("%s: %q to %q, result %v: %v", author, before, names, change.Result != nil, err))
	switch {
	case err != nil:
		return nil //nolint:nilerr // a refused change changes nothing
	case authorOf(before[0]) != author:
		return fmt.Errorf("%s has acted for %s", author, before[0])
	}
	m.version++
	m.object = next
	m.object.ResourceVersion = fmt.Sprint(m.version)
	if change.Result != nil {
		m.refused = author
		return nil
	}
	return m.compare(before, next.GetPending())
}

// compare checks the pending initializers: at most the first one is gone, the others keep their order, and none is there twice.
func (m *authorsModel) compare(before, after []string) error {
	var kept []string
	for i, p := range after {
		if slices.Contains(after[:i], p) {
			return fmt.Errorf("%s is pending twice", p)
		}
		if slices.Contains(before, p) {
			kept = append(kept, p)
		} else if len(m.configured(NameOf(p))) != 1 {
			return fmt.Errorf("%s was added by a name that two initializers have", p)
		}
	}
	switch {
	case slices.Equal(kept, before):
	case slices.Equal(kept, before[1:]):
		m.acted[before[0]] = true
	default:
		return fmt.Errorf("pending %q, before %q", after, before)
	}
	return nil
}

// TestTwoAuthorsWithTheSameNames has a holder wait for initializers while two authors act: no author acts for the other one, and a call ends only
// when its own author has acted or has refused the object.
func TestTwoAuthorsWithTheSameNames(t *testing.T) {
	chain := []string{"one/x", "two/x", "one/y", "two/y", "one/one", "two/two"}
	ended := 0
	for seed := range uint64(citest.Cases(2_000, 20_000, 200_000)) {
		m := &authorsModel{random: rand.New(rand.NewPCG(seed, 1)), acted: map[string]bool{}}
		m.random.Shuffle(len(chain), func(i, j int) { chain[i], chain[j] = chain[j], chain[i] })
		pending := slices.Clone(chain[:2+m.random.IntN(3)])
		m.object = object(pending...)
		m.object.ResourceVersion = "0"
		for range 24 {
			if len(m.object.GetPending()) == 0 {
				break
			}
			if err := m.step(); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(m.log, "\n"))
			}
			state := Progress(m.object, pending)
			if m.refused == "" && state == Initialized && !m.acted[pending[0]] || m.refused != "" && state != Refused {
				t.Fatalf("seed %d: the call of %q is in state %d\n%s", seed, pending, state, strings.Join(m.log, "\n"))
			}
			if state == Refused {
				break
			}
			if state == Initialized && len(pending) > 1 {
				names := Names{Before: pending, Now: pending[1:]}
				if pending = pending[1:]; !Acted(m.object, names) {
					synced, err := Sync(m.object, m.object.GetObject().GetRaw(), names, time.Unix(1, 0))
					if err != nil {
						t.Fatal(err)
					}
					m.version++
					m.object, synced.ResourceVersion = synced, fmt.Sprint(m.version)
				}
				ended++
			}
		}
	}
	if ended == 0 {
		t.Error("no call has ended: the authors never act")
	}
}
