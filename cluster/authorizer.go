package cluster

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

const (
	// AllowedFor is how long a permission that the cluster told counts: that of the API servers which delegate their
	// authorization (DelegatingAuthorizationOptions of k8s.io/apiserver).
	AllowedFor = 10 * time.Second
	// DeniedFor is how long it counts that there is none.
	DeniedFor = 10 * time.Second
	// MaxAccessReviews bounds the SubjectAccessReviews that one cluster gets from us at the same time. More wait.
	MaxAccessReviews = 32
)

// newPermissions returns what asks a cluster for permissions as an API server does that delegates its authorization, with
// SubjectAccessReviews. What the cluster answered is kept for a while.
func newPermissions(config *rest.Config, transport http.RoundTripper) (authorizer.Authorizer, error) {
	client, err := authorizationv1.NewForConfigAndClient(config, &http.Client{Transport: bounded(MaxAccessReviews, transport)})
	if err != nil {
		return nil, fmt.Errorf("permissions: %w", err)
	}
	a, err := webhook.NewFromInterface(client, AllowedFor, DeniedFor, *webhook.DefaultRetryBackoff(),
		authorizer.DecisionNoOpinion, metrics.NoopAuthorizerMetrics{}, authorizationcel.NewDefaultCompiler())
	if err != nil {
		return nil, fmt.Errorf("permissions: %w", err)
	}
	return a, nil
}

// bounded lets so many requests through at a time. Those that wait end with their context.
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
