package session

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unsafe"

	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// BenchmarkFanOut sends one review to 1, 8 and 32 hosts over streams in memory. Beside time and allocations it reports
// the bytes of a review: encoded for all hosts together, of these copied by us, and heads, one for each host.
func BenchmarkFanOut(b *testing.B) {
	for _, size := range []int{2 << 10, 20 << 10} {
		for _, hosts := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("object=%dkB/hosts=%d", size>>10, hosts), func(b *testing.B) { fanOut(b, size, hosts) })
		}
	}
}

func fanOut(b *testing.B, size, hosts int) {
	b.ReportAllocs()
	r, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for i := range hosts {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: fmt.Sprintf("h%d.bench.dev", i)})
	}
	snapshot, _ := match.Compile(match.Input{
		Revision: "r", Objects: []match.Object{{Validating: c}},
		Routes: []match.RouteBinding{{Configuration: "c", Route: match.Route{Stream: true, Hosts: []string{"host"}}}},
	})
	r.Update(snapshot)
	server := NewServer(r, nil)
	object := []byte(`{"kind":"Pod","metadata":{"name":"` + strings.Repeat("x", size) + `"}}`)
	var heads, copied, encoded int
	streams := make([]*echo, hosts)
	for i, h := range snapshot.Hooks() {
		streams[i] = newEcho(b, h.ID.Name)
		go func() { _ = server.Serve(streams[i], identity.Named("host")) }()
		<-streams[i].welcomed
	}
	request := &admissionv1.AdmissionRequest{
		Uid: "u", Operation: "CREATE", Namespace: "default", Object: &admissionv1.Object{Raw: object},
	}
	done := make(chan review.Result, hosts)
	for b.Loop() {
		batch := &review.CallSet{Request: request, Body: wire.EncodeBody(request, trace.SpanContext{})}
		for _, h := range snapshot.Hooks() {
			batch.Calls = append(batch.Calls, review.Call{Hook: h, Deadline: time.Now().Add(time.Minute)})
		}
		r.Start(b.Context(), batch, func(_ int, x review.Result) { done <- x })
		for range hosts {
			if x := <-done; x.Failure != nil {
				b.Fatal(x.Failure)
			}
		}
		encoded += batch.Body.Len()
		for _, piece := range batch.Body.Buffers() {
			if !inside(piece, object) {
				copied += len(piece)
			}
		}
	}
	for _, s := range streams {
		s.cancel()
	}
	server.Wait()
	for _, s := range streams {
		heads += s.heads
	}
	b.ReportMetric(float64(encoded)/float64(b.N), "encoded-B/op")
	b.ReportMetric(float64(copied)/float64(b.N), "copied-B/op")
	b.ReportMetric(float64(heads)/float64(b.N), "heads-B/op")
}

// inside reports whether a slice is a part of another one's memory.
func inside(part, whole []byte) bool {
	if len(part) == 0 {
		return false
	}
	p, w := uintptr(unsafe.Pointer(unsafe.SliceData(part))), uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	return p >= w && p < w+uintptr(len(whole))
}

// echo is a host in memory that allows everything at once, without reading the request.
type echo struct {
	ctx      context.Context
	cancel   context.CancelFunc
	answers  chan *stream.Incoming
	welcomed chan struct{}
	calls    uint64
	heads    int
}

func newEcho(b *testing.B, hook string) *echo {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e := &echo{ctx: ctx, cancel: cancel, answers: make(chan *stream.Incoming, 4), welcomed: make(chan struct{})}
	e.answers <- incoming(hello(hook, hook))
	return e
}

func (e *echo) Context() context.Context { return e.ctx }

func (e *echo) End() { e.cancel() }

func (e *echo) Send(f *stream.Outgoing) error {
	if f.Message != nil {
		if f.Message.GetWelcome() != nil {
			close(e.welcomed)
		}
		return nil
	}
	e.heads += len(f.Parts[0].Head)
	e.calls++
	e.answers <- incoming(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: &hostv1.Verdict{
		CallId: e.calls, Outcome: &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true}},
	}}})
	return nil
}

func (e *echo) Recv() (*stream.Incoming, error) {
	select {
	case f := <-e.answers:
		return f, nil
	case <-e.ctx.Done():
		return nil, io.EOF
	}
}
