package outbound

import (
	"net/http"
	"testing"

	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel/trace"
)

func TestAWebhookIsSentTheTraceAsThePropagatorSays(t *testing.T) {
	b3, err := autoprop.TextMapPropagator("b3")
	if err != nil {
		t.Fatal(err)
	}
	answer, headers := allowing(t), make(chan http.Header, 1)
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		answer(rw, r)
	})
	b := batch(w.hook("/"))
	b.Calls[0].Span = trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1})
	want(t, start(t, newClient(t, Options{Propagator: b3}), b).wait(), "allowed")
	got := <-headers
	if got.Get("B3") != "01000000000000000000000000000000-0200000000000000-1" || got.Get("Traceparent") != "" {
		t.Errorf("headers %v", got)
	}
}
