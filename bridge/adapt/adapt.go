// Package adapt serves ordinary admission webhooks as hooks of a host, without a changed line: [Handler] an http.Handler of this
// process, as webhooks of controller-runtime are, and [Forward] a webhook behind a network. Either one gets the AdmissionReview that
// an API server would send, and its answer has the meaning that it has when the mesh calls a webhook itself: package jsonreview has
// the rules for both.
//
//	hostsdk.Mutate("labels.example.com", adapt.Handler(&webhook.Admission{Handler: labeller}, adapt.Options{}))
//
// Objects are sent as the bytes that came. Each call has a uid of its own, since that is all by which a webhook can tell two calls
// of one review apart. The package is light: it needs the types of admission.k8s.io, and neither controller-runtime nor client-go.
package adapt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// defaultTimeout is for a context without a deadline, which a host never has: the default of timeoutSeconds.
const defaultTimeout = 10 * time.Second

// Options configure the calls of a webhook. The zero value is good for most.
type Options struct {
	// ReviewVersions are the admissionReviewVersions of the webhook, best first; nil means v1.
	ReviewVersions []string
	// SideEffects is as in the webhook configuration. With "None", or "NoneOnDryRun" in a dry run, a request that was lost with a kept
	// connection is sent once more; empty means that the webhook may have side effects.
	SideEffects string
	// Path of the URL that [Handler] asks for; empty means "/". Forward has it in its address.
	Path string
	// RetryInterval is the least time before a call is sent again as the webhook asks; 0 means jsonreview.DefaultRetryInterval.
	RetryInterval time.Duration
	// Propagator writes the trace of a call into the headers of its request; nil means W3C Trace Context.
	Propagator propagation.TextMapPropagator
	// Observer learns of each call; nil means none.
	Observer Observer
}

// Observer learns of the calls of a webhook. It is called from the goroutine of the call, so from many at once.
type Observer interface {
	// Began is called when a call is about to be sent.
	Began()
	// Ended is called once after Began.
	Ended(c Call)
}

// Call is a call that has ended.
type Call struct {
	// Hook and Stage identify the hook.
	Hook  string
	Stage hostsdk.Stage
	// Began is when the call was sent, Ended when it was over, and Deadline when it would have been too late.
	Began, Ended, Deadline time.Time
	// Outcome is how it ended.
	Outcome Outcome
}

// Handler serves a webhook that is an http.Handler. The handler runs in the goroutine of the call. It should end when the
// context of its request does.
func Handler(h http.Handler, o Options) hostsdk.Handler {
	return Forward(inProcess{h}, &url.URL{Scheme: "http", Host: "localhost", Path: cmp.Or(o.Path, "/")}, o)
}

// Forward serves a webhook to which network sends requests. at is its address, without a query.
func Forward(network http.RoundTripper, at *url.URL, o Options) hostsdk.Handler {
	if o.ReviewVersions == nil {
		o.ReviewVersions = []string{"v1"}
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	o.RetryInterval = cmp.Or(o.RetryInterval, jsonreview.DefaultRetryInterval)
	return (&webhook{Options: o, network: network, at: *at}).judge
}

type unobserved struct{}

func (unobserved) Began()     {}
func (unobserved) Ended(Call) {}

// webhook is a webhook behind a network. Safe for concurrent use.
type webhook struct {
	Options

	network http.RoundTripper
	at      url.URL
}

// exchange is one call of a webhook, with its retries.
type exchange struct {
	*webhook

	question jsonreview.Question
	body     jsonreview.Body
	deadline time.Time
	timeout  time.Duration

	// The webhook may have seen the review: it has answered before, or there is a connection. net/http tries another connection
	// only if nothing was written to the one before (shouldRetryRequest, for a POST).
	answered, connected bool
	kept                jsonreview.Kept
	harmless            bool // the webhook may see the review twice
}

// judge is a hostsdk.Handler.
func (w *webhook) judge(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
	x, err := w.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	ended := Call{Hook: r.Hook, Stage: r.Stage, Began: time.Now(), Deadline: x.deadline}
	w.Observer.Began()
	defer func() { // also after a panic of an http.Handler
		ended.Ended = time.Now()
		w.Observer.Ended(ended)
	}()
	ended.Outcome = Broken
	response, outcome, err := x.verdict(ctx)
	ended.Outcome = outcome
	return response, err
}

func (w *webhook) prepare(ctx context.Context, r *hostsdk.Request) (*exchange, error) {
	version := jsonreview.Negotiate(stageOf(r.Stage), w.ReviewVersions)
	if version == "" {
		return nil, hostsdk.NotStarted(fmt.Sprintf("the host speaks none of the AdmissionReview versions %q to the webhook", w.ReviewVersions), nil)
	}
	encoded, err := jsonreview.New(r.Admission()).In(version)
	if err != nil {
		return nil, hostsdk.NotStarted(err.Error(), nil)
	}
	deadline, bounded := ctx.Deadline()
	if !bounded {
		deadline = time.Now().Add(defaultTimeout)
	}
	uid := uuid.NewString()
	return &exchange{
		webhook: w, deadline: deadline,
		harmless: w.SideEffects == "None" || w.SideEffects == "NoneOnDryRun" && r.Admission().GetDryRun(),
		body:     jsonreview.NewBody(encoded, uid),
		question: jsonreview.Question{Stage: stageOf(r.Stage), Version: version, UID: uid},
	}, nil
}

// stageOf is the stage in the words of the protocol.
func stageOf(stage hostsdk.Stage) admissionv1.Stage {
	switch stage {
	case hostsdk.StageInitialize:
		return admissionv1.Stage_STAGE_INITIALIZE
	case hostsdk.StageMutate:
		return admissionv1.Stage_STAGE_MUTATE
	case hostsdk.StageValidate:
		return admissionv1.Stage_STAGE_VALIDATE
	default:
		return admissionv1.Stage_STAGE_UNSPECIFIED
	}
}

// verdict sends the review and reads the verdict.
func (x *exchange) verdict(ctx context.Context) (*hostsdk.Response, Outcome, error) {
	answer, err := x.send(ctx)
	if err != nil {
		return x.unanswered(ctx, err)
	}
	verdict, fault := x.question.Verdict(answer)
	switch {
	case fault == nil && verdict.GetAllowed():
		return verbatim(verdict), Allowed, nil
	case fault == nil:
		return verbatim(verdict), Denied, nil
	case ctx.Err() != nil: // An answer that our hanging up cut off is none.
		return x.unanswered(ctx, ctx.Err())
	}
	return nil, outcomeOf(fault), hostsdk.NewError(fault.Err.Error(), nil)
}

// verbatim is a verdict for the stream, where the id of the call takes its place.
func verbatim(verdict *admissionv1.AdmissionResponse) *hostsdk.Response {
	verdict.Uid = ""
	return hostsdk.Verbatim(verdict)
}

// send sends the request and reads the answer, again when the webhook asks for it and has not denied the review.
func (x *exchange) send(ctx context.Context) (*jsonreview.Answer, error) {
	traced := httptrace.WithClientTrace(httptrace.WithClientTrace(ctx, x.kept.Trace()), &httptrace.ClientTrace{
		GetConn: func(string) { x.connected = false },
		GotConn: func(httptrace.GotConnInfo) { x.connected = true },
	})
	for retries := 0; ; retries++ {
		resp, err := x.roundTrip(traced) //nolint:bodyclose // ReadAnswer closes it
		if err != nil {
			return nil, err
		}
		x.answered = true
		got := jsonreview.ReadAnswer(resp, jsonreview.MaxAnswerBytes, nil)
		pause, again := x.question.Again(got, retries, x.RetryInterval, time.Now(), x.deadline)
		if !again {
			return got, nil
		}
		if !clock.Sleep(ctx, pause) {
			return nil, fmt.Errorf("%w, while waiting to retry, as the webhook asked with %s", ctx.Err(), resp.Status)
		}
	}
}

// roundTrip sends the request, once more on a new connection if it was lost with a kept one and the webhook has no side effects.
func (x *exchange) roundTrip(ctx context.Context) (*http.Response, error) {
	for {
		x.timeout = jsonreview.Timeout(time.Until(x.deadline))
		r := jsonreview.NewRequest(ctx, &x.at, x.body, x.timeout)
		x.Propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
		resp, err := x.network.RoundTrip(r)
		if err == nil || !x.harmless || ctx.Err() != nil || !x.kept.Repeat() {
			return resp, err
		}
		(&http.Client{Transport: x.network}).CloseIdleConnections()
	}
}

// unanswered is the end of a call without an answer. Another replica may take the call if the webhook cannot have seen it.
func (x *exchange) unanswered(ctx context.Context, err error) (*hostsdk.Response, Outcome, error) {
	err = &url.Error{Op: "Post", URL: jsonreview.Location(&x.at, x.timeout).Redacted(), Err: err}
	outcome, seen := Lost, x.answered || x.connected
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		outcome = TimedOut
	case ctx.Err() != nil:
		outcome = Cancelled
	case !seen:
		outcome = Unreachable
	}
	if !seen {
		return nil, outcome, hostsdk.NotStarted(err.Error(), nil)
	}
	return nil, outcome, hostsdk.NewError(err.Error(), nil)
}
