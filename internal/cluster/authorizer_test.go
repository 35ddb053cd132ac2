package cluster

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// question is an access check that a condition makes for a user.
func question(name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, Groups: []string{"dev"}, Extra: map[string][]string{"a": {"b"}}},
		Verb: "get", Namespace: "shop", APIGroup: "apps", Resource: "deployments", Subresource: "scale", Name: "web", ResourceRequest: true,
	}
}

func TestPermissionsAreThoseOfTheCluster(t *testing.T) {
	s := newAPIServer(t)
	var asks atomic.Int32
	var last atomic.Pointer[authorizationv1.SubjectAccessReviewSpec]
	s.reviews = func(spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int) {
		asks.Add(1)
		last.Store(&spec)
		switch spec.User {
		case "alice":
			return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "RBAC"}, http.StatusCreated
		case "mallory":
			return authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "no"}, http.StatusCreated
		case "nobody":
			return authorizationv1.SubjectAccessReviewStatus{}, http.StatusForbidden
		}
		return authorizationv1.SubjectAccessReviewStatus{}, http.StatusCreated
	}
	r, c := asked(t, s, withKubernetes())
	known(t, r)
	if asks.Load() != 0 {
		t.Error("asked before anybody wanted to know")
	}
	for _, tc := range []struct {
		name string
		want authorizer.Decision
		err  bool
	}{
		{"alice", authorizer.DecisionAllow, false}, {"mallory", authorizer.DecisionDeny, false},
		{"bob", authorizer.DecisionNoOpinion, false}, {"nobody", authorizer.DecisionNoOpinion, true},
	} {
		got, _, err := c.Authorizer().Authorize(t.Context(), question(tc.name))
		if got != tc.want || (err != nil) != tc.err {
			t.Errorf("%s: %v, %v", tc.name, got, err)
		}
	}
	want := &authorizationv1.SubjectAccessReviewSpec{
		User: "nobody", Groups: []string{"dev"}, Extra: map[string]authorizationv1.ExtraValue{"a": {"b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "shop", Verb: "get", Group: "apps", Resource: "deployments", Subresource: "scale", Name: "web",
		},
	}
	if diff := cmp.Diff(want, last.Load()); diff != "" {
		t.Error("asked (-want +got):\n" + diff)
	}
	before := asks.Load()
	for range 10 {
		if got, _, err := c.Authorizer().Authorize(t.Context(), question("alice")); got != authorizer.DecisionAllow || err != nil {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if asks.Load() != before {
		t.Errorf("asked %d times what was known", asks.Load()-before)
	}
}

func TestWithoutAConnectionNobodyIsAllowed(t *testing.T) {
	r := New(Options{}) // nothing runs
	r.Update([]*kinds.Cluster{wholeDocument("/nowhere")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, _, err := r.Cluster("prod").Authorizer().Authorize(ctx, question("alice")); got != authorizer.DecisionNoOpinion || err == nil {
		t.Errorf("never connected: %v, %v", got, err)
	}
	r = running(t)
	r.Update([]*kinds.Cluster{wholeDocument("/nowhere")})
	if got, _, err := r.Cluster("prod").Authorizer().Authorize(t.Context(), question("alice")); got != authorizer.DecisionNoOpinion || err == nil {
		t.Errorf("without a kubeconfig: %v, %v", got, err)
	}
}

func TestAccessReviewsAreBoundedAndEndWithTheirContext(t *testing.T) {
	s := newAPIServer(t)
	entered, release := make(chan struct{}, 2*MaxAccessReviews), make(chan struct{})
	s.reviews = func(authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int) {
		entered <- struct{}{}
		<-release
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, http.StatusCreated
	}
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	r, c := asked(t, s, withKubernetes())
	known(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	ask := func(name string) {
		wg.Go(func() {
			if got, _, err := c.Authorizer().Authorize(ctx, question(name)); got != authorizer.DecisionNoOpinion || err == nil {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		})
	}
	for i := range MaxAccessReviews + 5 {
		ask(string(rune('A' + i)))
	}
	for range MaxAccessReviews {
		<-entered
	}
	select {
	case <-entered:
		t.Error("more at the same time")
	default:
	}
	cancel()
	wg.Wait()
}
