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
	// AllowedFor is how long a permission is cached, as by API servers that delegate their authorization
	// (DelegatingAuthorizationOptions of k8s.io/apiserver).
	AllowedFor = 10 * time.Second
	// DeniedFor is how long a missing permission is cached.
	DeniedFor = 10 * time.Second
	// MaxAccessReviews bounds the SubjectAccessReviews in flight to one cluster. Others wait.
	MaxAccessReviews = 32
)

// newPermissions returns an authorizer that sends SubjectAccessReviews to a cluster, as an API server does that delegates its
// authorization, and caches the answers.
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
