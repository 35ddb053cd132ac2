package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mesh is a router with hosts whose frames the test writes itself, in a bubble with its own time.
type mesh struct {
	t           *testing.T
	router      *Router
	server      *Server
	snapshot    *match.Snapshot
	pending     []string    // hooks that are not in rotation when they are configured next
	hedge       match.Hedge // of the routes that are configured next
	ahead       bool        // likewise: they say speculate
	agree       bool        // the hosts that connect next agree to be asked ahead
	mode        review.Mode // of the calls that are started next
	cluster     string      // likewise
	clusters    []string    // of the routes that are configured next; none means all
	authorities []string    // likewise: they may vouch for hosts; none means all
	waiting     *results    // of a call that a test lets wait
	held        []*results  // that end with the test
}

// inBubble runs a test with a router that serves validating hooks of the given names, granted to identity "host".
// A name may be followed by "!" for a hook with side effects.
func inBubble(t *testing.T, hooks []string, test func(t *testing.T, m *mesh)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Options{ID: "d1"})
		if err != nil {
			t.Fatal(err)
		}
		r.found = time.Now().Add(-StartGrace) // all hosts have had the time to come
		ctx, stop := context.WithCancel(t.Context())
		m := &mesh{t: t, router: r, server: NewServer(r, nil)}
		m.configure(hooks...)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		test(t, m)
		for _, x := range m.held {
			for _, cancel := range x.cancel {
				cancel()
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		for _, s := range r.all() {
			s.Close(io.EOF)
		}
		m.server.Wait()
		if n := r.queued.Load(); n != 0 {
			t.Errorf("%d calls are still counted as waiting", n)
		}
	})
}

// configure puts hooks of configuration "c" in force, which identity "host" may serve.
func (m *mesh) configure(hooks ...string) {
	m.t.Helper()
	m.configureAs("c", "host", hooks...)
}

// configureAs puts hooks of a configuration in force, which an identity may serve.
func (m *mesh) configureAs(configuration, identity string, hooks ...string) {
	m.t.Helper()
	m.configureFor([]string{identity}, configuration, hooks...)
}

// configureFor puts hooks of a configuration in force, which identities may serve.
func (m *mesh) configureFor(identities []string, configuration string, hooks ...string) {
	m.t.Helper()
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configuration}}
	none, some := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassSome
	for _, name := range hooks {
		effects := &none
		if name[len(name)-1] == '!' {
			name, effects = name[:len(name)-1], &some
		}
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: name, SideEffects: effects})
	}
	var findings []match.Finding
	m.snapshot, findings = match.Compile(match.Input{
		Revision: fmt.Sprint(hooks),
		Objects:  []match.Object{{Validating: c, Pending: m.pending}},
		Routes: []match.RouteBinding{{
			Configuration: configuration, Route: match.Route{Stream: true, Hosts: identities, Authorities: m.authorities, Clusters: m.clusters, Hedge: m.hedge, Speculate: m.ahead},
		}},
	})
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			m.t.Fatal(f)
		}
	}
	m.router.Update(m.snapshot)
}

// results collects how calls ended; each has to end once.
type results struct {
	t      *testing.T
	cancel map[string]func()

	mu     sync.Mutex
	byHook map[string]review.Result
}

// review starts a review of the hooks with the given names, and lets it get as far as it does.
func (m *mesh) review(names ...string) *results {
	m.t.Helper()
	out := m.start(names...)
	synctest.Wait()
	return out
}

// reviewFor is review, of hooks that have so long.
func (m *mesh) reviewFor(long time.Duration, names ...string) *results {
	m.t.Helper()
	out := m.startFor(long, names...)
	synctest.Wait()
	return out
}

// start is review, without waiting.
func (m *mesh) start(names ...string) *results {
	m.t.Helper()
	return m.startFor(10*time.Second, names...)
}

func (m *mesh) startFor(long time.Duration, names ...string) *results {
	m.t.Helper()
	out := &results{t: m.t, byHook: map[string]review.Result{}, cancel: map[string]func(){}}
	request := &admissionv1.AdmissionRequest{Uid: "u", Cluster: m.cluster, Object: &admissionv1.Object{Raw: []byte(`{"kind":"Pod"}`)}}
	batch := &review.CallSet{Request: request, Body: wire.EncodeBody(request, trace.SpanContext{})}
	for _, name := range names {
		i := slices.IndexFunc(m.snapshot.Hooks(), func(h *match.Hook) bool { return h.ID.Name == name })
		batch.Calls = append(batch.Calls, review.Call{
			Hook: m.snapshot.Hooks()[i], Mode: m.mode, Deadline: time.Now().Add(long),
		})
	}
	cancel := m.router.Start(m.t.Context(), batch, func(i int, r review.Result) {
		out.mu.Lock()
		defer out.mu.Unlock()
		if _, twice := out.byHook[names[i]]; twice {
			m.t.Errorf("call of %q ended twice", names[i])
		}
		out.byHook[names[i]] = r
	})
	for i, name := range names {
		out.cancel[name] = func() { cancel(i) }
	}
	return out
}

// want checks how the call of a hook ended: "allowed", "pending" or the kind of a failure.
func (r *results) want(hook, how string) {
	r.t.Helper()
	x, ended := r.of(hook)
	got := "allowed"
	switch {
	case !ended:
		got = "pending"
	case x.Failure != nil:
		got = x.Failure.Kind.String()
	}
	if got != how {
		r.t.Errorf("call of %q: got %s (%+v), want %s", hook, got, x.Failure, how)
	}
}

// of returns how the call of a hook ended, if it did.
func (r *results) of(hook string) (review.Result, bool) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	x, ok := r.byHook[hook]
	return x, ok
}

// host is a host whose frames the test writes.
type host struct {
	t      *testing.T
	in     chan *hostv1.ConnectRequest
	out    chan *stream.Outgoing
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan error
}

var _ stream.Stream = (*host)(nil)

func (h *host) Context() context.Context { return h.ctx }

func (h *host) End() { h.cancel() }

func (h *host) Send(f *stream.Outgoing) error {
	select {
	case h.out <- f:
		return nil
	case <-h.ctx.Done():
		return h.ctx.Err()
	}
}

func (h *host) Recv() (*stream.Incoming, error) {
	select {
	case f := <-h.in:
		if f == nil { // or closed: a clean end
			return nil, io.EOF
		}
		return incoming(f), nil
	case <-h.ctx.Done():
		return nil, h.ctx.Err()
	}
}

// dial opens a stream without saying anything. The host's end has room for frames frames.
func (m *mesh) dial(name string, frames int) *host { return m.dialAs(identity.Named(name), frames) }

// dialAs is dial, over a channel.
func (m *mesh) dialAs(channel identity.Channel, frames int) *host {
	ctx, cancel := context.WithCancel(m.t.Context())
	h := &host{
		t: m.t, in: make(chan *hostv1.ConnectRequest), out: make(chan *stream.Outgoing, frames),
		ctx: ctx, cancel: cancel, ended: make(chan error, 1),
	}
	go func() {
		h.ended <- m.server.Serve(h, channel)
		cancel()
	}()
	return h
}

// connect opens a session that offers the hooks.
func (m *mesh) connect(instance string, hello *hostv1.Hello, hooks ...string) *host {
	m.t.Helper()
	h := m.dial("host", 64)
	hello.Host, hello.Instance, hello.ProtocolMin, hello.ProtocolMax = "h", instance, 1, 1
	for _, name := range hooks {
		hello.Hooks = append(hello.Hooks, &hostv1.HookOffer{Name: name, Stage: admissionv1.Stage_STAGE_VALIDATE, Speculate: m.agree})
	}
	h.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: hello}})
	if h.hear().GetWelcome() == nil {
		m.t.Fatal("the first frame is not Welcome")
	}
	return h
}

func (h *host) say(f *hostv1.ConnectRequest) {
	h.t.Helper()
	select {
	case h.in <- f:
	case err := <-h.ended:
		h.t.Fatalf("the session has ended: %v", err)
	}
	synctest.Wait()
}

// hear returns the next frame that is no ping; nil if there is none now.
func (h *host) hear() *hostv1.ConnectResponse {
	h.t.Helper()
	for {
		synctest.Wait()
		select {
		case f := <-h.out:
			if m := decode(h.t, f); m.GetPing() == nil {
				return m
			}
		default:
			return nil
		}
	}
}

// review returns the next frame, which has to be a review.
func (h *host) review() *hostv1.Review {
	h.t.Helper()
	f := h.hear()
	if f.GetReview() == nil {
		h.t.Fatalf("got frame %v, want a review", f)
	}
	return f.GetReview()
}

// incoming is a frame of a host as it comes over a wire.
func incoming(f *hostv1.ConnectRequest) *stream.Incoming {
	raw, err := proto.Marshal(f)
	in := new(stream.Incoming)
	if err = errors.Join(err, in.Decode(raw)); err != nil {
		panic(err) // the frames of tests can be read
	}
	return in
}

// decode reads a frame as the other end of a wire does.
func decode(t *testing.T, f *stream.Outgoing) *hostv1.ConnectResponse {
	t.Helper()
	if f.Message != nil {
		return f.Message
	}
	raw, err := stream.Codec().Marshal(f)
	m := new(hostv1.ConnectResponse)
	if err = errors.Join(err, proto.Unmarshal(raw.Materialize(), m)); err != nil {
		t.Fatal(err)
	}
	return m
}

func (h *host) allow(r *hostv1.Review, hook uint32) {
	h.t.Helper()
	h.say(verdict(r, hook, &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{
		Response: &admissionv1.AdmissionResponse{Allowed: true},
	}}))
}

func verdict(r *hostv1.Review, hook uint32, v *hostv1.Verdict) *hostv1.ConnectRequest {
	v.CallId, v.HookIndex = r.GetCallId(), hook
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: v}}
}

// end waits for the end of the session and returns its status code.
func (h *host) end() codes.Code {
	h.t.Helper()
	err := <-h.ended
	return status.Code(err)
}

// elapse lets the bubble's time pass.
func elapse(d time.Duration) { <-time.After(d) }
