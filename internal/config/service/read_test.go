package service_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

var policyKey = &configv1.ConfigKey{Kind: "ValidatingWebhookConfiguration", Name: "p"}

func (f *fixture) as(who string) context.Context {
	return context.WithValue(f.t.Context(), caller{}, who)
}

// dispatcher is a live dispatcher, which writes the reports that it is given.
func (f *fixture) dispatcher(id string) (*etcdstore.Presence, func()) {
	f.t.Helper()
	p, err := f.store.Presence(etcdstore.PresenceOptions{ID: id})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	leave := sync.OnceFunc(func() { stop(); running.Wait() })
	f.t.Cleanup(leave)
	return p, leave
}

// conditions waits until the conditions of the policy are as wanted: by type, status and reason.
func (f *fixture) conditions(want map[string]string) {
	f.t.Helper()
	f.until(func() bool {
		a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: policyKey})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, c := range a.GetObject().GetConditions() {
			if w, ok := want[c.GetType()]; ok && w != c.GetStatus()+" "+c.GetReason() {
				return false
			}
		}
		return true
	})
}

// until waits for something.
func (f *fixture) until(is func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) {
			f.t.Fatal("it has not come in a minute")
		}
		<-time.After(5 * time.Millisecond)
	}
}

func said(id string, revision, held int64, diverging ...string) *configv1.DispatcherReport {
	return &configv1.DispatcherReport{Status: &configv1.DispatcherStatus{
		DispatcherId: id, Applied: &configv1.Revision{Sources: map[string]string{"etcd": formatted(revision)}}, Held: formatted(held), Judging: true, Diverging: diverging,
	}}
}

func TestConditionsSayWhereAnObjectIsInForce(t *testing.T) {
	f := newFixture(t)
	f.applied("root", policy("p", ""))
	f.conditions(map[string]string{"Accepted": "True Valid", "InRotation": "False Pending", "Effective": "Unknown NoDispatcher"})
	state, err := f.store.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := f.dispatcher("one")
	two, leave := f.dispatcher("two")
	one.Tell(said("one", state.Revision, state.Revision))
	two.Tell(said("two", state.Revision-1, 0))
	f.conditions(map[string]string{"Effective": "False Behind"})
	two.Tell(said("two", state.Revision, 0, "ValidatingWebhookConfiguration/p"))
	f.conditions(map[string]string{"Effective": "False Diverging"})
	leave()
	f.conditions(map[string]string{"Effective": "True Applied"})
}

func TestARemovalEndsWhenNoReviewIsJudgedByIt(t *testing.T) {
	f := newFixture(t)
	f.applied("root", policy("p", ""))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	defer running.Wait()
	defer stop()
	before, err := f.store.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := f.dispatcher("one")
	one.Tell(said("one", before.Revision, before.Revision))
	if _, err := f.Delete(f.as("root"), &configv1.DeleteRequest{Key: policyKey, ExpectedResourceVersion: "1"}); status.Code(err) != codes.Aborted {
		t.Errorf("error %v, want that it is not as expected", err)
	}
	removal, err := f.Delete(f.as("root"), &configv1.DeleteRequest{Key: policyKey})
	if err != nil {
		t.Fatal(err)
	}
	f.conditions(map[string]string{"InRotation": "False Removing"})
	if again, err := f.Delete(f.as("root"), &configv1.DeleteRequest{Key: policyKey}); err != nil || again.GetRevision().GetSources()["etcd"] != removal.GetRevision().GetSources()["etcd"] {
		t.Errorf("deleted again: %v, %v", again, err)
	}
	f.refused(codes.FailedPrecondition, "is being removed", "root", policy("p", ""))

	waited := &waits{ctx: f.as("root")}
	revision := number(removal.GetRevision().GetSources()["etcd"])
	one.Tell(said("one", revision, before.Revision)) // knows it, and has a review that began before
	f.conditions(map[string]string{"InRotation": "False Removing"})
	one.Tell(said("one", revision, revision))
	if err := f.Wait(&configv1.WaitRequest{Revision: removal.GetRevision(), Released: true}, waited); err != nil || !waited.last.GetDone() {
		t.Errorf("waited for it: %v, %v", waited.last, err)
	}
	f.applied("root", policy("p", ""), expecting("0"))
}

// TestMoreRemovalsEndTogetherThanATransactionTakes: an etcd that is not embedded takes 128 operations in one by default.
func TestMoreRemovalsEndTogetherThanATransactionTakes(t *testing.T) {
	t.Parallel()
	const removals, appliedTogether = 150, 40
	f := newFixtureOf(t, etcdtest.Start(t).Store(), nil)
	var documents []string
	for i := range removals {
		documents = append(documents, policy(fmt.Sprint("p", i), ""))
	}
	for some := range slices.Chunk(documents, appliedTogether) {
		f.applied("root", strings.Join(some, "\n---\n"))
	}
	for i := range removals {
		key := &configv1.ConfigKey{Kind: policyKey.GetKind(), Name: fmt.Sprint("p", i)}
		if _, err := f.Delete(f.as("root"), &configv1.DeleteRequest{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	defer running.Wait()
	defer stop()
	f.until(func() bool {
		state, err := f.store.Read(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(slices.Collect(maps.Values(state.Records)), func(r *etcdstore.Record) bool { return r.Removing })
	})
	f.applied("root", documents[0])
}

func TestOnlyWhoHasARoleMayRead(t *testing.T) {
	f := newFixture(t)
	if _, err := f.List(f.as("ann"), &configv1.ListRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("error %v", err)
	}
	if _, err := f.List(f.as(""), &configv1.ListRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("error %v", err)
	}
}

// waits takes the messages of Wait.
type waits struct {
	grpc.ServerStreamingServer[configv1.WaitResponse]

	ctx  context.Context
	last *configv1.WaitResponse
}

func (w *waits) Context() context.Context { return w.ctx }

func (w *waits) Send(r *configv1.WaitResponse) error { w.last = r; return nil }
