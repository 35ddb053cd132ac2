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
)

// shortAnswer is the length up to which net/http finds out the Content-Length of an answer by itself, in HTTP/1.1 and HTTP/2.
const shortAnswer = 1 << 10

// exchange is one HTTP request and its answer. It belongs to the goroutine of its request.
type exchange struct {
	endpoint
	bridge   *Bridge
	writer   http.ResponseWriter
	control  http.ResponseController
	request  *http.Request
	started  time.Time
	deadline time.Time // of the review

	// From the URL and the channel, once they are known to be right.
	cluster string
	entry   match.Entry

	body  []byte
	lease *memory.Reservation

	// Of the review. It can be answered when apiVersion is known; uid is the bridge's own where the version has none.
	uid, apiVersion string

	outcome outcome
	failure string // why the answer is no verdict; empty when it is one
	code    int    // HTTP status; 0 until it is written
	span    trace.Span
}

func newExchange(b *Bridge, w http.ResponseWriter, r *http.Request, to endpoint) *exchange {
	x := &exchange{
		endpoint: to, bridge: b, writer: w, control: *http.NewResponseController(w), request: r, started: time.Now(),
		span: noop.Span{}, outcome: outcomeBroken,
	}
	x.guard()
	return x
}

// guard bounds an exchange whose deadline is not known yet: neither a body that nobody wants nor an answer that nobody
// reads holds a connection for long.
func (x *exchange) guard() {
	x.readUntil(x.started.Add(refusalTime))
	x.writeUntil(x.started.Add(refusalTime))
}

// readUntil bounds the reading of the body; the zero time takes the bound away. Where the connection knows no deadlines
// (a recorder in a test) there is nobody to wait for either.
func (x *exchange) readUntil(t time.Time) { _ = x.control.SetReadDeadline(t) }

func (x *exchange) writeUntil(t time.Time) { _ = x.control.SetWriteDeadline(t) }

// refuse answers with a refusal: as a denial when there is a review to deny, else, and when the entry's own policy shall
// decide, as an HTTP status.
func (x *exchange) refuse(r *refusal) {
	x.failure, x.outcome = r.message, r.outcome
	r.headers(x.writer.Header())
	if r.outcome != outcomeUnjudged && x.deniable() {
		if code, body, err := x.encode(r.denial(x.uid, x.apiVersion)); err == nil {
			x.answer(code, body)
			return
		}
	}
	x.answer(r.code, r.status())
}

// deniable says whether it is known what to deny: a review has to be known, and at /enforce a caller who may ask.
func (x *exchange) deniable() bool {
	if x.enforces {
		return x.cluster != ""
	}
	return x.apiVersion != ""
}

// answer writes the answer, which is not begun before. While the bridge drains, it asks the caller to close the connection. A
// write that fails is not looked at: a caller that is gone, or does not read, needs no answer.
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

// end closes the books of an exchange, also of one that panicked. Deferred directly.
func (x *exchange) end() {
	if cause := recover(); cause != nil {
		x.contain(cause)
	}
	x.lease.Release()
	x.bridge.instruments.observeExchange(x)
	x.endSpan()
	if logger := x.bridge.options.Logger; logger.Enabled(x.request.Context(), slog.LevelDebug) {
		logger.Debug("review answered", slog.String("cluster", x.cluster), slog.String("stage", stageName(x.stage)),
			slog.String("uid", x.uid), slog.String("outcome", string(x.outcome)), slog.Int("code", x.code),
			slog.Duration("took", time.Since(x.started)))
	}
}

// contain answers for a panic. When the answer has begun there is nothing left to say but to cut it off.
func (x *exchange) contain(cause any) {
	x.bridge.panicked(x.uid, cause)
	if x.code != 0 {
		x.outcome = outcomeBroken
		return
	}
	x.refuse(broken())
}

// panicked counts a panic and says where it was. The stack goes to the log alone.
func (b *Bridge) panicked(uid string, cause any) {
	b.instruments.panics.Inc()
	b.options.Logger.Error("panic contained", slog.String("uid", uid),
		slog.String("panic", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
}
