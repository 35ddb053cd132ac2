package service_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// hang is a dispatcher that says nothing more than what it said once. Its lease is kept alive until die is called, and lapses
// then: nobody gives it back.
func (f *fixture) hang(id string, says etcdstore.Status) (die func()) {
	f.t.Helper()
	const seconds = 8 // longer than a machine stalls
	lease, err := f.client.Grant(f.t.Context(), seconds)
	if err != nil {
		f.t.Fatal(err)
	}
	says.ID = id
	value, err := json.Marshal(says)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.client.Put(f.t.Context(), etcdstore.DefaultPrefix+"dispatchers/"+id, string(value), clientv3.WithLease(lease.ID)); err != nil {
		f.t.Fatal(err)
	}
	ctx, die := context.WithCancel(f.t.Context())
	alive, err := f.client.KeepAlive(ctx, lease.ID)
	if err != nil {
		f.t.Fatal(err)
	}
	go func() {
		for range alive { // until die
		}
	}()
	f.t.Cleanup(die)
	return die
}

// TestAWaitNamesWhoHangsAndEndsWhenItsLeaseDoes: a dispatcher whose lease has lapsed judges nothing any more.
func TestAWaitNamesWhoHangsAndEndsWhenItsLeaseDoes(t *testing.T) {
	f := newFixture(t)
	first := number(f.applied("root", policy("p", "failurePolicy: Ignore")).GetRevision().GetSources()["etcd"])
	one, _ := f.dispatcher("one")
	two, _ := f.dispatcher("two")
	die := f.hang("three", said(first, first))
	next := f.applied("root", policy("p", "failurePolicy: Fail")).GetRevision()
	second := number(next.GetSources()["etcd"])

	news, ended := make(chan *configv1.WaitResponse, 100), make(chan error, 1)
	go func() {
		ended <- f.Wait(&configv1.WaitRequest{Revision: next}, &listens{ctx: f.as("root"), taken: func(r *configv1.WaitResponse) { news <- r }})
	}()
	one.Tell(said(second, second))
	two.Tell(said(second, second))
	for r := range news {
		if r.GetDone() {
			t.Fatalf("it has ended while one hangs: %v", r)
		}
		if len(r.GetDispatchers()) == 3 && slices.Equal(r.GetBehind(), []string{"three"}) {
			break
		}
	}
	f.conditions(map[string]string{"Effective": "False Behind"})
	die()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	close(news)
	var last *configv1.WaitResponse
	for r := range news {
		last = r
	}
	if !last.GetDone() || len(last.GetDispatchers()) != 2 {
		t.Errorf("at the end it said %v", last)
	}
	f.conditions(map[string]string{"Effective": "True Applied"})
}
