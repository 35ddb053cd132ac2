package outbound

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	k8sv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// reviewOf is a review of a cluster, whose namespace has its name, for hooks that are each called so often.
func reviewOf(cluster string, times int, hooks ...*match.Hook) *review.CallSet {
	b := batch(slices.Repeat(hooks, times)...)
	b.Request.Cluster, b.Request.Namespace = cluster, cluster
	return b
}

// hangFor serves a webhook that does not answer the reviews of one cluster. entered receives for each of them.
func hangFor(t testing.TB, cluster string) (w *webhook, entered chan struct{}) {
	t.Helper()
	entered, release := make(chan struct{}, 1000), make(chan struct{})
	w = serve(t, answering(t, func(r *k8sv1.AdmissionRequest) *k8sv1.AdmissionResponse {
		if r.Namespace == cluster {
			entered <- struct{}{}
			<-release
		}
		return &k8sv1.AdmissionResponse{Allowed: true}
	}))
	t.Cleanup(func() { close(release) })
	return w, entered
}

// cancelAll ends all calls of a flight, and counts how they ended.
func (f *flight) cancelAll() map[string]int {
	f.t.Helper()
	for i := range f.left {
		f.cancel(i)
	}
	ends := make(map[string]int)
	for _, r := range f.wait() {
		ends[kindOf(r)]++
	}
	return ends
}

// wantIdle checks that no call holds anything.
func wantIdle(t testing.TB, c *Client) {
	t.Helper()
	eventually(t, "all calls have left", func() bool { return c.waiting() == 0 && c.limit.inFlight() == 0 })
	for _, target := range c.targets.byKey {
		g := &target.gate
		if target.arrived.Used() != 0 || g.slots.Used() != 0 || g.connecting.Used() != 0 || g.waiting.Len() != 0 {
			t.Errorf("%s: %d calls, %d under way, %d connecting, %d waiting",
				target.key.host, target.arrived.Used(), g.slots.Used(), g.connecting.Used(), g.waiting.Len())
		}
	}
}

func TestAFloodOfOneClusterLeavesAWebhookToTheOthers(t *testing.T) {
	w, entered := hangFor(t, "noisy")
	c := newClient(t, Options{limits: limits{targetCalls: 16, targetWaiting: 32}})
	noisy := start(t, c, reviewOf("noisy", 48, w.hook("/")))
	for range 12 { // three quarters
		receive(t, entered)
	}
	eventually(t, "as many wait as there is room left for", func() bool { return c.waiting() == 12 })
	for range 20 {
		want(t, start(t, c, reviewOf("quiet", 1, w.hook("/"))).wait(), "allowed")
	}
	if n := len(entered); n != 0 {
		t.Errorf("%d calls of the noisy cluster too many", n)
	}
	if ends := noisy.cancelAll(); ends["overload"] != 24 || ends["cancelled"] != 24 {
		t.Errorf("the calls of the noisy cluster: %v", ends)
	}
	wantIdle(t, c)
}

func TestHangingWebhooksOfOneClusterLeaveTheOthersTheirs(t *testing.T) {
	c := newClient(t, Options{limits: limits{calls: 64, waiting: 128, targetCalls: 16, targetWaiting: 32}})
	var hooks []*match.Hook
	for range 8 {
		w, _ := hangFor(t, "partitioned")
		hooks = append(hooks, w.hook("/"))
	}
	noisy := start(t, c, reviewOf("partitioned", 16, hooks...))
	eventually(t, "three quarters of the slots are taken", func() bool { return c.limit.inFlight() == 48 })
	well := serve(t, allowing(t))
	for range 20 {
		want(t, start(t, c, reviewOf("well", 1, well.hook("/"), hooks[0])).wait(), "allowed", "allowed")
	}
	noisy.cancelAll()
	wantIdle(t, c)
}

func TestAFloodOfReviewsLeavesConversionsToTheOthers(t *testing.T) {
	w, _ := hangFor(t, "noisy")
	converts := serve(t, echoing)
	c := newClient(t, Options{limits: limits{calls: 8, waiting: 8, targetCalls: 8}})
	noisy := start(t, c, reviewOf("noisy", 16, w.hook("/")))
	eventually(t, "three quarters of the slots are taken", func() bool { return c.limit.inFlight() == 6 })
	if _, err := c.Conversions("quiet").CallConversion(t.Context(), converts.converter("/"), []byte(`{}`)); err != nil {
		t.Errorf("a conversion of another cluster: %v", err)
	}
	noisy.cancelAll()
	wantIdle(t, c)
}

func TestAFloodOfConversionsLeavesReviewsToTheOthers(t *testing.T) {
	release := make(chan struct{})
	converts := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		<-release
		echoing(rw, r)
	})
	c := newClient(t, Options{limits: limits{calls: 8, waiting: 8, targetCalls: 8}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 16)
	for range cap(ended) {
		go func() {
			_, err := c.Conversions("noisy").CallConversion(ctx, converts.converter("/"), []byte(`{}`))
			ended <- err
		}()
	}
	eventually(t, "three quarters of the slots are taken", func() bool { return c.limit.inFlight() == 6 })
	want(t, start(t, c, reviewOf("quiet", 1, serve(t, allowing(t)).hook("/"))).wait(), "allowed")
	cancel()
	close(release)
	for range cap(ended) {
		_ = receive(t, ended) // Some may still have been answered.
	}
	wantIdle(t, c)
}

// mute is a listener whose connections say nothing until it speaks.
type mute struct {
	net.Listener
	accepted atomic.Int32
	speaks   chan struct{}
}

// Accept implements net.Listener.
func (m *mute) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m.accepted.Add(1)
	return &muteConn{Conn: c, speaks: m.speaks}, nil
}

type muteConn struct {
	net.Conn
	speaks chan struct{}
}

// Read implements net.Conn.
func (c *muteConn) Read(b []byte) (int, error) {
	<-c.speaks
	return c.Conn.Read(b)
}

// serveMute serves a webhook to which nobody connects until it speaks.
func serveMute(t testing.TB) (*webhook, *mute) {
	t.Helper()
	m := &mute{speaks: make(chan struct{})}
	return serve(t, allowing(t), func(s *httptest.Server) {
		m.Listener = s.Listener
		s.Listener = m
	}), m
}

func TestATargetThatDoesNotConnectGetsAHandfulOfCalls(t *testing.T) {
	w, m := serveMute(t)
	well := serve(t, allowing(t))
	c := newClient(t, Options{limits: limits{calls: 64, waiting: 256}})
	noisy := start(t, c, reviewOf("noisy", 100, w.hook("/")))
	eventually(t, "twelve connect", func() bool { return m.accepted.Load() == 12 && c.waiting() == 88 })
	quiet := start(t, c, reviewOf("quiet", 1, w.hook("/")))
	eventually(t, "the call of another cluster connects", func() bool { return m.accepted.Load() == 13 })
	want(t, start(t, c, reviewOf("noisy", 1, well.hook("/"))).wait(), "allowed") // The cluster's other webhooks go on.
	close(m.speaks)
	want(t, quiet.wait(), "allowed")
	for i, r := range noisy.wait() {
		if kindOf(r) != "allowed" {
			t.Errorf("call %d, once there are connections: %s (%v)", i, kindOf(r), r.Failure)
		}
	}
	wantIdle(t, c)
}

func TestACallThatWaitsForOthersToConnectSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Options{})
		c.targets.dial = func(*endpoint) (*targetTransport, error) {
			return &targetTransport{closeIdle: func() {}, RoundTripper: roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}, nil
		}
		url := "https://hooks.example.com"
		h := &match.Hook{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}, ReviewVersions: []string{"v1"}}
		noisy := start(t, c, reviewOf("noisy", 100, h))
		synctest.Wait()
		b := reviewOf("noisy", 1, h)
		b.Calls[0].Deadline = time.Now().Add(time.Second)
		last := start(t, c, b).wait()
		want(t, last, "timeout")
		if f := last[0].Failure; !f.NotStarted || !strings.Contains(f.Error(), "waiting for other calls to connect to the same webhook") {
			t.Errorf("failure %v", f)
		}
		noisy.cancelAll()
		synctest.Wait()
		wantIdle(t, c)
	})
}
