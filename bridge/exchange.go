package bridge

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// shortAnswer is the length up to which net/http sets the Content-Length of an answer, in HTTP/1.1 and HTTP/2.
const shortAnswer = 1 << 10

// exchange is one HTTP request and its answer. It belongs to the goroutine of its request.
type exchange struct {
	*endpoint
	bridge     *Bridge
	connection *connection
	writer     http.ResponseWriter
	control    http.ResponseController
	request    *http.Request
	started    time.Time
	deadline   time.Time     // of the review; zero until it is known
	uncertain  time.Duration // of the time to the deadline

	// From the URL and the channel, once they are known to be right.
	cluster string
	entry   match.Entry

	content     yieldingBody // the body of the request, which is read into body
	body        []byte
	reservation *memory.Reservation

	// Of the review. It can be answered when apiVersion is known; uid is the bridge's own where the version has none.
	uid, apiVersion string

	outcome review.Outcome
	failure string // why the answer is no verdict; empty when it is one
	code    int    // HTTP status; 0 until it is written
	span    trace.Span

	spanOptions [2]trace.SpanStartOption // here, so that a span that is not sampled allocates less
}

func newExchange(b *Bridge, w http.ResponseWriter, r *http.Request, to *endpoint) *exchange {
	return &exchange{
		endpoint: to, bridge: b, connection: connectionOf(r), writer: w, control: *http.NewResponseController(w), request: r, started: time.Now(),
		content: yieldingBody{Reader: r.Body}, span: noop.Span{}, outcome: review.OutcomeFailed,
	}
}

// readUntil bounds the reading of the body; the zero time ends the bound. Each bound of HTTP/2 wakes the goroutine of its connection. A writer
// without deadlines (a recorder in a test) has no connection to wait for.
func (x *exchange) readUntil(t time.Time) { _ = x.control.SetReadDeadline(t) }

func (x *exchange) writeUntil(t time.Time) { _ = x.control.SetWriteDeadline(t) }

// refuse answers with a denial if there is a review to deny, and with an HTTP status otherwise, or if the entry's own policy shall
// decide. Before the deadline of the review is known it bounds the connection: a slow sender or reader does not hold it for long.
func (x *exchange) refuse(r *refusal) {
	x.failure, x.outcome = r.message, r.outcome
	if x.deadline.IsZero() {
		x.readUntil(x.started.Add(refusalTime))
		x.writeUntil(x.started.Add(refusalTime))
	}
	deadline := x.deadline.Add(-x.uncertain)
	if r.temporary() {
		deadline = x.bridge.retries.firstDeadline(x.cluster, x.uid, deadline)
	}
	r.headers(x.writer.Header(), deadline)
	if !r.temporary() && x.deniable() {
		if code, body, err := x.encode(r.denial(x.uid, x.apiVersion)); err == nil {
			x.answer(code, body)
			return
		}
	}
	x.answer(r.code, r.status())
}

// deniable reports whether the exchange can answer with a denial: it knows the review, or at /enforce has authorized the caller.
func (x *exchange) deniable() bool {
	if x.enforces {
		return x.cluster != ""
	}
	return x.apiVersion != ""
}

// answer writes the answer, once. While the bridge drains, it asks the caller to close the connection. A failed write is ignored:
// the caller is gone, or does not read.
func (x *exchange) answer(code int, body []byte) {
	x.code = code
	header := x.writer.Header()
	if !x.bridge.Ready() {
		header.Set("Connection", "close")
	}
	if code != http.StatusNoContent {
		header["Content-Type"] = x.bridge.contentType
	}
	if len(body) > shortAnswer {
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	x.writer.WriteHeader(code)
	if len(body) > 0 {
		_, _ = x.writer.Write(body)
	}
}

// end finishes an exchange, also after a panic. Deferred directly.
func (x *exchange) end() {
	if cause := recover(); cause != nil {
		x.contain(cause)
	}
	x.reservation.Release()
	edge := edgeJSON
	if x.enforces {
		edge = edgeEnforce
	}
	x.bridge.instruments.observe(measured{x.cluster, edge, x.stage, x.outcome, x.code, len(x.body), x.started, x.span.SpanContext()})
	x.endSpan()
	if logger := x.bridge.options.Logger; logger.Enabled(x.request.Context(), slog.LevelDebug) {
		logger.Debug("review answered", slog.String("cluster", x.cluster), slog.String("stage", stageName(x.stage)),
			slog.String("uid", x.uid), slog.String("outcome", string(x.outcome)), slog.Int("code", x.code),
			slog.Duration("took", time.Since(x.started)))
	}
}

// contain answers after a panic, unless the answer has begun: then it is cut off.
func (x *exchange) contain(cause any) {
	x.bridge.panicked(x.uid, cause)
	if x.code != 0 {
		x.outcome = review.OutcomeFailed
		return
	}
	x.refuse(broken())
}

// panicked counts and logs a panic. The stack goes to the log alone.
func (b *Bridge) panicked(uid string, cause any) {
	b.instruments.panics.Inc()
	b.options.Logger.Error("panic contained", slog.String("uid", uid),
		slog.String("panic", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
}
