package etcdstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// judgesBy is the report of the dispatcher d1 that judges by a configuration.
func judgesBy(digest string) *configv1.DispatcherReport {
	return &configv1.DispatcherReport{Status: &configv1.DispatcherStatus{DispatcherId: "d1", Applied: &configv1.Revision{Digest: digest}}}
}

// dispatchers waits until their reports are as wanted.
func (e *etcd) dispatchers(wanted func([]*configv1.DispatcherReport) bool) {
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
		p.Tell(judgesBy(digest))
		e.dispatchers(func(all []*configv1.DispatcherReport) bool {
			return len(all) == 1 && all[0].GetStatus().GetDispatcherId() == "d1" && all[0].GetStatus().GetApplied().GetDigest() == digest
		})
	}
	leases, err := e.client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("leases %v, %v", leases, err)
	}
	if _, err := e.client.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	p.Tell(judgesBy("third"))
	e.dispatchers(func(all []*configv1.DispatcherReport) bool {
		return len(all) == 1 && all[0].GetStatus().GetApplied().GetDigest() == "third"
	})
	stop()
	running.Wait()
	e.dispatchers(func(all []*configv1.DispatcherReport) bool { return len(all) == 0 })
}

// A change waits for the known dispatchers: an unknown dispatcher may judge by nothing that it lists.
func TestWhatADispatcherJudgesByIsListedOnceOthersKnowOfIt(t *testing.T) {
	e := newEtcd(t)
	if err := e.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := e.Presence(etcdstore.PresenceOptions{ID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	source := e.Source(configtest.NewDecoder()).Announced(p)
	over, end := context.WithCancel(t.Context())
	end()
	unannounced := func(when string) {
		t.Helper()
		if _, err := source.List(over); !errors.Is(err, etcdstore.ErrUnannounced) {
			t.Errorf("%s: %v", when, err)
		}
	}
	unannounced("before it runs")
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	e.anyLease()
	unannounced("while it has said nothing, under a lease")
	p.Tell(judgesBy("first"))
	if _, err := source.List(t.Context()); err != nil {
		t.Error(err)
	}
	if all, err := e.Dispatchers(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("it has listed, and known are %v, %v", all, err)
	}
	stop()
	running.Wait()
	unannounced("after it has left")
}

func TestALeaseIsAsLongAsReviewsAreJudgedByAnOldConfiguration(t *testing.T) {
	e := newEtcd(t)
	p, err := e.Presence(etcdstore.PresenceOptions{ID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	seen := make(chan struct{})
	running.Go(func() { // at no moment is it unknown
		known := false
		for ctx.Err() == nil {
			all, err := e.Dispatchers(ctx)
			if err == nil && known && len(all) == 0 && ctx.Err() == nil { // it leaves at the end
				t.Error("the dispatcher lives, and nobody knows of it")
			}
			if err == nil && !known && len(all) == 1 {
				known = true
				close(seen)
			}
		}
	})
	p.Tell(judgesBy("usual"))
	<-seen
	if got := p.LeaseCoverage(); got != 5*time.Second {
		t.Errorf("it covers %s", got)
	}
	var before clientv3.LeaseID
	for _, told := range []struct {
		age, covers time.Duration
	}{{time.Minute, time.Minute}, {0, time.Minute}, {2 * time.Minute, 2 * time.Minute}} {
		report := judgesBy(told.age.String())
		report.MaxConfigurationAge = durationpb.New(told.age)
		p.Tell(report)
		e.dispatchers(func(all []*configv1.DispatcherReport) bool {
			return len(all) == 1 && all[0].GetStatus().GetApplied().GetDigest() == told.age.String() && p.LeaseCoverage() == told.covers
		})
		lease := e.lease(told.covers * 2)
		for deadline := time.Now().Add(2 * time.Minute); before != lease && e.length(before) > 0; <-time.After(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the shorter lease is not given back")
			}
		}
		before = lease
	}
	stop()
	running.Wait()
	e.dispatchers(func(all []*configv1.DispatcherReport) bool { return len(all) == 0 })
}

// anyLease waits until there is a lease.
func (e *etcd) anyLease() {
	e.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		all, err := e.client.Leases(e.t.Context())
		switch {
		case err != nil:
			e.t.Fatal(err)
		case len(all.Leases) > 0:
			return
		case time.Now().After(deadline):
			e.t.Fatal("there is no lease")
		}
	}
}

// lease returns the lease under which the dispatcher is known, once its length is as wanted. There may be others: a lease
// that was granted too late to be heard of lapses by itself.
func (e *etcd) lease(want time.Duration) clientv3.LeaseID {
	e.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		known, err := e.client.Get(e.t.Context(), etcdstore.DefaultPrefix+"dispatchers/d1")
		if err != nil {
			e.t.Fatal(err)
		}
		var length time.Duration
		if len(known.Kvs) == 1 {
			id := clientv3.LeaseID(known.Kvs[0].Lease)
			if length = e.length(id); length == want {
				return id
			}
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("a lease of %s, want one of %s", length, want)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// length is for how long a lease was granted; 0 if there is none any more.
func (e *etcd) length(id clientv3.LeaseID) time.Duration {
	e.t.Helper()
	lease, err := e.client.TimeToLive(e.t.Context(), id)
	if err != nil {
		e.t.Fatal(err)
	}
	return time.Duration(lease.GrantedTTL) * time.Second
}

func TestWhatSomethingElseHasWrittenIsSaidAgain(t *testing.T) {
	e := newEtcd(t)
	p, err := e.Presence(etcdstore.PresenceOptions{ID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	p.SetTTL(3 * time.Second)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	p.Tell(judgesBy("new"))
	said := func(all []*configv1.DispatcherReport) bool {
		return len(all) == 1 && all[0].GetStatus().GetApplied().GetDigest() == "new"
	}
	e.dispatchers(said)
	// A member that hung makes a write that it was asked for long ago.
	if _, err := e.client.Put(ctx, etcdstore.DefaultPrefix+"dispatchers/d1", `{"id":"d1","digest":"old"}`); err != nil {
		t.Fatal(err)
	}
	e.dispatchers(said)
	stop()
	running.Wait()
}
