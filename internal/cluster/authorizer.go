package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

const (
	// PermissionFor is how long a permission, or the lack of it, counts after the answer, as in API servers that delegate their authorization
	// (DelegatingAuthorizationOptions of k8s.io/apiserver).
	PermissionFor = 10 * time.Second
	// MaxPermissions bounds the permissions of one cluster that are kept: as many of the last PermissionFor, and as many of the time before.
	MaxPermissions = 4096
	// MaxPermissionReason bounds the reason of a permission, in bytes. A longer one is cut. Conditions read it by reason() alone.
	MaxPermissionReason = 1 << 10
	// MaxAccessReviews bounds the SubjectAccessReviews in flight to one cluster. Others wait.
	MaxAccessReviews = 32
)

// permissionBytes is the memory of a kept permission without its reason.
const permissionBytes = 256

// permissions asks a cluster for the permissions of users, and keeps the answers for a time. It may be used concurrently.
//
// The cache of k8s.io/apiserver keeps answers as long as the API server makes them, with the groups and extra of users, until others take their
// place. So it is empty here: the key is a hash, and permissions that are over make room.
type permissions struct {
	// ask sends one SubjectAccessReview.
	ask func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error)
	// reservation opens an empty reservation of the cluster's memory.
	reservation func() (*memory.Reservation, error)

	mu      sync.Mutex
	booked  *memory.Reservation          // for current and before; nil before the first permission
	current map[permissionKey]permission // begun at since
	before  map[permissionKey]permission // as long before
	since   time.Time
}

// permissionKey is the SHA-256 of a question.
type permissionKey [sha256.Size]byte

// permission is an answer.
type permission struct {
	decision authorizer.Decision
	reason   string
	until    time.Time
}

func (p permission) bytes() int64 { return permissionBytes + int64(len(p.reason)) }

// newPermissions returns an authorizer that sends SubjectAccessReviews to a cluster, as an API server does that delegates its
// authorization, and caches the answers.
func newPermissions(c *clients) *permissions {
	ask := func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		once, err := webhook.NewFromInterface(c.reviews, 0, 0, *webhook.DefaultRetryBackoff(), authorizer.DecisionNoOpinion,
			metrics.NoopAuthorizerMetrics{}, nil)
		if err != nil {
			return authorizer.DecisionNoOpinion, "", fmt.Errorf("permissions: %w", err)
		}
		return once.Authorize(ctx, a)
	}
	return &permissions{ask: ask, reservation: c.reserve}
}

// Authorize implements [authorizer.Authorizer].
func (p *permissions) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	key, err := newPermissionKey(a)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("permissions: %w", err)
	}
	if known, ok := p.lookup(key); ok {
		return known.decision, known.reason, nil
	}
	decision, reason, err := p.ask(ctx, a)
	reason = strings.Clone(strings.ToValidUTF8(reason[:min(len(reason), MaxPermissionReason)], ""))
	if err == nil {
		p.keep(key, permission{decision, reason, time.Now().Add(PermissionFor)})
	}
	return decision, reason, err
}

func newPermissionKey(a authorizer.Attributes) (permissionKey, error) {
	fieldSelector, _ := a.GetFieldSelector() // as in a SubjectAccessReview, requirements that cannot be read are left out
	labelSelector, _ := a.GetLabelSelector()
	question := []any{
		a.GetVerb(), a.IsResourceRequest(), a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetName(),
		a.GetPath(), fieldSelector, fmt.Sprint(labelSelector),
	}
	if u := a.GetUser(); u != nil {
		question = append(question, u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
	}
	text, err := json.Marshal(question)
	return sha256.Sum256(text), err
}

func (p *permissions) lookup(key permissionKey) (permission, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.current[key]
	if !ok {
		known, ok = p.before[key]
	}
	return known, ok && time.Now().Before(known.until)
}

// keep keeps a permission, unless the cluster has no memory left.
func (p *permissions) keep(key permissionKey, answer permission) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.booked == nil {
		var err error
		if p.booked, err = p.reservation(); err != nil {
			return
		}
	}
	if now := time.Now(); len(p.current) >= MaxPermissions || now.Sub(p.since) >= PermissionFor {
		p.forget(p.before)
		if p.before = p.current; now.Sub(p.since) >= 2*PermissionFor {
			p.forget(p.before)
			p.before = nil
		}
		p.current, p.since = map[permissionKey]permission{}, now
	}
	if p.booked.Extend(answer.bytes()) != nil {
		return
	}
	if old, ok := p.current[key]; ok { // two reviews have asked at once
		p.booked.Shrink(old.bytes())
	}
	p.current[key] = answer
}

func (p *permissions) forget(over map[permissionKey]permission) {
	for _, o := range over {
		p.booked.Shrink(o.bytes())
	}
}

// release gives the memory back. Nothing is kept after it.
func (p *permissions) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.booked.Release()
	p.booked, p.current, p.before = nil, nil, nil
	p.reservation = func() (*memory.Reservation, error) { return nil, errNotConnected }
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// bounded allows most requests at a time. Waiting ends with the context of a request.
func bounded(most int, transport http.RoundTripper) http.RoundTripper {
	slots := make(chan struct{}, most)
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		select {
		case slots <- struct{}{}:
		case <-r.Context().Done():
			return nil, fmt.Errorf("waiting to ask: %w", context.Cause(r.Context()))
		}
		defer func() { <-slots }()
		return transport.RoundTrip(r)
	})
}
