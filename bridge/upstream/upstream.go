// Package upstream sends reviews to the dispatchers of a mesh. It is the Reviewer of a bridge that runs alone, in or beside a
// cluster: JSON comes in, and protobuf goes out over mutual TLS.
//
// Reviews are spread over all dispatchers that are connected. A review that no hook has seen goes to another dispatcher, as long as
// its deadline allows. A review whose connection ended while a dispatcher may have judged it is not sent again: hooks may have side
// effects, and kube-apiserver does not repeat such a call either. A connection on which a dispatcher does not know the bridge any
// more, since its certificate has ended or lost its authority, is replaced by one with the newest certificate.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

const (
	// ConnectionsPerTarget is how many connections are open to each dispatcher. A dispatcher takes 16 reviews at a time on one.
	ConnectionsPerTarget = 8
	// MaxTargets bounds Options.Targets.
	MaxTargets = 32
	// MaxAnswerBytes is the largest answer that is read: a patched object of 3 MiB in a patch, and the rest of the answer.
	MaxAnswerBytes = 16 << 20
	// answerReserve is the part of the time of a review that is left to write an answer to the API server when no dispatcher
	// has one.
	answerReserve = 100 * time.Millisecond
	// pingAfter is how long a connection is silent before it is checked, and pingTimeout how long the dispatcher may take: a
	// connection that is cut without a word is closed then. gRPC allows no earlier ping; see Options.Credentials.
	pingAfter   = 10 * time.Second
	pingTimeout = 3 * time.Second
	// pause is how long a review waits before it looks for a usable connection again.
	pause = 20 * time.Millisecond
)

// Options configure a Reviewer.
type Options struct {
	// Targets are host:port of the listeners for hosts. A name stands for all of its addresses. Required.
	Targets []string
	// Credentials returns the credentials for a target whose certificate carries a name. They may have the kernel check connections
	// more often than gRPC does. Required.
	Credentials func(serverName string) credentials.TransportCredentials
	// Propagator writes the trace of a review into the metadata of its call; nil means W3C Trace Context.
	Propagator propagation.TextMapPropagator
	// TracerProvider makes the spans of attempts; nil means none.
	TracerProvider trace.TracerProvider
	// Slow is how long a review takes that is logged; 0 means none.
	Slow time.Duration
	// Logger receives why dispatchers do not judge; nil logs nothing.
	Logger *slog.Logger
}

// Reviewer sends reviews to dispatchers. Its methods may be called concurrently. Make it with New.
type Reviewer struct {
	connections []connection
	next        atomic.Uint32
	credentials func(serverName string) credentials.TransportCredentials
	propagator  propagation.TextMapPropagator
	tracer      trace.Tracer
	slow        slowLog
	log         *slog.Logger
	failure     atomic.Pointer[string] // that was logged last; nil after an answer

	mu      sync.Mutex     // serialises changes of connections
	closed  chan struct{}  // by Close, under mu
	leaving sync.WaitGroup // connections that were replaced, and are not closed yet
}

// connection is one to a target. Another one takes its place when our identity does not hold on it any more.
type connection struct {
	atomic.Pointer[grpc.ClientConn]

	target string
}

var _ bridge.Reviewer = (*Reviewer)(nil)

// New returns a reviewer. It connects in the background; Close ends that.
func New(o Options) (*Reviewer, error) {
	if len(o.Targets) == 0 || len(o.Targets) > MaxTargets || o.Credentials == nil {
		return nil, fmt.Errorf("upstream: give the addresses of 1 to %d dispatchers, and credentials", MaxTargets)
	}
	r := &Reviewer{
		connections: make([]connection, ConnectionsPerTarget*len(o.Targets)), credentials: o.Credentials, propagator: o.Propagator,
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), closed: make(chan struct{}),
	}
	if r.propagator == nil {
		r.propagator = propagation.TraceContext{}
	}
	if o.TracerProvider == nil {
		o.TracerProvider = noop.NewTracerProvider()
	}
	r.tracer = o.TracerProvider.Tracer(instrumentationName)
	r.slow = slowLog{after: o.Slow, log: r.log, lines: rate.Sometimes{Interval: LogInterval}}
	for i := range r.connections {
		c := &r.connections[i]
		c.target = o.Targets[i%len(o.Targets)] // in turns: a target that is away costs one attempt
		if err := r.connect(c); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// connect dials the target of a connection.
func (u *Reviewer) connect(c *connection) error {
	conn, err := dial(c.target, u.credentials)
	if err != nil {
		return err
	}
	conn.Connect()
	c.Store(conn)
	return nil
}

// replace dials again in the place of a connection on which a dispatcher does not know us any more: a handshake takes the newest
// certificate. Reviews that are under way on the old one are answered there.
func (u *Reviewer) replace(old *grpc.ClientConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.closed:
		return
	default:
	}
	for i := range u.connections {
		c := &u.connections[i]
		if c.Load() != old || u.connect(c) != nil {
			continue
		}
		u.leaving.Go(func() {
			answered := time.NewTimer(bridge.MaxTimeout)
			defer answered.Stop()
			select {
			case <-answered.C:
			case <-u.closed:
			}
			_ = old.Close()
		})
	}
}

func dial(target string, credentials func(string) credentials.TransportCredentials) (*grpc.ClientConn, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("dispatcher %q: name host and port, for example mesh.example.com:8444", target)
	}
	return grpc.NewClient("dns:///"+target,
		grpc.WithTransportCredentials(credentials(host)),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxAnswerBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.5, MaxDelay: 2 * time.Second},
			MinConnectTimeout: pingTimeout,
		}),
	)
}

// Review implements bridge.Reviewer. The error wraps bridge.ErrNoDispatcher: the entry's failurePolicy decides. A review that a
// dispatcher refuses for its content is denied, whatever that policy: it could be made so to get past a fail-open entry.
func (u *Reviewer) Review(ctx context.Context, r *review.Request) (review.Answer, error) {
	begun := time.Now()
	answer, went, err := u.review(ctx, r)
	outcome := review.OutcomeRefused
	if err == nil {
		outcome = answer.Outcome()
	}
	u.slow.note(ctx, r, begun, went, outcome)
	return answer, err
}

func (u *Reviewer) review(ctx context.Context, r *review.Request) (review.Answer, road, error) {
	if !r.Deadline.IsZero() {
		var cancel context.CancelFunc
		certain := r.Deadline.Add(-r.Uncertain) // the dispatcher knows no other
		ctx, cancel = context.WithDeadline(ctx, certain.Add(-min(answerReserve, time.Until(certain)/10)))
		defer cancel()
	}
	request := &admissionv1.ReviewRequest{
		Stage: r.Stage, Entry: r.Entry.String(), Request: r.Admission,
		Explain: r.Explain, AwaitShadows: r.AwaitShadows, Expressions: r.Expressions,
	}
	response, went, err := u.send(ctx, request)
	if refused := denial(r.Admission.GetUid(), err); refused != nil {
		return review.Answer{Response: refused, Refused: true}, went, nil
	}
	u.note(err)
	if errors.Is(err, errFull) || isCalm(err) {
		err = fmt.Errorf("%w: %w", bridge.ErrOverloaded, err)
	}
	if err != nil {
		return review.Answer{}, went, fmt.Errorf("%w: %w", bridge.ErrNoDispatcher, err)
	}
	outcome := review.Outcome(response.GetOutcome())
	return review.Answer{
		Response: response.GetResponse(), Failed: response.GetFailed(),
		FailedOpen: outcome == review.OutcomeFailedOpen, Refused: outcome == review.OutcomeRefused,
		Revision: response.GetRevision(), Outcomes: response.GetOutcomes(),
	}, went, nil
}

// denial is the answer to a review that a dispatcher, or gRPC in front of it, has refused for its content; nil for another error.
func denial(uid string, err error) *admissionv1.AdmissionResponse {
	if isCalm(err) {
		return nil
	}
	refused := &admissionv1.Status{Status: metav1.StatusFailure, Message: status.Convert(err).Message()}
	switch status.Code(err) {
	case codes.InvalidArgument:
		refused.Code, refused.Reason = http.StatusBadRequest, string(metav1.StatusReasonBadRequest)
	case codes.ResourceExhausted: // a message past a limit of gRPC; errFull has another code, for a message without memory
		refused.Code, refused.Reason = http.StatusRequestEntityTooLarge, string(metav1.StatusReasonRequestEntityTooLarge)
	default:
		return nil
	}
	return &admissionv1.AdmissionResponse{Uid: uid, Status: refused}
}

// isCalm reports whether a dispatcher, or a proxy before it, has ended the call by ENHANCE_YOUR_CALM, which is about load. gRPC reports
// it with the same code as a large message, so the text decides.
func isCalm(err error) bool {
	s := status.Convert(err)
	return s.Code() == codes.ResourceExhausted && s.Message() == "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM"
}

// note logs why no dispatcher has judged, and that one judges again: each reason once in a row.
func (u *Reviewer) note(err error) {
	if err == nil {
		if u.failure.Load() != nil && u.failure.Swap(nil) != nil {
			u.log.Info("a dispatcher judges again")
		}
		return
	}
	text := status.Convert(err).Message()
	if last := u.failure.Swap(&text); last == nil || *last != text {
		u.log.Warn("no dispatcher has judged a review: the failurePolicy of the entry decides", "code", status.Code(err).String(), "error", text)
	}
}

// errFull stands for dispatchers without memory for a review.
var errFull = status.Error(codes.Unavailable, "the dispatchers have no memory for the review")

// send tries connections until a dispatcher has judged or the time is over. It pauses while none is usable, and when each has been
// tried.
func (u *Reviewer) send(ctx context.Context, request *admissionv1.ReviewRequest) (_ *admissionv1.ReviewResponse, went road, last error) {
	last = errors.New("none is connected")
	waiting := time.Now()
	for tried := 1; ; tried++ {
		conn := u.pick()
		if conn != nil {
			begun := time.Now()
			if waited := begun.Sub(waiting); waited >= pause {
				went.queued += waited
				trace.SpanFromContext(ctx).AddEvent(phaseQueued)
			}
			response, again, err := u.attempt(ctx, conn, request, &went)
			waiting = time.Now()
			went.answered = waiting.Sub(begun)
			if status.Code(err) == codes.DeadlineExceeded && errors.Is(last, errFull) {
				err = errFull // the time was over in the attempt after it
			}
			if !again {
				return response, went, err
			}
			last = err
		}
		if (conn == nil || tried%len(u.connections) == 0) && !clock.Sleep(ctx, pause) {
			went.queued += time.Since(waiting)
			return nil, went, last
		}
	}
}

// pick returns the next connection that has not failed; nil if all have.
func (u *Reviewer) pick() *grpc.ClientConn {
	first := u.next.Add(1)
	for i := range len(u.connections) {
		conn := u.connections[(int(first)+i)%len(u.connections)].Load()
		if state := conn.GetState(); state == connectivity.Ready || state == connectivity.Idle {
			return conn
		}
	}
	return nil
}

// attempt sends a review once, and notes in went where to. again is true if no hook can have seen it, and there is time left.
func (u *Reviewer) attempt(
	ctx context.Context, conn *grpc.ClientConn, request *admissionv1.ReviewRequest, went *road,
) (_ *admissionv1.ReviewResponse, again bool, _ error) {
	var at peer.Peer
	var trailer metadata.MD
	ctx, span := u.startSpan(ctx, request.GetRequest())
	response, err := admissionv1.NewAdmissionServiceClient(conn).Review(
		bridge.SendTrace(ctx, u.propagator), request, grpc.Peer(&at), grpc.Trailer(&trailer))
	endSpan(span, &at, err)
	unjudged := len(trailer.Get(bridge.UnjudgedTrailer)) > 0
	switch {
	case unjudged && status.Code(err) == codes.ResourceExhausted:
		err = errFull
	case unjudged && status.Code(err) == codes.Unauthenticated:
		u.replace(conn)
	}
	again = unjudged || status.Code(err) == codes.Unavailable && at.Addr == nil
	went.attempts++
	if at.Addr != nil {
		went.dispatcher = at.Addr.String()
	}
	return response, again && ctx.Err() == nil, err
}

// Ready reports whether a dispatcher is connected.
func (u *Reviewer) Ready() bool {
	for i := range u.connections {
		if u.connections[i].Load().GetState() == connectivity.Ready {
			return true
		}
	}
	return false
}

// Close ends all connections, and the reviews on them.
func (u *Reviewer) Close() {
	u.close()
	u.leaving.Wait()
}

func (u *Reviewer) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.closed:
		return
	default:
	}
	close(u.closed)
	for i := range u.connections {
		if conn := u.connections[i].Load(); conn != nil { // else New has failed
			_ = conn.Close()
		}
	}
}
