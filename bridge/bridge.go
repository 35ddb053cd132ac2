// Package bridge is the JSON edge of the mesh: API servers post AdmissionReviews to it and get them back answered.
//
// A Bridge is an http.Handler, and an AdmissionService for a gRPC listener. The grpc-gateway mux routes POSTs (routes.go) to one
// handler (handler.go). It authorizes the caller for the cluster, bounds the body, the bytes held at a time and the time of a
// review, reads AdmissionReview JSON through package conversion, calls the Reviewer, and writes its answer; failures become an
// answer too (outcome.go has the table). A Server runs a Bridge on a listener and stops it without losing a request.
//
// A Bridge holds no state of a review beyond its own request. Everything here may be called from any goroutine.
package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Reviewer judges reviews: the dispatcher. An answer carries the uid of its request and comes before ctx ends. The error
// is for a review that nothing may judge (no fresh configuration, or the process is stopping); failures of hooks are
// folded into answers. Review is called from many goroutines at once; a panic in it costs its own review alone.
type Reviewer interface {
	Review(ctx context.Context, r *review.Request) (review.Answer, error)
}

// ErrNoDispatcher is the error of a Reviewer that sends reviews to dispatchers, about a review that none of them has judged.
var ErrNoDispatcher = errors.New("no dispatcher judges")

// ErrOverloaded is wrapped beside ErrNoDispatcher where dispatchers have refused the review because of load.
var ErrOverloaded = errors.New("the dispatchers are overloaded")

// Options configure a Bridge.
type Options struct {
	// Reviewer judges. Required.
	Reviewer Reviewer
	// Authorize returns an error unless an identity may send reviews for a cluster: review.ErrNoConfiguration if that is not known yet.
	// Required: there is no default but to refuse. It is called from many goroutines at once and does not block.
	Authorize func(caller identity.Peer, cluster string) error
	// AuthorizeCapability returns an error unless a caller that shows a capability may send reviews for a cluster. It is called as
	// Authorize is. nil accepts no capability.
	AuthorizeCapability func(shown identity.Capability, cluster string) error
	// MaxBodyBytes is the largest review that is read; 0 is DefaultMaxBodyBytes. A larger one is denied with code 413.
	MaxBodyBytes int64
	// Memory accounts for the bytes of reviews, from before the body is read until the answer has been written and nothing
	// refers to the body. Past its bounds reviews are refused with 429. nil is a ledger of DefaultMemoryBudget.
	Memory *memory.Ledger
	// Logger gets panics, and at debug level a line per request; nil logs nothing.
	Logger *slog.Logger
	// TracerProvider makes the span of each review; nil traces nothing.
	TracerProvider trace.TracerProvider
	// Propagator reads the trace of callers; nil means W3C Trace Context.
	Propagator propagation.TextMapPropagator
	// Registerer takes the metrics; nil keeps them to the Bridge.
	Registerer prometheus.Registerer
}

const (
	// DefaultMaxBodyBytes is 8 MiB: object and oldObject of 3 MiB each, which is the most that kube-apiserver takes in a
	// request (MaxRequestBodyBytes in k8s.io/apiserver/pkg/server/config.go; SEMANTICS C35), and 2 MiB for everything
	// around them: user, groups, extra, options. JSON may escape a byte with six, so an object that consists of angle
	// brackets can be larger; it is denied with a reason.
	DefaultMaxBodyBytes = 2*(3<<20) + (2 << 20)
	// DefaultMemoryBudget is 256 MiB: 32 of the largest reviews for validating hooks, 3 for mutating ones, or 10,000 small
	// ones, at a time; half of them for a cluster that is alone. A process with a limit of 1 GiB has room for it
	// (docs/operations.md).
	DefaultMemoryBudget = 256 << 20
	// ReviewBytes is the memory of a review beside its body: the request as a message, the stacks of its goroutines, the buffers
	// of its connection, heads of frames, the answer. Of 2,000 reviews that waited for one hook of a host, each took 22 kB with a
	// body of 1.4 kB, 7 kB of them stacks.
	ReviewBytes = 24 << 10
)

func (o *Options) defaults() error {
	if o.Reviewer == nil || o.Authorize == nil {
		return errors.New("bridge: Reviewer and Authorize are required")
	}
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, DefaultMaxBodyBytes)
	if o.Memory == nil {
		o.Memory, _ = memory.New(memory.Options{Total: DefaultMemoryBudget}) // which is above zero
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	largest := reviewBytes(admissionv1.Stage_STAGE_MUTATE, o.MaxBodyBytes)
	if share := o.Memory.Share(); o.MaxBodyBytes < 0 || largest < 0 || share < largest {
		return fmt.Errorf("bridge: of the memory budget one cluster may hold %d bytes, and a review with a body of %d may take %d: "+
			"make the budget larger, or the largest body smaller", share, o.MaxBodyBytes, largest)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return nil
}

// Bridge is the JSON edge and the AdmissionService. Make it with New.
type Bridge struct {
	options     Options // read-only
	mux         *runtime.ServeMux
	instruments *instrumentation
	tracer      trace.Tracer          // nil when nothing is recorded
	server      trace.SpanStartOption // the kind of all spans; read-only
	contentType []string              // of every body, as a header has it; read-only
	draining    atomic.Bool
	retries     retries
}

var _ http.Handler = (*Bridge)(nil)

// New makes a Bridge. It does no I/O.
func New(options Options) (*Bridge, error) {
	if err := options.defaults(); err != nil {
		return nil, err
	}
	b := &Bridge{
		options:     options,
		instruments: newInstrumentation(),
		tracer:      tracerOf(options.TracerProvider),
		server:      trace.WithSpanKind(trace.SpanKindServer),
		contentType: []string{jsonType},
		retries:     retries{seed: maphash.MakeSeed()},
	}
	if err := b.instruments.register(options.Registerer); err != nil {
		return nil, fmt.Errorf("bridge: registering metrics: %w", err)
	}
	mux, err := newMux(b)
	if err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	b.mux = mux
	return b, nil
}

// AdmissionService returns the gRPC edge, for a listener with TLS. It takes the caller from the AuthInfo of the channel, if that
// is an identity.Channel, and else from the handshake.
func (b *Bridge) AdmissionService() admissionv1.AdmissionServiceServer { return &service{bridge: b} }

// UpdateClusters makes known the clusters whose metrics have series of their own; until it is called each cluster that sends reviews has.
// It may be called from any goroutine.
func (b *Bridge) UpdateClusters(names []string) { b.instruments.clusters.Update(names) }

// Drain prepares a stop: Ready becomes false, and answers ask their caller to close the connection, so that the next one goes to
// another dispatcher. Reviews are still judged. It cannot be undone.
func (b *Bridge) Drain() { b.draining.Store(true) }

// Ready is true until Drain.
func (b *Bridge) Ready() bool { return !b.draining.Load() }

// ServeHTTP is the JSON edge: POST /v1/clusters/{cluster}/{stage} and /v1/clusters/{cluster}/{stage}/{entry}, the same with
// enforce for a stage (enforce.go), and the same with capability/{capability}/ before the stage (capability.go). It always answers, and never panics.
func (b *Bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }
