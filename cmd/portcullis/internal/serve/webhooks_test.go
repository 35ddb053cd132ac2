package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	k8sadmission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

func TestServeAndDevKnowTheFlagsOfWebhooks(t *testing.T) {
	for _, usage := range []string{NewCommand().UsageString(), NewDevCommand().UsageString()} {
		for _, want := range []string{"--webhook-kubeconfig", "[$PORTCULLIS_WEBHOOK_KUBECONFIG]", "--webhook-service", "[$PORTCULLIS_WEBHOOK_SERVICE]"} {
			if !strings.Contains(usage, want) {
				t.Errorf("%s is missing", want)
			}
		}
	}
}

// denying is an ordinary webhook, and the configuration of a hook that is called there.
func denying(t *testing.T) (configuration string) {
	t.Helper()
	w := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review k8sadmission.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &k8sadmission.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Code: 418, Message: "called"}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(w.Close)
	ca, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw}))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: ordinary}
webhooks:
- name: ordinary.example.com
  clientConfig: {url: %q, caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`, w.URL+"/", ca)
}

// apiServer is a client with the certificate of an API server of dev.
func apiServer(t *testing.T, d *dev) *http.Client {
	t.Helper()
	caFile, cert, key := d.clientFiles()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair},
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// metrics returns the metrics of a process, as Prometheus reads them.
func (a *app) metrics(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	a.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestAProcessCallsWebhooksAndHangsUpAtItsEnd(t *testing.T) {
	a, d := sampleApp(t, func(d *dev, _ *serveConfig) {
		if err := os.WriteFile(d.path("config/hooks.yaml"), []byte(denying(t)), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	serving, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() {
		ended <- a.run(ctx, func(info listen.ReadyInfo) error {
			serving <- info
			return nil
		})
	}()
	pod, err := samples.ReadFile("samples/pod.json")
	if err != nil {
		t.Fatal(err)
	}
	url := within(t, "the listeners", serving).Bridge + "/v1/clusters/" + devCluster + "/validate"

	answer, err := apiServer(t, d).Post(url, "application/json", bytes.NewReader(pod))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(body), `hook \"ordinary.example.com\" denied the request: called`) || !strings.Contains(string(body), `"code":418`) {
		t.Errorf("answer = %s", body)
	}
	if metrics := a.metrics(t); !strings.Contains(metrics, "\nportcullis_webhook_connections 1\n") {
		t.Error("the connection to the webhook is not counted")
	}
	cancel()
	if err := within(t, "the end of the process", ended); err != nil {
		t.Error(err)
	}
	if metrics := a.metrics(t); !strings.Contains(metrics, "\nportcullis_webhook_connections 0\n") {
		t.Error("the connection to the webhook is left open")
	}
}

func TestWhatOurTypesDoNotKnowIsCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	codec, err := newCodec(registry)
	if err != nil {
		t.Fatal(err)
	}
	object := []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"containers":[],"invented":1}}`)
	if _, _, err := codec.NewPatchSession(nil).Apply(object, []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	want := map[string]float64{
		builtin.ReasonUnknownFields: 1, builtin.ReasonAmbiguous: 0, builtin.ReasonUnknownKind: 0, builtin.ReasonUndecodable: 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}
