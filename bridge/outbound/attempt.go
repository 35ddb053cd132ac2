package outbound

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

const userAgent = "portcullis-admission"

// attempt is one call of a webhook, with its retries.
type attempt struct {
	*endpoint
	call     *call
	version  string // of the AdmissionReview; empty for conversions
	uid      string // of the AdmissionReview
	body     pieces
	timeout  time.Duration // in the query of the last request, or of the first one before it is sent
	received bool          // a connection was had: the webhook may have seen the review
}

func newAttempt(e *endpoint, x *call, b pieces) *attempt {
	return &attempt{endpoint: e, call: x, body: b, timeout: queryTimeout(time.Until(x.Deadline))}
}

// location is the URL of the request.
func (a *attempt) location() *url.URL {
	to := a.url
	to.RawQuery = "timeout=" + a.timeout.String()
	return &to
}

// prepare makes the attempt of a review.
func (c *Client) prepare(ctx context.Context, x *call) (*attempt, *review.Failure) {
	version := negotiate(x.Hook)
	if version == "" {
		return nil, notStarted(failure(review.FailureUnavailable,
			"the webhook takes none of the AdmissionReview versions that are spoken here (v1, v1beta1, and v1alpha1 with those that validate): it takes %q",
			x.Hook.ReviewVersions))
	}
	encoded, err := x.review.in(version)
	if err != nil {
		return nil, notStarted(failure(review.FailureRefused, "%w", err))
	}
	e, err := c.locate(ctx, x.cluster, &x.Hook.ClientConfig)
	if err != nil {
		return nil, notStarted(failure(review.FailureUnavailable, "%w", err))
	}
	uid := uuid.NewString()
	a := newAttempt(e, x, reviewBody(encoded, uid))
	a.version, a.uid = version, uid
	return a, nil
}

// send sends the request and reads the answer, again when the webhook asks for it and has not denied the review.
func (c *Client) send(ctx context.Context, t *target, a *attempt) (*answer, *review.Failure) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		a.received = true
		c.limit.connected(&a.call.permit, !got.Reused)
	}})
	transport := t.transport.Load()
	for retries := 0; ; retries++ {
		begun := time.Now()
		resp, err := transport.RoundTrip(a.request(ctx, c.options.Propagator))
		if err != nil {
			if !a.received && (ctx.Err() == nil || time.Since(begun) >= minConnectWait) {
				c.limit.failed(&a.call.permit)
			}
			return nil, a.unanswered(ctx, err)
		}
		got := readAnswer(resp, c.options.limits.answerBytes)
		pause, again := retryAfter(resp)
		pause = max(pause, c.options.RetryInterval)
		if !again || retries == MaxRetries || time.Now().Add(pause).After(a.call.Deadline) || a.denial(got) != nil {
			return got, nil
		}
		c.metrics.retries.Inc()
		if !clock.Sleep(ctx, pause) {
			return nil, a.endOf(ctx, "waiting to retry, as the webhook asked with "+resp.Status)
		}
	}
}

func (a *attempt) request(ctx context.Context, propagator propagation.TextMapPropagator) *http.Request {
	a.timeout = queryTimeout(time.Until(a.call.Deadline))
	to := a.location()
	r := &http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, */*"}, "User-Agent": {userAgent},
		},
		Body:          a.body.open(),
		GetBody:       func() (io.ReadCloser, error) { return a.body.open(), nil },
		ContentLength: a.body.len(),
	}
	if a.call.Span.IsValid() {
		propagator.Inject(trace.ContextWithSpanContext(ctx, a.call.Span), propagation.HeaderCarrier(r.Header))
	}
	return r.WithContext(ctx)
}

// timeoutSlack is how much less than a whole second the time of a call may be that is sent as one: some of it has passed when
// the request is written.
const timeoutSlack = 100 * time.Millisecond

// queryTimeout is the timeout in the query of a request: whole seconds, as kube-apiserver writes them (SEMANTICS C36), at least
// one, and otherwise not more than the call has.
func queryTimeout(d time.Duration) time.Duration {
	return max(d+timeoutSlack, time.Second).Truncate(time.Second)
}

// retryAfter reports whether a webhook asks for a retry, and when: checkWait of k8s.io/client-go/rest.
func retryAfter(resp *http.Response) (pause time.Duration, again bool) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return 0, false
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil {
		return 0, false // Absent, or a date, which client-go does not read either.
	}
	const day = 24 * 60 * 60 // Longer than any call, and no duration overflows.
	return time.Duration(min(max(seconds, 0), day)) * time.Second, true
}
