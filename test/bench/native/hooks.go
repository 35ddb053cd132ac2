package native

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/portcullis-mesh/portcullis/test/bench/https"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// The answer of a hook, around the uid of the request, and the start of a patching hook's answer before its patch in
// base64.
const (
	answerHead  = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"`
	answerTail  = `","allowed":true}}`
	answerPatch = `","allowed":true,"patchType":"JSONPatch","patch":"`
	patchTail   = `"}}`
)

// hooks are the webhook servers of a scenario, one for each host.
type hooks struct {
	scenario  scenario.Scenario
	authority []byte
	tails     map[string]string // by the name of the hook
	servers   []*https.Server
	calls     atomic.Int64
}

// startHooks starts the servers.
func startHooks(ctx context.Context, s scenario.Scenario, keys *pki.PKI) (*hooks, error) {
	h := &hooks{scenario: s, authority: keys.Authority(), tails: map[string]string{}}
	for i := range s.Hooks {
		h.tails[scenario.Hook(i)] = tail(s, i)
	}
	for range s.Hosts {
		server, err := https.Serve(ctx, keys, h)
		if err != nil {
			return nil, errors.Join(err, h.close())
		}
		h.servers = append(h.servers, server)
	}
	return h, nil
}

// client says where a hook is. Those that do not match have an address too; nobody asks them.
func (h *hooks) client(hook int) admissionregistrationv1.WebhookClientConfig {
	url := h.servers[h.scenario.Host(hook)].URL() + "/" + scenario.Hook(hook)
	return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: h.authority}
}

// tail is the answer of a hook behind the uid.
func tail(s scenario.Scenario, hook int) string {
	if patch := s.Patch(hook); len(patch) > 0 {
		return answerPatch + base64.StdEncoding.EncodeToString(patch) + patchTail
	}
	return answerTail
}

// ServeHTTP implements http.Handler: it reads the review, looks for the uid that the answer has to carry, and allows. Unless
// the scenario wants a check, it parses nothing, which no real hook can afford: the figures are kube-apiserver's own part.
func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := https.ReadAll(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if h.scenario.Checks {
		if err := check(body); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
	}
	h.calls.Add(1)
	_, rest, _ := bytes.Cut(body, []byte(`"uid":"`))
	uid, _, found := bytes.Cut(rest, []byte(`"`))
	if !found {
		http.Error(w, "the review has no uid", http.StatusBadRequest)
		return
	}
	if h.scenario.Takes > 0 {
		<-time.After(h.scenario.Takes)
	}
	answer := append(append([]byte(answerHead), uid...), h.tails[path.Base(r.URL.Path)]...)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // a caller that has gone sees no answer
}

// check checks the images of the Pod of a review.
func check(body []byte) error {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return err
	}
	var pod corev1.Pod
	if err := json.Unmarshal(review.Request.Object.Raw, &pod); err != nil {
		return err
	}
	return scenario.NamedByDigest(&pod)
}

// close ends the servers, if there are any.
func (h *hooks) close() error {
	if h == nil {
		return nil
	}
	var err error
	for _, s := range h.servers {
		err = errors.Join(err, s.Close())
	}
	return err
}
