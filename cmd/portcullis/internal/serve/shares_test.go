package serve

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	judging "github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// sharesSlots is the number of concurrent calls of the host of TestClustersShareSlotsAsSoonAsThereAreSeveral. Either of two clusters may
// have three of them.
const sharesSlots = 4

// A session is told of each Cluster that comes into force or goes, while it goes on: a single cluster may use all of its slots,
// and each of several leaves some free.
func TestClustersShareSlotsAsSoonAsThereAreSeveral(t *testing.T) {
	s := newShares(t)
	s.fill(t, sharesSlots)

	file := s.dev.path("config/west.yaml")
	const west = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: west}\nspec: {identities: [west]}\n"
	if err := os.WriteFile(file, []byte(west), 0o600); err != nil {
		t.Fatal(err)
	}
	s.untilClusters(t, 2)
	s.fill(t, sharesSlots-1)

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.untilClusters(t, 1)
	s.fill(t, sharesSlots)
}

// shares is a dispatcher with one host, whose calls end when they are let.
type shares struct {
	app     *app
	dev     *dev
	running atomic.Int32
	let     atomic.Pointer[chan struct{}] // closed: the calls of this round end
}

func newShares(t *testing.T) *shares {
	t.Helper()
	s := &shares{}
	s.app, s.dev = sampleApp(t, func(d *dev, _ *serveConfig) {
		file := d.path("config/hooks.yaml")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.ReplaceAll(data, []byte("timeoutSeconds: 10"), []byte("timeoutSeconds: 30")) // no call ends before it is let
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	serving, stopped, left := make(chan listen.ReadyInfo, 1), make(chan error, 1), make(chan error, 1)
	go func() { stopped <- s.app.run(ctx, func(info listen.ReadyInfo) error { serving <- info; return nil }) }()
	t.Cleanup(func() {
		stop()
		if err := within(t, "the end of the dispatcher", stopped); err != nil {
			t.Error(err)
		}
	})
	h, err := hostsdk.New(hostsdk.Options{
		Name: "sample-host", Dispatchers: []string{within(t, "the listeners", serving).Hosts}, MaxOutstanding: sharesSlots,
		TLS:    hostsdk.TLSFiles(s.dev.path("certs/host.crt"), s.dev.path("certs/host.key"), s.dev.path("certs/ca.crt")),
		Logger: slog.New(slog.DiscardHandler),
	}, hostsdk.Validate("pinned-images.portcullis.dev", s.hold))
	if err != nil {
		t.Fatal(err)
	}
	go func() { left <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := within(t, "the end of the host", left); err != nil {
			t.Error(err)
		}
	})
	within(t, "the host", h.Ready())
	return s
}

// hold is a call that ends when it is let.
func (s *shares) hold(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
	s.running.Add(1)
	defer s.running.Add(-1)
	<-*s.let.Load()
	return hostsdk.Allow(), nil
}

// until waits for something that comes about by itself.
func (*shares) until(t *testing.T, state string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", state)
		}
		<-time.After(time.Millisecond)
	}
}

// untilClusters waits until so many clusters are in force.
func (s *shares) untilClusters(t *testing.T, want int) {
	t.Helper()
	s.until(t, "the clusters", func() bool {
		n, now := 0, s.app.store.Configuration()
		for key := range now.Objects {
			if key.Kind == "Cluster" {
				n++
			}
		}
		return n == want
	})
}

// fill has one cluster ask for all slots, checks how many it gets, and lets all calls end.
func (s *shares) fill(t *testing.T, want int32) {
	t.Helper()
	answers, let := make(chan error, sharesSlots), make(chan struct{})
	s.let.Store(&let)
	release := sync.OnceFunc(func() { close(let) })
	defer release()
	for range sharesSlots {
		go func() { answers <- s.review(t.Context()) }()
	}
	s.until(t, "calls that run or wait", func() bool { return s.running.Load()+s.waiting(t) == sharesSlots })
	if got := s.running.Load(); got != want {
		t.Errorf("a cluster has %d of %d slots, want %d", got, sharesSlots, want)
	}
	release()
	for range sharesSlots {
		if err := within(t, "an answer", answers); err != nil {
			t.Error(err)
		}
	}
}

// review asks about a Pod of the cluster dev.
func (s *shares) review(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	answer, err := s.app.judge.Review(ctx, &judging.Request{
		Stage: admissionv1.Stage_STAGE_VALIDATE,
		Admission: &admissionv1.AdmissionRequest{
			Uid: "one", Cluster: devCluster, Operation: "CREATE", Namespace: "default", Name: "pod",
			Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod","namespace":"default"}}`)},
		},
	})
	if err == nil && !answer.Response.GetAllowed() {
		err = fmt.Errorf("refused: %v", answer.Response.GetStatus())
	}
	return err
}

// waiting is how many calls wait for a slot.
func (s *shares) waiting(t *testing.T) int32 {
	t.Helper()
	w := httptest.NewRecorder()
	s.app.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	_, after, _ := strings.Cut(w.Body.String(), "\nportcullis_host_waiting_calls ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}
