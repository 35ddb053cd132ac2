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
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	k8sadmission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

func TestServicesAreFoundByAllThatIsSaidOfThem(t *testing.T) {
	got, err := parseServices([]string{
		"policy/images=127.0.0.1:8443", "policy/images:8080=[::1]:1", "prod-1.example.com/policy/images=images.example.com:443",
		"prod-2/policy/images:9443=10.0.0.1:65535",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[outbound.Service]string{
		{Namespace: "policy", Name: "images"}:                                "127.0.0.1:8443",
		{Namespace: "policy", Name: "images", Port: 8080}:                    "[::1]:1",
		{Cluster: "prod-1.example.com", Namespace: "policy", Name: "images"}: "images.example.com:443",
		{Cluster: "prod-2", Namespace: "policy", Name: "images", Port: 9443}: "10.0.0.1:65535",
	}
	if !maps.Equal(got, want) {
		t.Errorf("table = %v, want %v", got, want)
	}
}

func TestAServiceThatCannotBeReadIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ entry, want string }{
		"no address":                   {"policy/images", "want [CLUSTER/]NAMESPACE/NAME"},
		"nothing":                      {"", "want [CLUSTER/]NAMESPACE/NAME"},
		"no namespace":                 {"images=a:1", "want [CLUSTER/]NAMESPACE/NAME"},
		"too many parts":               {"a/b/c/d=a:1", "want [CLUSTER/]NAMESPACE/NAME"},
		"an empty cluster":             {"/policy/images=a:1", `"" is no name of a cluster`},
		"an empty namespace":           {"prod//images=a:1", `"" is no name of a namespace`},
		"a name that is none":          {"policy/Images=a:1", `"Images" is no name of`},
		"a DNS name":                   {"policy/images.policy.svc=a:1", `"images.policy.svc" is no name of`},
		"a port that is none":          {"policy/images:https=a:1", `"https" is no port`},
		"a port of zero":               {"policy/images:0=a:1", `"0" is no port`},
		"a port past the last one":     {"policy/images:65536=a:1", `"65536" is no port`},
		"an address without a port":    {"policy/images=images.example.com", `"images.example.com" is no address`},
		"an address without a host":    {"policy/images=:443", `":443" is no address`},
		"an address with a named port": {"policy/images=a:https", `"https" is no port`},
		"a URL":                        {"policy/images=https://a:1", "is no address"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseServices([]string{tc.entry})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--webhook-service") {
				t.Errorf("error = %v, want %s", err, tc.want)
			}
		})
	}
}

func TestAServiceHasOneAddress(t *testing.T) {
	_, err := parseServices([]string{"policy/images=a:1", "policy/images:443=a:1", "policy/images=a:1", "x"})
	for _, want := range []string{`--webhook-service "policy/images=a:1": the service has an address already`, `--webhook-service "x"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}

func TestIdentitiesForWebhooksThatCannotBeReadAreRefused(t *testing.T) {
	for name, file := range map[string]string{
		"a file that is not there": "/does/not/exist",
		"a file of another kind":   clitest.Write(t, "kubeconfig", "apiVersion: v1\nkind: Pod\n"),
		"a file that is no YAML":   clitest.Write(t, "kubeconfig", "{"),
	} {
		t.Run(name, func(t *testing.T) {
			c := webhookConfig{kubeconfig: file}
			if _, err := c.client(outbound.Options{Metrics: prometheus.NewRegistry()}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--webhook-kubeconfig") {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestCredentialsThatGoToNoWebhookAreWarnedOf(t *testing.T) {
	for user, warned := range map[string]bool{"'*'": true, "hooks.example.com": false} {
		var logs bytes.Buffer
		c := webhookConfig{kubeconfig: clitest.Write(t, "kubeconfig", "apiVersion: v1\nkind: Config\nusers:\n- {name: "+user+", user: {token: secret}}\n")}
		client, err := c.client(outbound.Options{Metrics: prometheus.NewRegistry()}, slog.New(slog.NewTextHandler(&logs, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(logs.String(), "level=WARN") && strings.Contains(logs.String(), "remedy="); got != warned {
			t.Errorf("user %s: logged %q", user, logs.String())
		}
	}
}

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
	serving, ended := make(chan readyInfo, 1), make(chan error, 1)
	go func() {
		ended <- a.run(ctx, func(info readyInfo) error {
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

func TestNetworksOfWebhooksAreAddressesOrCIDRs(t *testing.T) {
	got, err := parseNetworks("--webhook-network", []string{"127.0.0.1", "127.0.0.1/8", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "fd00::/8"})
	want := []string{"127.0.0.1/32", "127.0.0.0/8", "::1/128", "fe80::1/128", "10.0.0.1/32", "fd00::/8"}
	if text := fmt.Sprint(got); err != nil || text != fmt.Sprint(want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, entry := range []string{"localhost", "127.0.0", "127.0.0.1/33", "127.0.0.1:443", "", "*"} {
		if _, err := parseNetworks("--webhook-network", []string{entry}); err == nil || !strings.Contains(err.Error(), "want an IP address or a CIDR") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}
