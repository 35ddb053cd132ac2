package outbound

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// attempt is one call of a webhook, with its retries.
type attempt struct {
	*endpoint
	call     *call
	question jsonreview.Question // without a version for conversions
	body     jsonreview.Body
	timeout  time.Duration // in the query of the last request, or of the first one before it is sent
	received bool          // a connection was had: the webhook may have seen the review
	kept     jsonreview.Kept
	harmless bool // the webhook may see the review twice
}

func newAttempt(e *endpoint, x *call, b jsonreview.Body) *attempt {
	return &attempt{endpoint: e, call: x, body: b, timeout: jsonreview.Timeout(time.Until(x.Deadline))}
}

// location is the URL of the request.
func (a *attempt) location() *url.URL {
	return jsonreview.Location(&a.url, a.timeout)
}

// prepare makes the attempt of a review.
func (c *Client) prepare(ctx context.Context, x *call) (*attempt, *review.Failure) {
	version := jsonreview.Negotiate(x.Hook.ID.Stage, x.Hook.ReviewVersions)
	if version == "" {
		return nil, notStarted(failure(review.FailureUnavailable,
			"the webhook takes none of the AdmissionReview versions that are spoken here (v1, v1beta1, and v1alpha1 with those that validate): it takes %q",
			x.Hook.ReviewVersions))
	}
	encoded, err := x.review.In(version)
	if err != nil {
		return nil, notStarted(failure(review.FailureRefused, "%w", err))
	}
	e, err := c.locate(ctx, x.cluster, &x.Hook.ClientConfig)
	if err != nil {
		return nil, notStarted(failure(review.FailureUnavailable, "%w", err))
	}
	uid := uuid.NewString()
	a := newAttempt(e, x, jsonreview.NewBody(encoded, uid))
	a.harmless = x.Hook.WithoutSideEffects(x.request)
	a.question = jsonreview.Question{Stage: x.Hook.ID.Stage, Version: version, UID: uid}
	return a, nil
}

// send sends the request and reads the answer, again when the webhook asks for it and has not denied the review.
func (c *Client) send(ctx context.Context, t *target, a *attempt) (*jsonreview.Answer, *review.Failure) {
	ctx = httptrace.WithClientTrace(ctx, a.kept.Trace())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		a.received = true
		c.limit.connected(&a.call.permit, !got.Reused)
	}})
	transport := t.transport.Load()
	for retries := 0; ; retries++ {
		resp, err := c.roundTrip(ctx, transport, a) //nolint:bodyclose // ReadAnswer closes it
		if err != nil {
			return nil, a.unanswered(ctx, err)
		}
		a.call.unbook() // the answer before asked for a retry
		got := jsonreview.ReadAnswer(resp, c.options.limits.answerBytes, a.call.book)
		pause, again := a.question.Again(got, retries, c.options.RetryInterval, time.Now(), a.call.Deadline)
		if !again {
			return got, nil
		}
		c.metrics.retries.Inc()
		if !clock.Sleep(ctx, pause) {
			return nil, a.endOf(ctx, "waiting to retry, as the webhook asked with HTTP "+strconv.Itoa(resp.StatusCode))
		}
	}
}

// roundTrip sends the request, once more on a new connection if it was lost with a kept one and the hook has no side effects.
func (c *Client) roundTrip(ctx context.Context, transport *targetTransport, a *attempt) (*http.Response, error) {
	for {
		begun := time.Now()
		resp, err := transport.RoundTrip(a.request(ctx, c.options.Propagator))
		switch {
		case err == nil:
			return resp, nil
		case a.harmless && ctx.Err() == nil && a.kept.Repeat():
			transport.closeIdle()
			continue
		case !a.received && (ctx.Err() == nil || time.Since(begun) >= minConnectWait):
			c.limit.failed(&a.call.permit)
		}
		return nil, err
	}
}

func (a *attempt) request(ctx context.Context, propagator propagation.TextMapPropagator) *http.Request {
	a.timeout = jsonreview.Timeout(time.Until(a.call.Deadline))
	r := jsonreview.NewRequest(ctx, &a.url, a.body, a.timeout)
	a.direct(r)
	if a.call.Span.IsValid() {
		propagator.Inject(trace.ContextWithSpanContext(ctx, a.call.Span), propagation.HeaderCarrier(r.Header))
	}
	return r
}
