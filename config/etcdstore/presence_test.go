package etcdstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/config/etcdstore"
)

// dispatchers waits until they say what is wanted.
func (e *etcd) dispatchers(wanted func([]etcdstore.Status) bool) {
	e.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		all, err := e.Dispatchers(e.t.Context())
		if err != nil {
			e.t.Fatal(err)
		}
		if wanted(all) {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("the dispatchers say %+v", all)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestADispatcherIsKnownWhileItLives(t *testing.T) {
	e := newEtcd(t)
	p, err := e.Presence(etcdstore.PresenceOptions{ID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	for _, digest := range []string{"first", "second"} {
		p.Tell(etcdstore.Status{Digest: digest})
		e.dispatchers(func(all []etcdstore.Status) bool {
			return len(all) == 1 && all[0].ID == "d1" && all[0].Digest == digest
		})
	}
	leases, err := e.client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("leases %v, %v", leases, err)
	}
	if _, err := e.client.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	p.Tell(etcdstore.Status{Digest: "third"})
	e.dispatchers(func(all []etcdstore.Status) bool { return len(all) == 1 && all[0].Digest == "third" })
	stop()
	running.Wait()
	e.dispatchers(func(all []etcdstore.Status) bool { return len(all) == 0 })
}
