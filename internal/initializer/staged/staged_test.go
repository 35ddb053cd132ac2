package staged_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// patience bounds the wait for a slow machine.
const patience = 2 * time.Minute

// ttl is the time of leases whose end no test waits for.
const ttl = time.Hour

// etcd starts one, which ends with the test.
func etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Client()
}

// open returns the store of one dispatcher, which runs until the test ends.
func open(t *testing.T, o staged.Options) *staged.Store {
	t.Helper()
	s, err := staged.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return s
}

// pod is an object to be staged.
func pod(cluster, name, uid string) *initializerv1.StagedObject {
	return &initializerv1.StagedObject{
		Key: &initializerv1.StagedKey{
			Cluster: cluster, Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "default", Name: name,
		},
		Uid: uid, Pending: []string{"a.example.com"}, Object: &admissionv1.Object{Raw: fmt.Appendf(nil, `{"metadata":{"name":%q}}`, name)},
		Creator: &admissionv1.UserInfo{Username: "ann"},
	}
}

func create(t *testing.T, s *staged.Store, o *initializerv1.StagedObject) *initializerv1.StagedObject {
	t.Helper()
	created, _, err := s.Create(t.Context(), o, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// changed returns an object with another content.
func changed(o *initializerv1.StagedObject, raw string) *initializerv1.StagedObject {
	return &initializerv1.StagedObject{
		Key: o.GetKey(), Uid: o.GetUid(), Pending: o.GetPending(), Creator: o.GetCreator(), Object: &admissionv1.Object{Raw: []byte(raw)},
	}
}

func update(t *testing.T, s *staged.Store, o *initializerv1.StagedObject, raw string) *initializerv1.StagedObject {
	t.Helper()
	updated, err := s.Update(t.Context(), o.GetKey(), o.GetResourceVersion(), changed(o, raw))
	if err != nil {
		t.Fatal(err)
	}
	return updated
}

func list(t *testing.T, s *staged.Store) ([]*initializerv1.StagedObject, string) {
	t.Helper()
	all, version, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all, version
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Every other dispatcher reads the writes of one, and refuses a write from an older version.
func TestWrites(t *testing.T) {
	client := etcd(t)
	one, other := open(t, staged.Options{Client: client}), open(t, staged.Options{Client: client})
	created := create(t, one, pod("prod", "p", "u1"))
	got, err := other.Get(t.Context(), created.GetKey())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "what another dispatcher gets", created, got)
	all, _ := list(t, other)
	equal(t, "what another dispatcher lists", []*initializerv1.StagedObject{created}, all)

	updated := update(t, other, created, `{"a":1}`)
	if _, err := one.Update(t.Context(), created.GetKey(), created.GetResourceVersion(), changed(created, `{}`)); !errors.Is(err, staged.ErrConflict) {
		t.Errorf("an update of an older version: %v", err)
	}
	for name, wanted := range map[string]struct{ uid, version string }{
		"another uid": {uid: "u2"}, "an older version": {version: created.GetResourceVersion()},
	} {
		if _, err := one.Delete(t.Context(), created.GetKey(), wanted.uid, wanted.version); !errors.Is(err, staged.ErrConflict) {
			t.Errorf("deletion with %s: %v", name, err)
		}
	}
	gone, err := one.Delete(t.Context(), created.GetKey(), "u1", updated.GetResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	if string(gone.GetObject().GetRaw()) != `{"a":1}` || gone.GetResourceVersion() <= updated.GetResourceVersion() {
		t.Errorf("deleted %v", gone)
	}
	if _, err := other.Get(t.Context(), created.GetKey()); !errors.Is(err, staged.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
	if _, err := one.Delete(t.Context(), created.GetKey(), "", ""); !errors.Is(err, staged.ErrNotFound) {
		t.Errorf("a second deletion: %v", err)
	}
	if _, err := one.Update(t.Context(), created.GetKey(), updated.GetResourceVersion(), changed(created, `{}`)); !errors.Is(err, staged.ErrNotFound) {
		t.Errorf("an update after the deletion: %v", err)
	}
	if all, _ := list(t, other); len(all) != 0 {
		t.Errorf("another dispatcher lists %v", all)
	}
}

// Of several that create the same object one does, and the others are told which it is. No version of the resource is another object.
func TestOneOfEachName(t *testing.T) {
	client := etcd(t)
	s := open(t, staged.Options{Client: client})
	created := create(t, s, pod("prod", "p", "u1"))
	second := pod("prod", "p", "u2")
	second.Key.Resource.Version = "v2"
	_, _, err := s.Create(t.Context(), second, ttl)
	var exists *staged.ExistsError
	if !errors.As(err, &exists) {
		t.Fatalf("a second one: %v", err)
	}
	equal(t, "what is there", created, exists.Object)
	leases, err := client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Errorf("%d leases, want that of the first one: %v", len(leases.Leases), err)
	}
}

// A creation that is refused writes nothing to etcd, once the store has heard of the object that is there.
func TestARefusedCreationWritesNothing(t *testing.T) {
	client := etcd(t)
	s := open(t, staged.Options{Client: client})
	entries := func() uint64 {
		status, err := client.Status(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return status.RaftIndex
	}
	create(t, s, pod("prod", "p", "u1"))
	list(t, s) // it has heard of it
	before := entries()
	var exists *staged.ExistsError
	if _, _, err := s.Create(t.Context(), pod("prod", "p", "u2"), ttl); !errors.As(err, &exists) || exists.Object.GetUid() != "u1" {
		t.Errorf("a second one: %v", err)
	}
	if n := entries() - before; n > 0 {
		t.Errorf("it took %d entries of etcd", n)
	}
}

// The end of a lease ends the staging.
func TestNothingStaysWithoutItsLease(t *testing.T) {
	s := open(t, staged.Options{Client: etcd(t)})
	o, lease, err := s.Create(t.Context(), pod("prod", "p", "u1"), ttl)
	if err != nil {
		t.Fatal(err)
	}
	o = update(t, s, o, `{}`)
	if err := s.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.Wait(ctx, o); !errors.Is(err, staged.ErrNotFound) {
		t.Errorf("the wait for a change: %v", err)
	}
	if err := s.Revoke(t.Context(), lease); err != nil {
		t.Errorf("a second end: %v", err)
	}
}
