package cluster

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
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

// TestPermissionsTakeLittleMemory has an API server answer with 1 MiB for each user, and users who are in many groups.
func TestPermissionsTakeLittleMemory(t *testing.T) {
	s := newAPIServer(t)
	s.reviews = func(authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int) {
		long := strings.Repeat("because ", 1<<17)
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: long, EvaluationError: long}, http.StatusCreated
	}
	ledger, err := memory.New(memory.Options{Total: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	o := withKubernetes()
	o.Memory = ledger
	r, c := asked(t, s, o)
	known(t, r)
	before, heap := ledger.InUse(), heapInUse()
	const users = 30
	for i := range users {
		q := question(fmt.Sprint("user-", i))
		q.User.(*user.DefaultInfo).Groups = slices.Repeat([]string{strings.Repeat("g", 1000)}, 100)
		decision, reason, err := c.Authorizer().Authorize(t.Context(), q)
		if decision != authorizer.DecisionAllow || err != nil {
			t.Fatalf("%v, %v", decision, err)
		}
		if !strings.HasPrefix(reason, "because ") || len(reason) > MaxPermissionReason {
			t.Fatalf("a reason of %d bytes", len(reason))
		}
	}
	if grown := heapInUse() - heap; grown > 8<<20 {
		t.Errorf("%d permissions take %d bytes", users, grown)
	}
	if booked := ledger.InUse() - before; booked < MaxPermissionReason || booked > users*2*MaxPermissionReason {
		t.Errorf("%d permissions are booked with %d bytes", users, booked)
	}
}

// heapInUse is the memory that is alive, in bytes.
func heapInUse() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestPermissionsEndAndAreBounded asks for more permissions than are kept, twice, and again when they are over.
func TestPermissionsEndAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, err := memory.New(memory.Options{Total: 256 << 20})
		if err != nil {
			t.Fatal(err)
		}
		asks := 0
		p := &permissions{
			reservation: func() (*memory.Reservation, error) { return ledger.Reserve("prod", 0) },
			ask: func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				asks++
				return authorizer.DecisionAllow, "RBAC", nil
			},
		}
		askAll := func(n int) {
			t.Helper()
			for i := range n {
				if got, reason, err := p.Authorize(t.Context(), question(fmt.Sprint(i))); got != authorizer.DecisionAllow || reason != "RBAC" || err != nil {
					t.Fatalf("%v, %q, %v", got, reason, err)
				}
			}
		}
		askAll(10)
		time.Sleep(PermissionFor - 1) //nolint:forbidigo // of the bubble
		if askAll(10); asks != 10 {
			t.Errorf("asked %d times for 10 permissions", asks)
		}
		time.Sleep(time.Nanosecond) //nolint:forbidigo // of the bubble
		if askAll(10); asks != 20 {
			t.Errorf("asked %d times when they were over, want 20", asks)
		}
		askAll(5 * MaxPermissions)
		if n := len(p.current) + len(p.before); n > 2*MaxPermissions {
			t.Errorf("%d are kept, want %d at most", n, 2*MaxPermissions)
		}
		if kept := int64(len(p.current)+len(p.before)) * (permissionBytes + 4); ledger.InUse() != kept {
			t.Errorf("%d bytes are booked, want %d", ledger.InUse(), kept)
		}
		time.Sleep(2 * PermissionFor) //nolint:forbidigo // of the bubble
		askAll(1)
		if booked := ledger.InUse(); booked != permissionBytes+4 {
			t.Errorf("%d bytes stay booked for permissions that are over", booked)
		}
		if p.release(); ledger.InUse() != 0 {
			t.Errorf("%d bytes stay booked after the end of the connection", ledger.InUse())
		}
	})
}

// TestPermissionsDifferInEachAttribute has two questions that differ in one attribute, which share no answer.
func TestPermissionsDifferInEachAttribute(t *testing.T) {
	asks := 0
	p := &permissions{
		reservation: func() (*memory.Reservation, error) { return nil, nil }, //nolint:nilnil // a nil reservation books nothing
		ask: func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			asks++
			return authorizer.DecisionAllow, "", nil
		},
	}
	questions := []func(*authorizer.AttributesRecord, *user.DefaultInfo){
		func(*authorizer.AttributesRecord, *user.DefaultInfo) {},
		func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Name = "bob" },
		func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.UID = "1" },
		func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Groups = []string{"dev", "ops"} },
		func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Extra = map[string][]string{"a": {"c"}} },
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Verb = "list" },
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Namespace = "bank" },
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.APIGroup = "batch" },
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.APIVersion = "v1" },
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Resource = "pods" },
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Subresource = "" },
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Name = "db" },
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.ResourceRequest = false },
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) {
			a.ResourceRequest, a.Path = false, "/healthz"
		},
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) {
			a.FieldSelectorRequirements = fields.Requirements{{Operator: selection.Equals, Field: "spec.nodeName", Value: "n1"}}
		},
		func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) {
			a.LabelSelectorRequirements, _ = labels.ParseToRequirements("app in (web)")
		},
	}
	for range 2 {
		for _, change := range questions {
			q := question("alice")
			change(&q, q.User.(*user.DefaultInfo))
			if _, _, err := p.Authorize(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		if asks != len(questions) {
			t.Fatalf("asked %d times for %d questions", asks, len(questions))
		}
	}
	if _, _, err := p.Authorize(t.Context(), authorizer.AttributesRecord{Verb: "get"}); err != nil || asks != len(questions)+1 {
		t.Errorf("without a user: %v, asked %d times", err, asks)
	}
}
