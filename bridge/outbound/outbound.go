// Package outbound calls the hooks that are ordinary admission webhooks: an AdmissionReview as JSON in a POST over HTTPS,
// as kube-apiserver sends it. The request, the answers that count, and the retries follow the clients of
// k8s.io/apiserver/pkg/util/webhook and the callHook of k8s.io/apiserver/pkg/admission/plugin/webhook/{validating,mutating};
// the differences are on purpose:
//
//   - A denial is read first and stays one, whatever else is wrong with the answer: its HTTP status, its length, the
//     rest of the JSON, and Retry-After (docs/deviations.md, D1).
//   - Redirects are not followed, answers are bounded, and so are calls in progress and calls that wait. No cluster takes these
//     from the others: see callLimit.
//   - A hook that points at kubernetes.default.svc is never called with the credentials of this process.
//   - Addresses of this machine and link-local ones are refused unless the operator has named their network: see [Options.Networks].
//
// A [Client] is the [review.Backend] of these hooks. The review is written once for all hooks of a call set that take the
// same version; objects are sent from where they lie in the body of the caller. Each call has a goroutine, which ends with
// the call; [Client.Close] waits for all of them and closes every connection.
package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Options configure a client. The zero value is usable.
type Options struct {
	// Resolver finds the addresses of services; nil means ClusterDNS.
	Resolver Resolver
	// Identities finds the credentials for a webhook by its host and port; nil means none. See Kubeconfig.
	Identities webhookutil.AuthenticationInfoResolver
	// RetryInterval is the least time before a call is sent again as the webhook asks; 0 means
	// jsonreview.DefaultRetryInterval.
	RetryInterval time.Duration
	// Propagator writes the trace of a call into the headers of its request; nil means W3C Trace Context.
	Propagator propagation.TextMapPropagator
	// Metrics registers the instruments; nil means none.
	Metrics prometheus.Registerer
	// Memory books the answers of conversion webhooks while they are read; nil books nothing. The answer of a hook is booked to the
	// reservation of its review.
	Memory *memory.Ledger
	// Networks allow addresses that are refused otherwise: loopback, link-local, multicast and unspecified ones, and the addresses of this
	// machine. Each address is compared when it is dialled, after DNS. The operator writes proxies, and addresses of a Resolver that are
	// not the DNS name of the service: neither is refused.
	Networks []netip.Prefix
	// Refused are more networks where webhooks are not called: other parts of the mesh, and those that the operator names. It is called for each
	// address that is dialled, from any goroutine. Nil means none. Networks has precedence.
	Refused func() []netip.Prefix

	own    func() ([]net.Addr, error) // the addresses of this machine; nil asks its interfaces
	limits limits
	proxy  func(*http.Request) (*url.URL, error) // nil means the environment's, with CIDRs in NO_PROXY, as kube-apiserver
}

func (o *Options) defaults() {
	if o.Resolver == nil {
		o.Resolver = ClusterDNS{}
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	if o.Identities == nil {
		o.Identities = noIdentities()
	}
	if o.proxy == nil {
		o.proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	if o.own == nil {
		o.own = net.InterfaceAddrs
	}
	o.RetryInterval = cmp.Or(o.RetryInterval, jsonreview.DefaultRetryInterval)
	o.limits = o.limits.withDefaults()
}

var errClosed = errors.New("webhooks are no longer called: this process is stopping")

// Client calls webhooks. It is safe for concurrent use.
type Client struct {
	options     Options
	limit       *callLimit
	targets     *targets
	calls       *tracker // until the end of their goroutines
	connections *tracker // and attempts to open one
	metrics     *instrumentation
}

var _ review.Backend = (*Client)(nil)

// New makes a client. It does no I/O. Its owner closes it.
func New(o Options) (*Client, error) {
	o.defaults()
	c := &Client{
		options:     o,
		limit:       newCallLimit(o.limits.calls, o.limits.waiting),
		calls:       newTracker(),
		connections: newTracker(),
	}
	c.targets = newTargets(o.limits, c.open)
	var err error
	if c.metrics, err = newInstrumentation(o.Metrics, c); err != nil {
		return nil, fmt.Errorf("outbound: %w", err)
	}
	return c, nil
}

// Start implements [review.Backend]: each call gets a goroutine, as long as there are not too many.
func (c *Client) Start(ctx context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	calls := make([]call, len(b.Calls))
	encoded, now := jsonreview.New(b.Request), time.Now()
	for i := range calls {
		x := &calls[i]
		x.Call, x.cluster, x.reservation = b.Calls[i], b.Request.GetCluster(), b.Reservation
		x.request, x.review = b.Request, encoded
		x.begun, x.done = now, func(r review.Result) { done(i, r) }
		own, cancel := context.WithDeadline(context.WithoutCancel(ctx), x.Deadline)
		x.cancel = cancel
		if f := c.enter(x); f != nil {
			x.finish(review.Result{Failure: f})
			continue
		}
		go c.run(own, x)
	}
	return func(i int) {
		cancelled := review.Cancelled()
		cancelled.Timing = calls[i].timing(time.Now())
		calls[i].finish(cancelled)
	}
}

// Close ends the calls that are left, waits until they have ended or ctx has, and closes all connections. Later calls fail at
// once. It may be called more than once.
func (c *Client) Close(ctx context.Context) error {
	err := c.calls.close(ctx)
	if err != nil {
		err = fmt.Errorf("webhook calls did not end: %w", err)
	}
	c.targets.close()
	if open := c.connections.close(ctx); open != nil {
		err = errors.Join(err, fmt.Errorf("%d connections did not end: %w", c.connections.len(), open))
	}
	if err != nil {
		return fmt.Errorf("outbound: %w", err)
	}
	return nil
}
