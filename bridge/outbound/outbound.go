// Package outbound calls the hooks that are ordinary admission webhooks: an AdmissionReview as JSON in a POST over HTTPS,
// as kube-apiserver sends it. What is sent, which answers count, and what is retried follow the clients of
// k8s.io/apiserver/pkg/util/webhook and the callHook of k8s.io/apiserver/pkg/admission/plugin/webhook/{validating,mutating};
// what differs, on purpose:
//
//   - A denial is read first and stays one, whatever else is wrong with the answer: its HTTP status, its length, the
//     rest of the JSON, and Retry-After (docs/deviations.md, D1).
//   - Redirects are not followed, answers are bounded, and so are calls in progress and calls that wait. No cluster takes these
//     from the others: see gate.
//   - A hook that points at kubernetes.default.svc is never called with credentials that nobody configured for it.
//
// A [Client] is the [dispatcher.Backend] of these hooks. The review is written once for all hooks of a batch that take the
// same version; objects are sent from where they lie in the body of the caller. Each call has a goroutine, which ends with
// the call; [Client.Close] waits for all of them and closes every connection.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Options is what a client works with. The zero value is usable.
type Options struct {
	// Resolver finds the addresses of services; nil means ClusterDNS.
	Resolver Resolver
	// Identities says as whom a webhook is called, by its host and port; nil means as nobody. See Kubeconfig.
	Identities webhookutil.AuthenticationInfoResolver
	// Proxy picks the proxy of a request; nil means what the environment says, with CIDRs in NO_PROXY, as kube-apiserver.
	Proxy func(*http.Request) (*url.URL, error)
	// MaxCalls is how many calls are under way at a time, of one cluster at most three times as many as it leaves free; 0 means
	// DefaultMaxCalls.
	MaxCalls int
	// MaxWaiting is how many more calls there are, which wait for their turn; 0 means DefaultMaxWaiting. Of one cluster there are
	// no more calls, under way and waiting, than it leaves room for.
	MaxWaiting int
	// MaxTargetCalls is MaxCalls of one target; 0 means DefaultMaxTargetCalls.
	MaxTargetCalls int
	// MaxTargetWaiting is MaxWaiting of one target; 0 means DefaultMaxTargetWaiting.
	MaxTargetWaiting int
	// MaxTargets is how many targets are remembered with their connections; 0 means DefaultMaxTargets.
	MaxTargets int
	// MaxAnswerBytes is the largest answer, uncompressed; 0 means DefaultMaxAnswerBytes.
	MaxAnswerBytes int
	// RetryInterval is the least time before a call is sent again as the webhook asks; 0 means DefaultRetryInterval.
	RetryInterval time.Duration
	// Metrics registers the instruments; nil means none.
	Metrics prometheus.Registerer
}

func (o *Options) defaults() {
	if o.Resolver == nil {
		o.Resolver = ClusterDNS{}
	}
	if o.Identities == nil {
		o.Identities = anonymous{}
	}
	if o.Proxy == nil {
		o.Proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	for _, limit := range []struct {
		value    *int
		standard int
	}{
		{&o.MaxCalls, DefaultMaxCalls},
		{&o.MaxWaiting, DefaultMaxWaiting},
		{&o.MaxTargetCalls, DefaultMaxTargetCalls},
		{&o.MaxTargetWaiting, DefaultMaxTargetWaiting},
		{&o.MaxTargets, DefaultMaxTargets},
		{&o.MaxAnswerBytes, DefaultMaxAnswerBytes},
	} {
		if *limit.value <= 0 {
			*limit.value = limit.standard
		}
	}
	if o.RetryInterval <= 0 {
		o.RetryInterval = DefaultRetryInterval
	}
}

// errClosed is the failure of calls that outlive their client.
var errClosed = errors.New("webhooks are no longer called: this process is stopping")

// Client calls webhooks. It is safe for concurrent use.
type Client struct {
	options Options
	targets *targets
	network *network
	all     *turnstile // of all calls
	seeing  *instrumentation

	mu      sync.Mutex
	calls   map[*call]struct{} // from Start to the end of their goroutines
	in      fairqueue.Shares   // the calls, by cluster
	closed  bool
	drained chan struct{} // closed when closed is set and no call is left
}

var _ dispatcher.Backend = (*Client)(nil)

// New makes a client. It does no I/O. Whoever makes a client closes it.
func New(o Options) (*Client, error) {
	o.defaults()
	c := &Client{
		options: o,
		network: newNetwork(),
		all:     newTurnstile(o.MaxCalls),
		calls:   make(map[*call]struct{}),
		in:      fairqueue.NewShares(o.MaxCalls+o.MaxWaiting, fairqueue.ArrivalParts),
		drained: make(chan struct{}),
	}
	c.targets = newTargets(o, c.open)
	var err error
	if c.seeing, err = newInstrumentation(o.Metrics, c); err != nil {
		return nil, fmt.Errorf("outbound: %w", err)
	}
	return c, nil
}

// Start implements [dispatcher.Backend]: each call gets a goroutine, as long as there are not too many.
func (c *Client) Start(ctx context.Context, b *dispatcher.Batch, done func(int, review.Result)) func(int) {
	calls := make([]call, len(b.Calls))
	shared := newQuestion(b.Request)
	for i := range calls {
		x := &calls[i]
		x.Call, x.cluster, x.lease, x.question = b.Calls[i], b.Request.GetCluster(), b.Lease, shared
		x.done = func(r review.Result) { done(i, r) }
		own, cancel := context.WithDeadline(context.WithoutCancel(ctx), x.Deadline)
		x.cancel = cancel
		if f := c.enter(x); f != nil {
			x.finish(review.Result{Failure: f})
			continue
		}
		go c.run(own, x)
	}
	return func(i int) { calls[i].finish(review.Fail(review.FailureCancelled, "no longer waited for")) }
}

// enter lets a call in, or says why not.
func (c *Client) enter(x *call) *review.Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return notStarted(review.FailureUnavailable, "%w", errClosed)
	case !c.in.Allows(x.cluster):
		return overload(&c.in, x.cluster, "webhooks")
	}
	c.in.Take(x.cluster)
	x.lease.Retain() // which the review holds
	c.calls[x] = struct{}{}
	return nil
}

// leave is the end of a call that was let in.
func (c *Client) leave(x *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, x)
	c.in.Give(x.cluster)
	x.lease.Release()
	if c.closed && len(c.calls) == 0 {
		close(c.drained)
	}
}

// Close ends the calls that are left, waits until they have ended or ctx has, and closes all connections. Calls that come
// later fail at once. It may be called more than once.
func (c *Client) Close(ctx context.Context) error {
	for _, x := range c.shut() {
		x.finish(review.Fail(review.FailureUnavailable, "%w", errClosed))
	}
	var err error
	select {
	case <-c.drained:
	case <-ctx.Done():
		err = fmt.Errorf("webhook calls did not end: %w", context.Cause(ctx))
	}
	c.targets.close()
	if err = errors.Join(err, c.network.close(ctx)); err != nil {
		return fmt.Errorf("outbound: %w", err)
	}
	return nil
}

// shut lets no call in any more and returns those that are in.
func (c *Client) shut() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && len(c.calls) == 0 {
		close(c.drained)
	}
	c.closed = true
	return slices.Collect(maps.Keys(c.calls))
}
