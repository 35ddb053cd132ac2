package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// copiedBytes is how much all parts of ours together may allocate for a review beside the buffer that its body is read
// into. A copy of the object, of which there shall be none, is eight times as much and more.
const copiedBytes = 128 << 10

// From the body of the request to the frames for the host, and back: nothing allocates in proportion to the object, but
// the one buffer that the body is read into.
func TestNobodyCopiesTheObject(t *testing.T) {
	citest.Sequential(t)
	a, _ := sampleApp(t, func(*dev, *serveConfig) {})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	for _, run := range []func(context.Context) error{a.store.Run, a.clusters.Run, a.router.Run} {
		go func() { ended <- run(ctx) }()
	}
	if _, err := a.store.Fresh(ctx); err != nil {
		t.Fatal(err)
	}
	for _, capabilities := range [][]string{nil, {"chunks"}} {
		for _, stage := range []string{"validate", "mutate"} {
			t.Run(fmt.Sprint(stage, capabilities), func(t *testing.T) {
				host := newDeaf(ctx, capabilities)
				gone := make(chan error, 1)
				go func() { gone <- a.hosts.Serve(host, identity.Named(devHost)) }()
				within(t, "the host", host.welcomed)
				checkCopies(t, a, stage)
				host.End()
				<-gone
			})
		}
	}
	stop()
	for range 3 {
		<-ended
	}
	a.hosts.Wait()
}

// checkCopies measures reviews of two sizes.
func checkCopies(t *testing.T, a *app, stage string) {
	t.Helper()
	for _, size := range []int{1 << 20, 3 << 20} {
		body := soakReview("pods", "Pod", size)
		reader := bytes.NewReader(body)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost,
			"/v1/clusters/"+devCluster+"/"+stage+"?timeout=10s", io.NopCloser(reader))
		request.ContentLength = int64(len(body))
		request.Header.Set("Content-Type", "application/json")
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: devAPIServer}}
		request.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
		review := func() {
			reader.Reset(body)
			w := httptest.NewRecorder()
			a.bridge.ServeHTTP(w, request)
			if text := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(text, `"allowed":true`) {
				t.Fatalf("%d %.300s", w.Code, text)
			}
		}
		review() // the first review fills pools and caches
		allocated := make([]int64, 20)
		for i := range allocated {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			review()
			runtime.ReadMemStats(&after)
			allocated[i] = int64(after.TotalAlloc - before.TotalAlloc)
		}
		slices.Sort(allocated) // some include allocations of other goroutines, and more of them the longer a review takes
		beside := allocated[len(allocated)/2] - int64(len(body))
		t.Logf("an object of %d bytes: %d are allocated beside its body", size, beside)
		if beside > copiedBytes {
			t.Errorf("an object of %d bytes: %d are allocated beside its body, want at most %d", size, beside, copiedBytes)
		}
	}
}

// deaf is a host in memory that allows everything without reading it.
type deaf struct {
	ctx      context.Context
	leave    context.CancelFunc
	answers  chan *hostv1.ConnectRequest
	welcomed chan struct{}
	chunks   bool
	calls    uint64
}

func newDeaf(ctx context.Context, capabilities []string) *deaf {
	ctx, leave := context.WithCancel(ctx)
	h := &deaf{
		ctx: ctx, leave: leave, chunks: len(capabilities) > 0,
		answers: make(chan *hostv1.ConnectRequest, 16), welcomed: make(chan struct{}),
	}
	offer := func(name string, stage admissionv1.Stage) *hostv1.HookOffer {
		return &hostv1.HookOffer{Name: name, Stage: stage}
	}
	h.answers <- &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: &hostv1.Hello{
		ProtocolMin: 1, ProtocolMax: 1, Host: "deaf", Instance: fmt.Sprintf("%p", h), Capabilities: capabilities, Hooks: []*hostv1.HookOffer{
			offer("pinned-images.portcullis.dev", admissionv1.Stage_STAGE_VALIDATE),
			offer("owner.portcullis.dev", admissionv1.Stage_STAGE_MUTATE),
			offer("cost-center.portcullis.dev", admissionv1.Stage_STAGE_MUTATE),
		},
	}}}
	return h
}

func (h *deaf) Context() context.Context { return h.ctx }

func (h *deaf) End() { h.leave() }

func (h *deaf) Recv() (*stream.Incoming, error) {
	select {
	case f := <-h.answers:
		raw, err := proto.Marshal(f)
		if err != nil {
			return nil, err
		}
		in := new(stream.Incoming)
		return in, in.Decode(raw)
	case <-h.ctx.Done():
		return nil, io.EOF
	}
}

// Send answers a frame that is a whole review, or its last chunk, which is not full.
func (h *deaf) Send(f *stream.Outgoing) error {
	switch {
	case f.Message.GetWelcome() != nil:
		close(h.welcomed)
		return nil
	case f.Message != nil, h.chunks && f.Parts[0].Body.Len() == stream.ChunkBytes:
		return nil
	}
	h.calls++
	h.answers <- &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: &hostv1.Verdict{
		CallId: h.calls, Outcome: &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true}},
	}}}
	return nil
}
