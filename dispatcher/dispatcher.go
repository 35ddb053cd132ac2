// Package dispatcher judges reviews: it takes a fresh configuration, finds the candidates, runs the chain, makes the calls
// and returns the answer. It holds the pieces together and decides little itself: dispatcher/match decides which hooks
// apply, dispatcher/chain the order of calls and the answer, and a [review.Backend] carries the calls. It contains no HTTP, no
// gRPC and no source of configuration.
//
// A [Dispatcher] may be used from any number of goroutines. A review runs on the goroutine of its caller. Shadow calls may
// outlive their review and have goroutines of their own; [Dispatcher.Close] waits for these.
package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
)

const (
	// DefaultTimeout bounds a review whose context has no deadline.
	DefaultTimeout = 10 * time.Second
	// MaxAnswerReserve is the most time before the caller's deadline that hooks do not get, so that the answer is folded,
	// encoded and written in time.
	MaxAnswerReserve = 100 * time.Millisecond
	// minAnswerReserve covers the scheduling delay on a busy machine, and an answer without a patch (microseconds).
	minAnswerReserve = 10 * time.Millisecond
	// patchReserve is added for each byte of an object that hooks may change, to apply the last patch and to compute the
	// difference. Measured: 50 to 140 ns a byte for objects of 20 kB to 1 MB.
	patchReserve = 100 * time.Nanosecond
	// AuditStale is the key of the annotation of an answer that was judged by a stale configuration under a permit.
	AuditStale = "stale-configuration"
)

// Snapshots provides the configuration.
type Snapshots interface {
	// Acquire returns the configuration for a review of a cluster that holds a number of bytes. While the configuration is
	// stale it waits; it returns an error if ctx nears its end first, or if the waiting reviews hold too many bytes. stale is
	// the value of the annotation [AuditStale] if the configuration is stale and a permit allows that, else empty. Acquire may
	// be called concurrently and must be cheap.
	Acquire(ctx context.Context, cluster string, bytes int64) (snapshot *match.Snapshot, stale string, err error)
	// Release is called once for each Acquire, when the review has ended. Shadow calls may still use the snapshot. Release may
	// be called concurrently and must be cheap.
	Release(snapshot *match.Snapshot)
}

// Clusters provides facts about the clusters that send reviews.
type Clusters interface {
	// Cluster returns the facts about a cluster; never nil. It may be called concurrently.
	Cluster(name string) match.Cluster
}

// Options are the parts of a dispatcher. Snapshots, Clusters and Streams are required.
type Options struct {
	// Options name the traces, metrics, records and log of reviews. Logger gets panics too; nil means no log.
	observe.Options

	// Snapshots provides the configuration.
	Snapshots Snapshots
	// Clusters provides facts about the clusters.
	Clusters Clusters
	// Streams carries calls to hooks that are served over host streams.
	Streams review.Backend
	// Webhooks carries calls to hooks that are served as JSON webhooks; nil means that such calls fail.
	Webhooks review.Backend
	// Stager stages objects while initializers act; nil means that these calls fail.
	Stager Stager
	// Capacity provides the load of the replicas behind Streams; nil means that shadow hooks are called under any load, and
	// that there is no speculation.
	Capacity review.Capacity
	// Codec returns the codec that applies and computes the patches of one review within an allowance; nil means
	// [conversion.Raw]. It may be called concurrently.
	Codec func(conversion.Allowance) chain.Codec
	// EvaluationTime takes the place of FreeEvaluationTime in a dispatcher that no clusters share; 0 does not.
	EvaluationTime time.Duration
}

// Dispatcher judges reviews.
type Dispatcher struct {
	options         Options // only Capacity, TracerProvider and Metrics may be nil
	observer        *observe.Observer
	shadows         *shadows
	speculator      *speculator
	reinvocations   *reinvocationCache
	evaluationTurns *turns.Queue                      // of clusters with expensive policies or matchConditions
	explainer       func() (*policy.Explainer, error) // made by the first review that asks for expressions
	entries         entries
}

// New makes a dispatcher. It does no I/O.
func New(o Options) (*Dispatcher, error) {
	if o.Snapshots == nil || o.Clusters == nil || o.Streams == nil {
		return nil, errors.New("dispatcher: Snapshots, Clusters and Streams are required")
	}
	if o.Webhooks == nil {
		o.Webhooks = noBackend{}
	}
	if o.Stager == nil {
		o.Stager = noStager{}
	}
	if o.Codec == nil {
		o.Codec = func(a conversion.Allowance) chain.Codec { return conversion.Raw{Allowance: a} }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	observer, err := observe.New(o.Options)
	if err != nil {
		return nil, fmt.Errorf("dispatcher: %w", err)
	}
	shadows, err := newShadows()
	if err != nil {
		return nil, fmt.Errorf("dispatcher: %w", err)
	}
	return &Dispatcher{
		options: o, observer: observer, shadows: shadows, speculator: &speculator{capacity: o.Capacity}, reinvocations: newReinvocationCache(),
		evaluationTurns: turns.NewQueue(), explainer: sync.OnceValues(policy.NewExplainer),
	}, nil
}

// Review judges one review. It returns before the deadlines of r and ctx. Failures of calls are folded into the answer by the failure policies of
// their hooks. An error means that the review could not be judged: there is no fresh configuration or no memory, or ctx was cancelled. The failure
// policy of the API server's entry has to decide then.
func (d *Dispatcher) Review(ctx context.Context, r *review.Request) (answer review.Answer, err error) {
	gone, begun := ctx.Done(), time.Now()
	due := &bounded{Context: ctx, deadline: dueBy(ctx, begun, r)}
	defer due.release()
	ctx, span := d.observer.Begin(due, r)
	var snapshot *match.Snapshot // nil until Acquire has returned
	defer func() {
		if p := recover(); p != nil {
			d.options.Logger.ErrorContext(ctx, "panic while judging a review", "uid", r.Admission.GetUid(), "panic", p,
				"stack", string(debug.Stack()))
			answer, err = internalError(r, snapshot), nil
		}
		if o := answer.Outcome(); err == nil && o != review.OutcomeAllowed {
			answer.Response.AuditAnnotations[review.AuditOutcome] = string(o)
		}
		d.observer.End(ctx, &observe.FinishedReview{Request: r, Span: span, Snapshot: snapshot, Begun: begun, Ended: time.Now(), Answer: answer, Err: err})
	}()
	var stale string
	snapshot, stale, err = d.options.Snapshots.Acquire(ctx, r.Admission.GetCluster(), r.Reservation.Bytes())
	held := time.Since(begun)
	observe.PhasesOf(span).End(observe.PhaseHeld)
	if err != nil {
		return review.Answer{}, fmt.Errorf("no fresh configuration: %w", err)
	}
	defer d.options.Snapshots.Release(snapshot)
	d.entries.recordUse(r.Admission.GetCluster(), r.Entry, begun)
	switch exempt, ok := d.bypass(span, snapshot, r, begun); {
	case ok:
		answer = exempt
	case r.Stage == admissionv1.Stage_STAGE_ADMIT:
		answer, err = d.admit(ctx, gone, snapshot, r, held)
	default:
		answer, err = d.newRun(ctx, snapshot, r, held).judge(ctx, gone)
	}
	if r.Expressions {
		policy.BoundExpressions(answer.Outcomes) // each stage, and each policy in shadow, has had bounds of its own
	}
	if stale != "" && err == nil {
		answer.Response.AuditAnnotations[AuditStale] = stale // never nil: each answer has AuditRevision
	}
	return answer, err
}

// newRun prepares a review under one snapshot, for which it was held. Look-ups in the cluster have the same deadline as the hooks, so that the
// answer is in time even if a look-up is not.
func (d *Dispatcher) newRun(ctx context.Context, snapshot *match.Snapshot, r *review.Request, held time.Duration) *run {
	deadline, validates := answerBy(ctx, time.Now(), r), r.Stage == admissionv1.Stage_STAGE_VALIDATE
	x := &run{
		dispatcher: d, request: r, snapshot: snapshot, span: trace.SpanFromContext(ctx),
		begun: time.Now().Add(-held), held: held, lookups: bounded{Context: ctx, deadline: deadline},
	}
	x.reviewContext.init(&x.lookups, d, r, snapshot.Bypass(r.Admission.GetCluster()))
	x.reviewContext.cluster.phases = observe.PhasesOf(x.span)
	x.hooks = candidates(snapshot, r, x.reviewContext.attributes)
	x.results.init(len(x.hooks), !validates)
	x.calls = make([]callState, 0, len(x.hooks))
	if r.Explain {
		// The chain reports the candidates that it skips.
		x.skipped = slices.DeleteFunc(
			snapshot.Explain(&x.lookups, r.Admission.GetCluster(), r.Stage, x.reviewContext.attributes),
			func(s match.Skipped) bool { return slices.Contains(x.hooks, s.Hook) })
	}
	options := chain.Options{
		Request: r, Revision: snapshot.Revision(), Hooks: x.hooks, Subject: &x.reviewContext,
		Deadline: deadline, Certain: deadline.Add(-r.Uncertain), Now: time.Now,
		Spent: x.spent, TraceID: x.span.SpanContext().TraceID(),
		FailOpen: x.reviewContext.attributes.FailsOpen(),
	}
	if validates {
		x.machine = chain.NewValidate(options)
		return x
	}
	x.readInitializers(&options)
	x.changeRates = d.speculator.ratesOf(snapshot)
	options.Speculate = d.speculator.speculate(x.changeRates, r.Admission.GetCluster())
	options.Codec = x.phases().Traced(d.options.Codec(allowance{&x.lookups, r.Reservation}))
	x.reviewContext.codec = options.Codec
	x.machine = chain.NewMutate(options)
	return x
}

func (d *Dispatcher) clusterOf(r *review.Request) match.Cluster {
	return d.options.Clusters.Cluster(r.Admission.GetCluster())
}

func (d *Dispatcher) backendOf(h *match.Hook) review.Backend {
	if h.Route.Stream {
		return d.options.Streams
	}
	return d.options.Webhooks
}

// candidates returns the hooks whose rules match the request and that belong to its entry.
func candidates(snapshot *match.Snapshot, r *review.Request, a *match.Attributes) []*match.Hook {
	if !r.Entry.Takes(a) {
		return nil
	}
	return slices.DeleteFunc(snapshot.Candidates(r.Admission.GetCluster(), r.Stage, a), func(h *match.Hook) bool {
		return !h.In(r.Entry)
	})
}

// dueBy returns the deadline of a review: the earlier deadline of r and ctx, or DefaultTimeout without either.
func dueBy(ctx context.Context, now time.Time, r *review.Request) time.Time {
	deadline, limited := ctx.Deadline()
	switch {
	case !r.Deadline.IsZero() && (!limited || r.Deadline.Before(deadline)):
		return r.Deadline
	case limited:
		return deadline
	}
	return now.Add(DefaultTimeout)
}

// answerBy returns the deadline of the hooks: the deadline of ctx less the answer reserve, which is at most a tenth of the time left.
func answerBy(ctx context.Context, now time.Time, r *review.Request) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline.Add(-min(answerReserve(r), deadline.Sub(now)/10))
}

func answerReserve(r *review.Request) time.Duration {
	if r.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return minAnswerReserve
	}
	return min(MaxAnswerReserve, minAnswerReserve+patchReserve*time.Duration(len(r.Admission.GetObject().GetRaw())))
}

// internalError returns the answer to a review whose processing panicked. snapshot is nil before there was one.
func internalError(r *review.Request, snapshot *match.Snapshot) review.Answer {
	answer := review.Answer{Failed: true, Response: &admissionv1.AdmissionResponse{
		Uid: r.Admission.GetUid(),
		Status: &admissionv1.Status{
			Status: "Failure", Reason: "InternalError", Code: 500, Message: "internal error of the admission mesh",
		},
	}}
	answer.Response.AuditAnnotations = map[string]string{}
	if snapshot != nil {
		answer.Revision = snapshot.Revision()
		answer.Response.AuditAnnotations[chain.AuditRevision] = answer.Revision
	}
	return answer
}

// noBackend fails all calls. It stands for a missing Options.Webhooks.
type noBackend struct{}

func (noBackend) Start(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	for i, c := range b.Calls {
		done(i, review.Fail(review.FailureUnavailable,
			"hook %q has no HookRoute with stream, and JSON webhooks are not served here", c.Hook.ID.Name))
	}
	return func(int) {}
}
