package tenancy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	// The defaults of webhook configurations.
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/test/bench/https"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
)

// kind is the resource of a review, and so which hooks are called for it.
type kind string

// The kinds.
const (
	webhooks  kind = "webhooks"  // one webhook, which answers the measured cluster
	streams   kind = "streams"   // one hook on a host, which answers the measured cluster
	hanging   kind = "hanging"   // several webhooks that do not answer
	connected kind = "connected" // a webhook to which nobody can connect
)

const (
	group = "tenancy.bench.dev"
	// hangingWebhooks is how many webhooks hang.
	hangingWebhooks = 8
	// hookTimeout is longer than a round, in seconds: a hanging call hangs until its end.
	hookTimeout = 30
	// objectBytes is the size of the objects that are reviewed.
	objectBytes = 2000
)

// hookName is the name of the hook of a kind.
func hookName(k kind) string { return string(k) + "." + group }

// request is a review of a cluster.
func request(cluster string, k kind) *admissionv1.AdmissionRequest {
	gvk := &admissionv1.GroupVersionKind{Group: group, Version: "v1", Kind: "Case"}
	gvr := &admissionv1.GroupVersionResource{Group: group, Version: "v1", Resource: string(k)}
	object := fmt.Appendf(nil, `{"apiVersion":"%s/v1","kind":"Case","metadata":{"name":"x","namespace":%q},"spec":{"padding":"%s"}}`,
		group, cluster, strings.Repeat("x", objectBytes))
	return &admissionv1.AdmissionRequest{
		Uid: "705ab4f5-6393-11e8-b7cc-42010a800002", Cluster: cluster, Operation: "CREATE", Name: "x", Namespace: cluster,
		Kind: gvk, Resource: gvr, RequestKind: gvk, RequestResource: gvr,
		UserInfo: &admissionv1.UserInfo{Username: "bench"}, Object: &admissionv1.Object{Raw: object},
	}
}

// hooks are the webhooks.
type hooks struct {
	keys    *pki.PKI
	servers []*https.Server
	urls    map[kind][]string
	mute    *mute
}

// start starts the webhooks.
func (h *hooks) start(ctx context.Context, keys *pki.PKI) error {
	h.keys, h.urls = keys, make(map[kind][]string)
	add := func(k kind, handler http.HandlerFunc, protocol string) error {
		s, err := https.ServeProtocols(ctx, keys, handler, protocol)
		if err == nil {
			h.servers = append(h.servers, s)
			h.urls[k] = append(h.urls[k], s.URL())
		}
		return err
	}
	err := add(webhooks, answer, "http/1.1")
	for range hangingWebhooks {
		err = errors.Join(err, add(hanging, hang, "h2")) // without a connection, and its handshakes, for each call
	}
	if h.mute, err = listenMute(ctx, err); err == nil {
		h.urls[connected] = []string{"https://" + h.mute.listener.Addr().String()}
	}
	return err
}

// answer is the webhook that answers the measured cluster after some time, and the other one never.
func answer(w http.ResponseWriter, r *http.Request) {
	body, err := https.ReadAll(r)
	if err != nil {
		return
	}
	if bytes.Contains(body, []byte(`"namespace":"`+neighbour+`"`)) {
		<-r.Context().Done()
		return
	}
	_, rest, _ := bytes.Cut(body, []byte(`"uid":"`))
	uid, _, _ := bytes.Cut(rest, []byte(`"`))
	<-time.After(handling)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"%s","allowed":true}}`, uid)
}

// hang is a webhook that never answers.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = https.ReadAll(r)
	<-r.Context().Done()
}

// compile makes the configuration.
func (h *hooks) compile() (*match.Snapshot, error) {
	in := match.Input{Revision: "tenancy"}
	for k, urls := range h.urls {
		in.Objects = append(in.Objects, match.Object{Validating: h.configuration(k, urls...)})
	}
	in.Objects = append(in.Objects, match.Object{Validating: h.configuration(streams, "")})
	in.Routes = []match.RouteBinding{{Configuration: string(streams), Route: match.Route{Stream: true, Hosts: []string{pki.Identity}}}}
	snapshot, findings := match.Compile(in)
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			return nil, fmt.Errorf("the configuration is bad: %v", f)
		}
	}
	return snapshot, nil
}

// configuration is the configuration of a kind, with a hook for each URL.
func (h *hooks) configuration(k kind, urls ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: string(k)}}
	none, exact, timeout := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Exact, int32(hookTimeout)
	for i, url := range urls {
		w := admissionregistrationv1.ValidatingWebhook{
			Name: hookName(k), SideEffects: &none, MatchPolicy: &exact, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{string(k)}},
			}},
		}
		if i > 0 {
			w.Name = fmt.Sprintf("%d-%s", i, w.Name)
		}
		if url != "" {
			w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: h.keys.Authority()}
		}
		c.Webhooks = append(c.Webhooks, w)
	}
	legacyscheme.Scheme.Default(c)
	return c
}

// close ends the webhooks.
func (h *hooks) close() error {
	var err error
	for _, s := range h.servers {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, h.mute.close())
}

// mute takes connections and says nothing.
type mute struct {
	listener net.Listener
	ended    chan struct{}

	mu    sync.Mutex
	conns []net.Conn
}

// listenMute listens, unless something has failed before.
func listenMute(ctx context.Context, failed error) (*mute, error) {
	if failed != nil {
		return nil, failed
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mute{listener: listener, ended: make(chan struct{})}
	go m.accept()
	return m, nil
}

func (m *mute) accept() {
	defer close(m.ended)
	for {
		c, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		m.conns = append(m.conns, c)
		m.mu.Unlock()
	}
}

// close closes the connections. A nil one has none.
func (m *mute) close() error {
	if m == nil {
		return nil
	}
	err := m.listener.Close()
	<-m.ended
	for _, c := range m.conns {
		_ = c.Close() // most were closed at the other end
	}
	return err
}

// knowledge is the configuration, and clusters of which nothing is known.
type knowledge struct {
	match.Unknown

	snapshot *match.Snapshot
}

// Acquire implements dispatcher.Snapshots.
func (k knowledge) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return k.snapshot, "", nil
}

// Release implements dispatcher.Snapshots.
func (knowledge) Release(*match.Snapshot) {}

// Cluster implements dispatcher.Clusters.
func (k knowledge) Cluster(string) match.Cluster { return k }
