package upstream

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// TestEachAttemptHasASpan: an attempt that a dispatcher did not judge is an error, the next one is the parent of the dispatcher's span.
func TestEachAttemptHasASpan(t *testing.T) {
	m := newMesh(t)
	parents := make(chan trace.SpanContext, 1)
	idle, _, _ := m.dispatcher(func(context.Context, *review.Request) (review.Answer, error) {
		return review.Answer{}, bridge.ErrNoDispatcher
	})
	judging, _, _ := m.dispatcher(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		parents <- trace.SpanContextFromContext(ctx)
		return allowed(ctx, r)
	})
	recorder := tracetest.NewSpanRecorder()
	u := m.reviewer(idle, judging)
	u.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	for failed := false; !failed; { // until the review was tried at the dispatcher that does not judge
		before := len(recorder.Ended())
		m.passes(u)
		spans, parent := recorder.Ended()[before:], <-parents
		for i, span := range spans {
			last := i == len(spans)-1
			if span.Name() != "portcullis.admission.v1.AdmissionService/Review" || span.SpanKind() != trace.SpanKindClient {
				t.Errorf("the span is %q (%v)", span.Name(), span.SpanKind())
			}
			if isError := span.Status().Code == codes.Error; isError == last {
				t.Errorf("attempt %d of %d: an error: %t (%s)", i+1, len(spans), isError, span.Status().Description)
			}
			attributes := map[string]string{}
			for _, a := range span.Attributes() {
				attributes[string(a.Key)] = a.Value.Emit()
			}
			if attributes["k8s.cluster.name"] != "east" || attributes["portcullis.uid"] != "u" || attributes["server.address"] != "127.0.0.1" {
				t.Errorf("attributes %v", attributes)
			}
			if last && parent.SpanID() != span.SpanContext().SpanID() {
				t.Errorf("the dispatcher judges in %v, want the span of the attempt %v", parent, span.SpanContext())
			}
			failed = failed || !last
		}
	}
}

// TestASlowReviewIsLogged: with the part of its time that was at the bridge; one line in an interval, which counts the others.
func TestASlowReviewIsLogged(t *testing.T) {
	var text bytes.Buffer
	l := slowLog{after: time.Second, log: slog.New(slog.NewTextHandler(&text, nil))}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	r, now := request(patience), time.Now()
	note := func(took time.Duration) {
		r.Received = now.Add(-took)
		l.note(ctx, r, r.Received.Add(took/2), road{attempts: 2, queued: 40 * time.Millisecond, answered: 2 * time.Second, dispatcher: "10.0.0.7:8444"},
			review.OutcomeAllowed)
	}
	note(0)
	if text.Len() > 0 {
		t.Errorf("a fast review is logged: %s", text.String())
	}
	l.lines.Interval = time.Hour
	note(3 * time.Second)
	note(3 * time.Second)
	l.lines.Interval = 1
	note(3 * time.Second)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2:\n%s", len(lines), text.String())
	}
	for _, want := range []string{
		`level=WARN msg="the review was slow" uid=u cluster=east stage=validate operation=CREATE`, "outcome=allowed duration=3", "edge=1.5s", "queued=40ms",
		"answered=2s", "dispatcher=10.0.0.7:8444", "attempts=2", "trace_id=01000000000000000000000000000000",
	} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("no %q in: %s", want, lines[0])
		}
	}
	if strings.Contains(lines[0], "more=") || !strings.Contains(lines[1], "more=1") {
		t.Errorf("the second line counts the one between:\n%s", text.String())
	}
	text.Reset()
	l.after = 0
	note(time.Hour)
	if text.Len() > 0 {
		t.Errorf("0 logs: %s", text.String())
	}
}

// TestTheRoadOfAReviewIsMeasured: the wait for a dispatcher, the attempts, and who answered.
func TestTheRoadOfAReviewIsMeasured(t *testing.T) {
	m := newMesh(t)
	address, _, _ := m.dispatcher(allowed)
	u := m.reviewer(address)
	_, went, err := u.review(t.Context(), request(patience))
	if err != nil || went.attempts != 1 || went.dispatcher != address || went.answered <= 0 {
		t.Errorf("road %+v, error %v", went, err)
	}
	if _, went, err = m.reviewer("127.0.0.1:1").review(t.Context(), request(10*pause)); err == nil || went.queued < pause {
		t.Errorf("without a dispatcher: road %+v, error %v", went, err)
	}
}
