package keeper

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func keysOf(t *testing.T, lines ...string) *identity.CapabilityKeys {
	t.Helper()
	keys, err := identity.ParseCapabilityKeys([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// rotating is the task of a cluster whose capabilities are made, with its document. The entries show the capability that it chooses.
type rotating struct {
	*machine
	t        *testing.T
	document *kinds.Cluster
	shown    shownBy
}

func newRotating(t *testing.T) *rotating {
	t.Helper()
	return &rotating{
		t: t, machine: &machine{cluster: "prod-1", keyOverlap: 2 * time.Minute},
		document: &kinds.Cluster{Spec: kinds.ClusterSpec{RotateCapability: "24h", Registration: &kinds.Registration{URL: "https://mesh.example.com"}}},
		shown:    shownBy{present: true, writes: true},
	}
}

// next is the capability that the next attempt wants in the entries.
func (r *rotating) next(keys *identity.CapabilityKeys) identity.Capability {
	r.t.Helper()
	if err := r.made.check(r.document, keys, time.Now()); err != nil {
		r.t.Fatal(err)
	}
	chosen, err := r.capabilityFor(r.document, r.shown, time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	return chosen
}

// TestEntriesGetAnotherCapabilityEachPeriod: within a period it is the same, and it is accepted for three periods more.
func TestEntriesGetAnotherCapabilityEachPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, keys := newRotating(t), keysOf(t, identity.NewCapabilityKey())
		day := 24 * time.Hour
		begin := time.Now().Truncate(day).Add(day) // Truncate counts from a midnight too
		<-time.After(time.Until(begin) - time.Hour)
		r.shown.capability = r.next(keys)
		<-time.After(time.Hour - time.Second)
		if r.next(keys) != r.shown.capability {
			t.Error("another one at the end of the period")
		}
		<-time.After(time.Second)
		second := r.next(keys)
		if second == r.shown.capability {
			t.Error("the same in the next period")
		}
		made, ok := keys.Find(second, "prod-1")
		if want := begin.Add(4 * day); !ok || !made.End.Equal(want) {
			t.Errorf("it ends at %v, want %v", made.End, want)
		}
		if r.shown.writes = false; r.next(keys) != r.shown.capability {
			t.Error("a dispatcher that does not write takes entries for false which are accepted")
		}
		<-time.After(time.Until(begin.Add(3 * day)))
		if r.next(keys) != r.shown.capability {
			t.Error("it is not good at its last moment")
		}
		<-time.After(time.Second)
		if r.next(keys) == r.shown.capability {
			t.Error("it is good after its end")
		}
	})
}

// TestAKeyMakesOnceOtherDispatchersMayKnowIt: entries keep a capability that is accepted until the key was known for the overlap.
func TestAKeyMakesOnceOtherDispatchersMayKnowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former, next := identity.NewCapabilityKey(), identity.NewCapabilityKey()
		byHand := identity.NewCapability()
		r := newRotating(t)
		r.document.Spec.Capabilities = []kinds.Capability{{Name: "a", SHA256: fmt.Sprintf("%x", byHand.Sum())}}
		old, turned := keysOf(t, former), keysOf(t, next, former)
		settle := func() { <-time.After(2*time.Minute - 1); _ = r.next(old) }

		r.shown.capability = byHand
		if r.next(old) != byHand {
			t.Error("one made by hand is replaced before other dispatchers may know the document")
		}
		if settle(); r.next(old) != byHand {
			t.Error("it is replaced before the overlap")
		}
		<-time.After(1)
		r.shown.capability = r.next(old)
		if made, ok := old.Find(r.shown.capability, "prod-1"); !ok || made.Key != old.Names()[0] {
			t.Error("one made by hand is not replaced after the overlap")
		}
		if r.next(turned) != r.shown.capability {
			t.Error("a key makes as soon as it is there")
		}
		<-time.After(2 * time.Minute)
		if made, _ := turned.Find(r.next(turned), "prod-1"); made.Key != turned.Names()[0] {
			t.Error("the first key does not make after the overlap")
		}
		if made, _ := keysOf(t, next).Find(r.next(keysOf(t, next)), "prod-1"); made.Key != turned.Names()[0] {
			t.Error("entries stay with a key that was removed")
		}
	})
}

// TestEntriesThatAreNotAcceptedAreWrittenAtOnce: with them every review is refused.
func TestEntriesThatAreNotAcceptedAreWrittenAtOnce(t *testing.T) {
	keys := keysOf(t, identity.NewCapabilityKey())
	expired := keys.Make("prod-1", time.Now().Add(-time.Hour))
	for name, change := range map[string]func(*rotating){
		"there are none":                       func(r *rotating) { r.shown.present = false },
		"they show none":                       func(*rotating) {},
		"they show an unknown one":             func(r *rotating) { r.shown.capability = identity.NewCapability() },
		"they show an expired one":             func(r *rotating) { r.shown.capability = expired },
		"they show another cluster's":          func(r *rotating) { r.shown.capability = keys.Make("prod-2", time.Now().Add(time.Hour)) },
		"there are none, beside a certificate": func(r *rotating) { r.shown.present, r.document.Spec.Identities = false, []string{"a"} },
	} {
		r := newRotating(t)
		change(r)
		if _, ok := keys.Find(r.next(keys), "prod-1"); !ok {
			t.Errorf("%s: they get none of the mesh", name)
		}
	}
	r := newRotating(t)
	r.document.Spec.Identities = []string{"a"}
	if got := r.next(keys); !got.IsZero() {
		t.Error("entries of a cluster with certificates get one at once")
	}
}

func TestADispatcherWithoutKeysWritesNothing(t *testing.T) {
	r := newRotating(t)
	err := r.made.check(r.document, nil, time.Now())
	if err == nil || !strings.Contains(err.Error(), "start each dispatcher with the same --capability-key-file") {
		t.Errorf("error %v", err)
	}
	r.document.Spec.RotateCapability = ""
	if err := r.made.check(r.document, nil, time.Now()); err != nil {
		t.Errorf("a cluster that asks for none: %v", err)
	}
}

func TestAFailureSaysHowLongTheCapabilityOfTheEntriesIsGood(t *testing.T) {
	r, keys := newRotating(t), keysOf(t, identity.NewCapabilityKey())
	if err := r.made.explain(errors.New("refused")); err.Error() != "refused" {
		t.Errorf("before they were read: %v", err)
	}
	r.shown.capability = keys.Make("prod-1", time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC))
	_ = r.next(keys)
	if err := r.made.explain(errors.New("refused")); !strings.Contains(err.Error(), "refused; the capability in the entries is accepted until 2099-01-01T00:00:00Z") {
		t.Errorf("error %v", err)
	}
	if err := r.made.explain(nil); err != nil {
		t.Errorf("of a success: %v", err)
	}
}
