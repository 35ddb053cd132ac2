package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// exchange is one HTTP request and its answer. It travels through the gateway in the request's context, since the
// gateway's own errors keep nothing but text. It is the ResponseWriter of the gateway, so that it knows whether and how
// was answered. It belongs to the goroutine of its request.
type exchange struct {
	bridge   *Bridge
	writer   http.ResponseWriter
	control  *http.ResponseController
	request  *http.Request
	started  time.Time
	deadline time.Time // of the review

	// From the URL and the channel, once they are known to be right.
	stage    admissionv1.Stage
	enforces bool // the protocol is that of /enforce
	cluster  string
	entry    match.Entry

	body  []byte
	lease *memory.Lease

	// Of the review. It can be answered when apiVersion is known; uid is the bridge's own where the version has none.
	uid, apiVersion string

	refused *refusal // why no hook sees the review; nil otherwise
	verdict int      // HTTP status of an answer that the gateway writes
	outcome outcome
	failure string // why the answer is no verdict; empty when it is one
	code    int    // HTTP status; 0 until it is written
	span    trace.Span
}

func newExchange(b *Bridge, w http.ResponseWriter, r *http.Request) *exchange {
	return &exchange{
		bridge: b, writer: w, control: http.NewResponseController(w), request: r, started: time.Now(),
		span: noop.Span{}, outcome: outcomeBroken, verdict: http.StatusOK,
	}
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		panic("bridge: the gateway lost the request's context") //nolint:forbidigo // contained by end, and cannot be
	}
	return x
}

// routed is the request as the gateway routes it: method and path, and this exchange. Headers stay behind: the gateway
// would take a timeout, metadata, trailers, another method and the codec from them.
func (x *exchange) routed() *http.Request {
	r := x.request.WithContext(context.WithValue(x.request.Context(), exchangeKey{}, x))
	r.Header = x.bridge.noHeader
	r.Host, r.RemoteAddr = "", ""
	return r
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
	x.refused, x.outcome = r, r.outcome
	r.headers(x.Header())
	if r.outcome != outcomeUnjudged {
		if code, body := x.denial(r); body != nil {
			x.answer(code, body)
			return
		}
	}
	x.answer(r.code, r.status())
}

// denial is a refusal as the denial of the review, in the protocol of its exchange. There is none when it is not known
// what to deny: a review has to be known, and at /enforce a caller who may ask.
func (x *exchange) denial(r *refusal) (code int, body []byte) {
	denial, err := r.denial(x.uid, x.apiVersion), error(nil)
	switch {
	case x.enforces && x.cluster != "":
		code = http.StatusBadRequest
		body, err = enforced{denial}.body()
	case !x.enforces && x.apiVersion != "":
		code = http.StatusOK
		body, err = conversion.EncodeReview(nil, denial)
	}
	if err != nil {
		return 0, nil
	}
	return code, body
}

func (x *exchange) answer(code int, body []byte) {
	x.Header().Set("Content-Type", jsonType)
	x.WriteHeader(code)
	_, _ = x.Write(body)
}

// Header is part of http.ResponseWriter.
func (x *exchange) Header() http.Header { return x.writer.Header() }

// WriteHeader is part of http.ResponseWriter. While the bridge drains, it asks the caller to close the connection.
func (x *exchange) WriteHeader(code int) {
	if x.code != 0 {
		return
	}
	x.code = code
	if code == http.StatusNoContent { // the gateway describes a body in any case
		x.Header().Del("Content-Type")
		x.Header().Del("Content-Length")
	}
	if !x.bridge.Ready() {
		x.Header().Set("Connection", "close")
	}
	x.writer.WriteHeader(code)
}

// Write is part of http.ResponseWriter. It never fails: whoever is gone, or does not read, needs no answer, and the
// gateway would write a line about it to standard error.
func (x *exchange) Write(body []byte) (int, error) {
	x.WriteHeader(x.verdict)
	if len(body) > 0 {
		_, _ = x.writer.Write(body)
	}
	return len(body), nil
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
