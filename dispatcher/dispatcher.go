// Package dispatcher is the road of a review: fresh configuration, candidates, chain, calls, fold. It decides nothing
// itself: dispatcher/match says which hooks apply, dispatcher/chain what happens in which order, and backends carry the
// calls. It knows neither HTTP nor gRPC nor where configuration comes from.
//
// A [Dispatcher] may be used from any number of goroutines. It starts none of its own: a review runs on the goroutine of
// its caller, and what came of calls in shadow, which may outlive it, is counted by timers. [Dispatcher.Close] waits for
// these.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

const (
	// DefaultTimeout bounds a review whose context has no deadline.
	DefaultTimeout = 10 * time.Second
	// MaxAnswerReserve is the most time kept back from the hooks so that the answer is folded, encoded and written before
	// the caller gives up (answerReserve).
	MaxAnswerReserve = 100 * time.Millisecond
	// minAnswerReserve is for the goroutine of the review to run on a machine that is busy, and for an answer without a patch,
	// which takes microseconds.
	minAnswerReserve = 10 * time.Millisecond
	// patchReserve is kept back for each byte of an object that hooks may change: to apply the last patch, and to compare the
	// object with what it was. Measured as 50 to 140 ns for objects of 20 kB to 1 MB.
	patchReserve = 100 * time.Nanosecond
	// AuditStale is the key of the annotation of an answer that was judged by a configuration which is older than it may be,
	// since somebody has permitted that.
	AuditStale = "stale-configuration"
)

// Snapshots is where the configuration comes from.
type Snapshots interface {
	// Take returns the configuration that a review of a cluster is judged by, which holds so many bytes. It waits while that
	// is older than it may be, and returns an error when ctx nears its end first, or when too many bytes wait already. stale
	// is what the audit log is told when it is older than it may be and somebody has permitted that; empty is the usual case.
	// It may be called concurrently and must be cheap.
	Take(ctx context.Context, cluster string, bytes int64) (snapshot *match.Snapshot, stale string, err error)
	// Release says that the review is over for which Take returned the snapshot: once for each. It may be called
	// concurrently and must be cheap. Calls in shadow may go on.
	Release(snapshot *match.Snapshot)
}

// Clusters knows the clusters that send reviews.
type Clusters interface {
	// Cluster returns what a review does not carry about its cluster; never nil. It may be called concurrently.
	Cluster(name string) match.Cluster
}

// Backend carries calls to whoever serves the hooks.
type Backend interface {
	// Start hands over the calls of a batch and never blocks. done is called exactly once for each call, by its index in
	// b.Calls, from any goroutine and possibly before Start returns; it never blocks. The returned function says that the
	// result of one call is no longer wanted; done is then called at once if it was not yet. ctx carries the trace; its
	// end does not end the calls. The batch is not changed by either side.
	Start(ctx context.Context, b *Batch, done func(i int, r review.Result)) (cancel func(i int))
}

// Capacity knows how busy the replicas of hooks are.
type Capacity interface {
	// Spare reports whether some replica of a hook could take a call for a cluster now, beyond what it needs for calls that
	// decide, and agrees to why it is made. It may be called concurrently and must be cheap.
	Spare(h *match.Hook, mode review.Mode, cluster string) bool
}

// Batch is one request for one or more hooks.
type Batch struct {
	// Request is the request with the object as the hooks see it.
	Request *admissionv1.AdmissionRequest
	// Body is Request, encoded once for all hosts.
	Body conversion.Body
	// Lease is what both are accounted on; nil when nobody does. Until the calls have ended their review holds it; a backend
	// that needs Request or Body for longer retains it.
	Lease *memory.Lease
	// Calls are the hooks to ask.
	Calls []Call
}

// Call is one hook of a batch.
type Call struct {
	// Hook is who is asked.
	Hook *match.Hook
	// Round is 0, or 1 for a reinvocation.
	Round uint32
	// Mode is why the hook is asked.
	Mode review.Mode
	// Deadline is when the caller stops waiting and cancels.
	Deadline time.Time
	// Span is the span of the call; not valid when nothing is traced.
	Span trace.SpanContext
}

// Options is what a dispatcher works with. Snapshots, Clusters and Streams are required.
type Options struct {
	// Snapshots is the configuration.
	Snapshots Snapshots
	// Clusters knows the clusters that send reviews.
	Clusters Clusters
	// Streams carries calls to hooks that are served over host streams.
	Streams Backend
	// Webhooks carries calls to hooks that are served as JSON webhooks; nil means that such calls fail.
	Webhooks Backend
	// Capacity knows how busy the replicas behind Streams are; nil means that hooks in shadow are called however busy they
	// are, and that no hook is asked ahead of its turn.
	Capacity Capacity
	// Codec makes what applies and makes the patches of one review, within what that may take; nil means that they are made on
	// the raw JSON. It may be called concurrently.
	Codec func(conversion.Allowance) chain.Codec
	// TracerProvider makes the spans; nil means none.
	TracerProvider trace.TracerProvider
	// Metrics registers the instruments; nil means none.
	Metrics prometheus.Registerer
	// Logger gets what cannot be said in an answer; nil means nowhere.
	Logger *slog.Logger
}

// Dispatcher judges reviews.
type Dispatcher struct {
	snapshots Snapshots
	clusters  Clusters
	streams   Backend
	webhooks  Backend
	capacity  Capacity
	shadows   *shadows
	gate      *gate
	codec     func(conversion.Allowance) chain.Codec
	outputs   *outputs
	entries   entries
	seeing    *instrumentation
	failures  *failureLog
	log       *slog.Logger
}

// New makes a dispatcher. It does no I/O.
func New(o Options) (*Dispatcher, error) {
	if o.Snapshots == nil || o.Clusters == nil || o.Streams == nil {
		return nil, errors.New("dispatcher: Snapshots, Clusters and Streams are required")
	}
	if o.Webhooks == nil {
		o.Webhooks = noBackend{}
	}
	if o.Codec == nil {
		o.Codec = func(a conversion.Allowance) chain.Codec { return conversion.Raw{Allowance: a} }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	seeing, err := newInstrumentation(o.Metrics, o.TracerProvider)
	if err != nil {
		return nil, fmt.Errorf("dispatcher: %w", err)
	}
	return &Dispatcher{
		snapshots: o.Snapshots, clusters: o.Clusters, streams: o.Streams, webhooks: o.Webhooks,
		capacity: o.Capacity, shadows: newShadows(), gate: &gate{capacity: o.Capacity}, codec: o.Codec,
		outputs: newOutputs(), seeing: seeing, failures: newFailureLog(), log: o.Logger,
	}, nil
}

// Review judges one review. The answer comes before the deadline of ctx. Whatever fails on the way to a hook is folded
// into the answer by the hook's failure policy. An error means that nothing may judge the review: there is no fresh
// configuration, or ctx was cancelled; the caller has to answer so that the policy of its own caller decides.
func (d *Dispatcher) Review(ctx context.Context, r *review.Request) (answer review.Answer, err error) {
	gone := ctx.Done()
	ctx, done := withDefaultTimeout(ctx)
	defer done()
	ctx, span := d.seeing.beginReview(ctx, r)
	begun := time.Now()
	var snapshot *match.Snapshot // nil until something may judge
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "panic while judging a review", "uid", r.Admission.GetUid(), "panic", p,
				"stack", string(debug.Stack()))
			answer, err = internalError(r, snapshot), nil
		}
		d.seeing.endReview(span, r, answer, err, time.Since(begun))
	}()
	var stale string
	snapshot, stale, err = d.snapshots.Take(ctx, r.Admission.GetCluster(), r.Lease.Bytes())
	if err != nil {
		return review.Answer{}, fmt.Errorf("no fresh configuration: %w", err)
	}
	defer d.snapshots.Release(snapshot)
	d.entries.saw(r.Admission.GetCluster(), r.Entry, begun)
	if r.Stage == admissionv1.Stage_STAGE_ADMIT {
		answer, err = d.admit(ctx, gone, snapshot, r)
	} else {
		answer, err = d.newRun(ctx, snapshot, r).judge(ctx, gone)
	}
	if stale != "" && err == nil {
		answer.Response.AuditAnnotations[AuditStale] = stale // every answer has annotations: the revision is one
	}
	return answer, err
}

// newRun prepares a review under one snapshot, which judges it from start to end. What the cluster is asked has to be
// known when the hooks have to be done: the answer is then in time, even if it is that nothing could be known.
func (d *Dispatcher) newRun(ctx context.Context, snapshot *match.Snapshot, r *review.Request) *run {
	subject := newSubject(r, d.clusters.Cluster(r.Admission.GetCluster()))
	attributes := subject.attributes
	deadline := answerBy(ctx, time.Now(), r)
	asking := newBounded(ctx, deadline)
	options := chain.Options{
		Request:  r,
		Revision: snapshot.Revision(),
		Hooks:    candidates(snapshot, r, attributes),
		Match: func(h *match.Hook, o chain.Object) match.Decision {
			if h.Route.Shadow && !h.Pending && !r.Explain { // a review must not wait for what it takes to know that
				return match.Decision{Match: true}
			}
			return subject.match(asking, h, o)
		},
		View: func(o chain.Object, as conversion.ResourceKind) (*chain.View, error) {
			return subject.view(asking, o, as)
		},
		Return: func(o chain.Object, seen, changed []byte) ([]byte, error) {
			return subject.restore(asking, o, seen, changed)
		},
		Default:  subject.defaults,
		Deadline: deadline,
		Now:      time.Now,
	}
	x := &run{
		dispatcher: d, request: r, hooks: options.Hooks, snapshot: snapshot, subject: subject, asking: asking,
		inbox:   newInbox(len(options.Hooks), r.Stage != admissionv1.Stage_STAGE_VALIDATE),
		flights: make([]flight, 0, len(options.Hooks)),
	}
	if r.Explain {
		// What the chain skips it says itself, as the object was when it was matched.
		x.skipped = slices.DeleteFunc(
			snapshot.Explain(asking, r.Admission.GetCluster(), r.Stage, attributes),
			func(s match.Skipped) bool { return slices.Contains(options.Hooks, s.Hook) })
	}
	if r.Stage == admissionv1.Stage_STAGE_VALIDATE {
		x.machine = chain.NewValidate(options)
	} else {
		x.upsets = d.gate.of(snapshot)
		options.Speculate = d.gate.speculate(x.upsets, r.Admission.GetCluster())
		options.Codec = d.codec(allowance{asking, r.Lease})
		x.machine = chain.NewMutate(options)
	}
	return x
}

// candidates are the hooks whose rules cover the request and that belong to the entry by which it came.
func candidates(snapshot *match.Snapshot, r *review.Request, a *match.Attributes) []*match.Hook {
	entry := match.ParseEntry(r.Entry)
	return slices.DeleteFunc(snapshot.Candidates(r.Admission.GetCluster(), r.Stage, a), func(h *match.Hook) bool {
		return !h.In(entry)
	})
}

// withDefaultTimeout gives a context without a deadline the default one.
func withDefaultTimeout(ctx context.Context) (context.Context, func()) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	b := newBounded(ctx, time.Now().Add(DefaultTimeout))
	return b, b.release
}

// answerBy is when the hooks have to be done so that the answer still arrives. Of short deadlines at most a tenth is kept
// back.
func answerBy(ctx context.Context, now time.Time, r *review.Request) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline.Add(-min(answerReserve(r), deadline.Sub(now)/10))
}

// answerReserve is the time that is kept back for the answer.
func answerReserve(r *review.Request) time.Duration {
	if r.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return minAnswerReserve
	}
	return min(MaxAnswerReserve, minAnswerReserve+patchReserve*time.Duration(len(r.Admission.GetObject().GetRaw())))
}

// internalError is the answer to a review that made our own code panic.
func internalError(r *review.Request, judging *match.Snapshot) review.Answer {
	answer := review.Answer{Failed: true, Response: &admissionv1.AdmissionResponse{
		Uid: r.Admission.GetUid(),
		Status: &admissionv1.Status{
			Status: "Failure", Reason: "InternalError", Code: 500, Message: "internal error of the admission mesh",
		},
	}}
	if judging != nil {
		answer.Revision = judging.Revision()
		answer.Response.AuditAnnotations = map[string]string{chain.AuditRevision: answer.Revision}
	}
	return answer
}

// noBackend is the backend of hooks that nobody can serve.
type noBackend struct{}

func (noBackend) Start(_ context.Context, b *Batch, done func(int, review.Result)) func(int) {
	for i, c := range b.Calls {
		done(i, review.Fail(review.FailureUnavailable,
			"hook %q has no HookRoute with stream, and JSON webhooks are not served here", c.Hook.ID.Name))
	}
	return func(int) {}
}
