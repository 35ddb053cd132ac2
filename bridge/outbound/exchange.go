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

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// userAgent is how webhooks know us.
const userAgent = "portcullis-admission"

// exchange is a review on its way to a webhook and back.
type exchange struct {
	*endpoint
	call     *call
	version  string // of the AdmissionReview
	uid      string
	payload  body
	told     time.Duration // the timeout that the webhook was told last, or would have been
	received bool          // a connection was had: the webhook may have seen the review
}

// newExchange makes the exchange of a call.
func newExchange(e *endpoint, x *call, payload body) *exchange {
	return &exchange{endpoint: e, call: x, payload: payload, told: toldTimeout(time.Until(x.Deadline))}
}

// location is the URL of the request.
func (e *exchange) location() *url.URL {
	to := e.url
	to.RawQuery = "timeout=" + e.told.String()
	return &to
}

// body is what is sent, as often as it takes.
type body interface {
	len() int64
	open() io.ReadCloser // from the beginning
}

// prepare finds out what to send, and where to.
func (c *Client) prepare(ctx context.Context, x *call) (*exchange, *review.Failure) {
	version := negotiate(x.Hook)
	if version == "" {
		return nil, notStarted(review.FailureUnavailable,
			"the webhook takes none of the AdmissionReview versions that are spoken here (v1, v1beta1, and v1alpha1 with those that validate): it takes %q",
			x.Hook.ReviewVersions)
	}
	shared, err := x.question.in(version)
	if err != nil {
		return nil, notStarted(review.FailureRefused, "%w", err)
	}
	e, err := c.locate(ctx, x.cluster, &x.Hook.ClientConfig)
	if err != nil {
		return nil, notStarted(review.FailureUnavailable, "%w", err)
	}
	uid := uuid.NewString()
	out := newExchange(e, x, newPayload(shared, uid))
	out.version, out.uid = version, uid
	return out, nil
}

// exchange sends the review and reads the answer.
func (c *Client) exchange(ctx context.Context, t *target, e *exchange) (*admissionv1.AdmissionResponse, *review.Failure) {
	a, f := c.send(ctx, t, e)
	if f != nil {
		return nil, f
	}
	return e.answer(ctx, a)
}

// send sends the review and reads the answer, again when the webhook asks for it and has not denied the request.
func (c *Client) send(ctx context.Context, t *target, e *exchange) (*answer, *review.Failure) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		e.received = true
		c.all.connected(&e.call.pass, !got.Reused)
	}})
	via := t.carrier.Load()
	for attempt := 0; ; attempt++ {
		begun := time.Now()
		resp, err := via.RoundTrip(e.request(ctx))
		if err != nil {
			if !e.received && (ctx.Err() == nil || time.Since(begun) >= MinConnectWait) {
				c.all.failed(&e.call.pass)
			}
			return nil, e.unanswered(ctx, err)
		}
		a := readAnswer(resp, c.options.MaxAnswerBytes)
		pause, again := retryAfter(resp)
		pause = max(pause, c.options.RetryInterval)
		if !again || attempt == MaxRetries || time.Now().Add(pause).After(e.call.Deadline) || e.denial(a) != nil {
			return a, nil
		}
		c.seeing.retries.Inc()
		if !sleep(ctx, pause) {
			return nil, e.endOf(ctx, "waiting to retry, as the webhook asked with "+resp.Status)
		}
	}
}

// request makes one request.
func (e *exchange) request(ctx context.Context) *http.Request {
	e.told = toldTimeout(time.Until(e.call.Deadline))
	to := e.location()
	r := &http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, */*"}, "User-Agent": {userAgent},
		},
		Body:          e.payload.open(),
		GetBody:       func() (io.ReadCloser, error) { return e.payload.open(), nil },
		ContentLength: e.payload.len(),
	}
	if e.call.Span.IsValid() {
		propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(ctx, e.call.Span), propagation.HeaderCarrier(r.Header))
	}
	return r.WithContext(ctx)
}

// toldSlack is how much less than a whole second the time of a call may be that is told as one: some of it has passed when the
// request is written.
const toldSlack = 100 * time.Millisecond

// toldTimeout is the timeout that a webhook is told: whole seconds, as kube-apiserver says them (SEMANTICS C36), and not more
// than it has unless that is less than one.
func toldTimeout(d time.Duration) time.Duration {
	return max(d+toldSlack, time.Second).Truncate(time.Second)
}

// retryAfter says whether a webhook asks to be asked again, and when: checkWait of k8s.io/client-go/rest.
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

// sleep says whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// unanswered is the failure of a call that got no answer.
func (e *exchange) unanswered(ctx context.Context, err error) *review.Failure {
	switch {
	case ctx.Err() != nil && e.received:
		return e.endOf(ctx, "waiting for the answer")
	case ctx.Err() != nil:
		return notYet(e.endOf(ctx, "connecting"))
	case e.received:
		return failure(review.FailureLost, "%w", e.posting(err))
	}
	return notStarted(review.FailureUnavailable, "%w", e.posting(err))
}
