package service_test

import (
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protojson"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// named is the status of a dispatcher that says nothing.
func named(id string) *configv1.DispatcherStatus { return &configv1.DispatcherStatus{DispatcherId: id} }

// hang is a dispatcher that writes one report and no other. Its lease outlives the test unless die is called, which revokes
// it, as etcd itself does with a lapsed lease.
func (f *fixture) hang(id string, says *configv1.DispatcherReport) (die func()) {
	f.t.Helper()
	const seconds = 600
	lease, err := f.client.Grant(f.t.Context(), seconds)
	if err != nil {
		f.t.Fatal(err)
	}
	if says.Status == nil {
		says.Status = &configv1.DispatcherStatus{}
	}
	says.Status.DispatcherId = id
	value, err := protojson.Marshal(says)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.client.Put(f.t.Context(), etcdstore.DefaultPrefix+"dispatchers/"+id, string(value), clientv3.WithLease(lease.ID)); err != nil {
		f.t.Fatal(err)
	}
	return func() {
		f.t.Helper()
		if _, err := f.client.Revoke(f.t.Context(), lease.ID); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestAWaitNamesWhoHangsAndEndsWhenItsLeaseDoes: a dispatcher whose lease has lapsed judges nothing any more.
func TestAWaitNamesWhoHangsAndEndsWhenItsLeaseDoes(t *testing.T) {
	f := newFixture(t)
	first := number(f.applied("root", policy("p", "failurePolicy: Ignore")).GetRevision().GetSources()["etcd"])
	one, _ := f.dispatcher("one")
	two, _ := f.dispatcher("two")
	die := f.hang("three", said("three", first, first))
	next := f.applied("root", policy("p", "failurePolicy: Fail")).GetRevision()
	second := number(next.GetSources()["etcd"])

	news, ended := make(chan *configv1.WaitResponse, 100), make(chan error, 1)
	go func() {
		err := f.Wait(&configv1.WaitRequest{Revision: next}, &listens{ctx: f.as("root"), taken: func(r *configv1.WaitResponse) { news <- r }})
		close(news)
		ended <- err
	}()
	one.Tell(said("one", second, second))
	two.Tell(said("two", second, second))
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
	var last *configv1.WaitResponse
	for r := range news {
		last = r
	}
	if !last.GetDone() || len(last.GetDispatchers()) != 2 {
		t.Errorf("at the end it said %v", last)
	}
	f.conditions(map[string]string{"Effective": "True Applied"})
}
