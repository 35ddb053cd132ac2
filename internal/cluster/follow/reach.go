package follow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// reach finds out whether the mesh reaches webhooks, in goroutines of its own. Its methods may be called concurrently.
type reach struct {
	ask     func(context.Context, *admissionregistrationv1.WebhookClientConfig) error
	now     func() time.Time
	changed chan<- struct{} // gets a token after an answer

	wait   sync.WaitGroup
	mu     sync.Mutex
	checks map[config.Key]*check // by the key of the copy
}

// check is the answer about the addresses of one object.
type check struct {
	addresses []*admissionregistrationv1.WebhookClientConfig
	done      bool
	reason    string // why one is not reached
	at        time.Time
}

// check returns why the mesh does not reach an address; checking means that this is not known yet. A failed check is made again after
// RetryInterval. ctx ends the check, not the call.
func (r *reach) check(ctx context.Context, key config.Key, addresses []*admissionregistrationv1.WebhookClientConfig) (reason string, checking bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.checks[key]
	switch {
	case c == nil, c.done && !apiequality.Semantic.DeepEqual(c.addresses, addresses):
		r.begin(ctx, key, addresses)
		return "", true
	case c.done && c.reason != "" && r.now().Sub(c.at) >= RetryInterval:
		reason = c.reason
		r.begin(ctx, key, addresses)
		r.checks[key].reason = reason // until the next answer
		return reason, false
	}
	return c.reason, !c.done && c.reason == ""
}

// forget drops the answer about an object that is gone. A check of it that has begun ends by itself.
func (r *reach) forget(key config.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.checks, key)
}

func (r *reach) begin(ctx context.Context, key config.Key, addresses []*admissionregistrationv1.WebhookClientConfig) {
	c := &check{addresses: addresses}
	r.checks[key] = c
	r.wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		reason := r.first(ctx, addresses)
		r.mu.Lock()
		c.done, c.reason, c.at = true, reason, r.now()
		r.mu.Unlock()
		select {
		case r.changed <- struct{}{}:
		default:
		}
	})
}

// first returns why an address is not reached; empty if all are reached. It checks each address once.
func (r *reach) first(ctx context.Context, addresses []*admissionregistrationv1.WebhookClientConfig) string {
	var asked []*admissionregistrationv1.WebhookClientConfig
	for i, a := range addresses {
		if slices.ContainsFunc(asked, func(b *admissionregistrationv1.WebhookClientConfig) bool { return apiequality.Semantic.DeepEqual(a, b) }) {
			continue
		}
		asked = append(asked, a)
		if err := r.ask(ctx, a); err != nil {
			return fmt.Sprintf("the mesh does not reach webhooks[%d]: %v (a clientConfig.service is a Service of the cluster: "+
				"give its address to `portcullis serve --webhook-service CLUSTER/NAMESPACE/NAME=HOST:PORT`)", i, err)
		}
	}
	return ""
}
