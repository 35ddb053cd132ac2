package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
	"github.com/portcullis-mesh/portcullis/test/e2e/webhook"
)

// socketWebhook is an ordinary webhook without a certificate or a port: it
// listens on a unix socket alone.
type socketWebhook struct {
	file   string
	server *http.Server
	served chan error

	mu    sync.Mutex
	calls []webhook.Call
}

// serveOnSocket starts a webhook: it labels Pods at /mutate, and denies those
// with bad names at /validate.
func serveOnSocket(t *testing.T, file string) *socketWebhook {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", file)
	if err != nil {
		t.Fatal(err)
	}
	w := &socketWebhook{file: file, served: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mutate", w.answer(webhook.Patch(`[{"op":"add","path":"/metadata/labels","value":{"labelled":"yes"}}]`)))
	mux.HandleFunc("POST /validate", w.answer(denyBad))
	w.server = &http.Server{Handler: mux}
	go func() { w.served <- w.server.Serve(listener) }()
	t.Cleanup(func() { w.stop(t) })
	return w
}

func (w *socketWebhook) answer(script webhook.Script) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(rw, fmt.Sprintf("no review: %v", err), http.StatusBadRequest)
			return
		}
		w.mu.Lock()
		w.calls = append(w.calls, webhook.Call{Header: r.Header, Version: review.APIVersion, URL: r.URL, Request: review.Request})
		w.mu.Unlock()
		response := script(review.Request)
		response.UID = review.Request.UID
		_ = json.NewEncoder(rw).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
	}
}

// stop ends the webhook, whose socket is gone then. Once is enough.
func (w *socketWebhook) stop(t *testing.T) {
	t.Helper()
	if w.server == nil {
		return
	}
	if err := w.server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-w.served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	w.server = nil
}

// callsFor are the calls for the creation of a Pod.
func (w *socketWebhook) callsFor(pod string) (calls []webhook.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if c.Request.Name == pod {
			calls = append(calls, c)
		}
	}
	return calls
}

// startAdapt runs `portcullis adapt` before the webhook.
func (r *road) startAdapt(t *testing.T, socket string, args ...string) *process.Process {
	t.Helper()
	cert, key := r.Certify(t, hostName)
	adapt, err := process.Start(process.Command{
		Path: portcullis,
		Args: append([]string{
			"adapt", "--name", hostName, "--dispatcher", r.dispatcher.Hosts, "--cert", cert, "--key", key, "--ca", r.AuthorityFile(),
			"--mutate", "labels.example.com=unix://" + socket + ":/mutate", "--validate", "names.example.com=unix://" + socket + ":/validate",
			"--review-version", "names.example.com=v1beta1",
		}, args...),
		LogFile: filepath.Join(t.TempDir(), "adapt.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(adapt.Tail(40))
		}
		if err := adapt.Kill(); err != nil {
			t.Error(err)
		}
	})
	return adapt
}

// TestAWebhookOnASocketIsServedOverStreams puts adapt before a webhook that
// nothing else can reach. It judges as if kube-apiserver had called it; while
// one replica's webhook is gone the other one has the calls; and rolling adapt
// loses none.
func TestAWebhookOnASocketIsServedOverStreams(t *testing.T) {
	citest.Gate(t, "covers webhooks on sockets: 2 s")
	dir := t.TempDir()
	first := serveOnSocket(t, filepath.Join(dir, "1"))
	r := newRoad(t, kube.Mutating("labels", onPods("labels.example.com")), kube.Validating("names", onPods("names.example.com")))
	admin := freeAddress(t)
	adapt := r.startAdapt(t, first.file, "--listen-admin", admin)
	eventually(t, "its hooks are in rotation", func() error { return readyAt(t.Context(), admin) })
	r.mutate(t)
	r.validate(t)

	pod, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "good"))
	if err != nil {
		t.Fatalf("create a good pod: %v", err)
	}
	if pod.Labels["labelled"] != "yes" {
		t.Errorf("labels = %v, want labelled=yes", pod.Labels)
	}
	_, err = cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "bad"))
	wantError(t, err, http.StatusConflict, entryName, `hook "names.example.com" denied the request: bad names are not taken`)
	wantCallsOf(t, first, "good")

	// A second replica: each has a webhook of its own, as two Pods have.
	second := serveOnSocket(t, filepath.Join(dir, "2"))
	r.startAdapt(t, second.file)
	eventually(t, "both are there", func() error { return r.dispatcher.HasMetric(t.Context(), "portcullis_host_sessions 2") })
	first.stop(t) // between two calls: a call that its end cuts off is lost, as for any caller
	flow := newTraffic(t, r.createDry)
	flow.await(t)
	eventually(t, "the first one takes no calls", func() error {
		if err := readyAt(t.Context(), admin); err == nil || !strings.Contains(err.Error(), "the webhook cannot be called") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	flow.await(t)
	back := serveOnSocket(t, first.file)
	eventually(t, "the first one is back", func() error { return readyAt(t.Context(), admin) })
	flow.await(t)
	drain(t, adapt)
	flow.await(t)
	flow.wantNoFailure(t)
	back.stop(t)
}

// wantCallsOf checks the requests that a webhook got for a Pod.
func wantCallsOf(t *testing.T, w *socketWebhook, pod string) {
	t.Helper()
	uids, asked := map[types.UID]bool{}, map[string]string{}
	for _, c := range w.callsFor(pod) {
		uids[c.Request.UID] = true
		asked[c.URL.Path] = c.Version
		if !strings.HasPrefix(c.URL.RawQuery, "timeout=") || c.Header.Get("Content-Type") != "application/json" {
			t.Errorf("asked at %s with %v", c.URL, c.Header)
		}
		if mutated := strings.Contains(string(c.Request.Object.Raw), `"labelled":"yes"`); mutated != (c.URL.Path == "/validate") {
			t.Errorf("%s saw %s", c.URL.Path, c.Request.Object.Raw)
		}
	}
	want := map[string]string{"/mutate": "admission.k8s.io/v1", "/validate": "admission.k8s.io/v1beta1"}
	if diff := cmp.Diff(want, asked); diff != "" || len(uids) != 2 {
		t.Errorf("%d uids, want 2; versions by path (-want +got):\n%s", len(uids), diff)
	}
}

// readyAt returns nil if the admin port at an address says that its process is ready.
func readyAt(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	var text strings.Builder
	if err := answer.Write(&text); err != nil {
		return err
	}
	return errors.New(text.String())
}
