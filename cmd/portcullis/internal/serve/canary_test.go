package serve

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// canaries are secrets that an API server quotes in all its errors, as it does when the call of an entry fails.
type canaries struct{ capability, token, password string }

func newCanaries() canaries {
	return canaries{identity.NewCapability().Reveal(), "eyJjYW5hcnkiOjF9.eyJjYW5hcnkiOjJ9.Y2FuYXJ5", "canary-p4ssword"}
}

func (c canaries) error() string {
	return fmt.Sprintf(`Internal error occurred: failed calling webhook "fail-closed.validate.portcullis": failed to call webhook: Post `+
		`"https://mesh:%s@mesh.example.com:8443/v1/clusters/quoting/capability/%s/validate/fail-closed/11.AAAA?timeout=11s": `+
		`with Authorization: Bearer %s: dial tcp 10.0.0.9:8443: connect: connection refused`, c.password, c.capability, c.token)
}

// in returns the secrets in a text, also secrets of which some is cut off.
func (c canaries) in(text string) (found []string) {
	for _, secret := range []string{c.capability[5:15], c.token[:12], c.password} {
		if strings.Contains(text, secret) {
			found = append(found, secret)
		}
	}
	return found
}

// quoting is an API server whose every answer is an error that quotes the canaries. It counts the requests of each kind.
type quoting struct {
	canaries

	mu    sync.Mutex
	asked map[string]int
}

func (q *quoting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q.mu.Lock()
	q.asked[r.Method+" "+r.URL.Path]++
	q.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Warning", fmt.Sprintf("299 - %q", q.capability))
	w.WriteHeader(http.StatusInternalServerError)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":"InternalError","details":{"causes":[{"message":%q}]},"code":500}`,
		q.error(), q.capability)
}

// disclosed collects all that comes out of the process.
type disclosed struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *disclosed) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *disclosed) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

const quotedCluster = `
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: quoting}
spec:
  identities: [` + devAPIServer + `]
  kubeconfig: %q
  registration: {url: "https://mesh.example.com:8443"}
  follow: {selector: {matchLabels: {follow: "true"}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: labels}
webhooks:
- name: labels.example.com
  clientConfig: {url: "https://hooks.example.com/"}
  sideEffects: None
  admissionReviewVersions: [v1]
  failurePolicy: Ignore
  namespaceSelector: {matchLabels: {a: b}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [widgets]}]
`

// TestNoSecretThatAnAPIServerQuotesComesOut sends canaries through each road on which the mesh hears an API server, and looks for them in all that
// it writes: log, answers, objects and their status, hooks, findings, metrics and spans.
func TestNoSecretThatAnAPIServerQuotesComesOut(t *testing.T) {
	t.Parallel()
	api := &quoting{canaries: newCanaries(), asked: map[string]int{}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	kubeconfig := clitest.Write(t, "kubeconfig", `{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: "`+server.URL+
		`"}}], users: [{name: a, user: {token: `+api.token+`}}], contexts: [{name: a, context: {cluster: a, user: a}}]}`)

	out, spans := &disclosed{}, tracetest.NewSpanRecorder()
	log, err := telemetry.NewLogger(out, "json", "debug")
	if err != nil {
		t.Fatal(err)
	}
	_, _, info := observedAppWithStore(t, log, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), func(*dev, *serveConfig) {})
	ready := info.file(t)
	file := clitest.Write(t, "quoted.yaml", fmt.Sprintf(quotedCluster, kubeconfig))
	say := func(name string, r clitest.Result) clitest.Result {
		fmt.Fprintf(out, "%s: %d\n%s%s\n", name, r.Code, r.Out, r.Notes)
		return r
	}
	say("apply", clitest.Execute(t, configcli.NewApply(), nil, "-f", file, "--wait", "--timeout", "5s", "--ready-file", ready,
		"--acknowledge", "danger-kube-system"))
	r := say("review", clitest.Execute(t, reviewcli.NewCommand(), strings.NewReader(createWidget), "-f", "-", "--stage", "validate", "--cluster", "quoting",
		"--ready-file", ready))
	if !strings.Contains(r.Out, "500") {
		t.Errorf("the API server was not asked: %v", r)
	}
	leases := func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		for request := range api.asked {
			if strings.Contains(request, "/leases/") {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(time.Minute); !leases(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no campaign for a Lease: %v", api.asked)
		}
	}
	for name, args := range map[string][]string{
		"clusters": {"clusters", "-o", "yaml"}, "cluster": {"clusters"}, "hooks": {"hooks", "-o", "yaml"}, "findings": {"findings"}, "dispatchers": {"dispatchers", "-o", "yaml"},
	} {
		say("get "+name, clitest.Execute(t, configcli.NewGet(), nil, append(args, "--ready-file", ready)...))
	}
	say("explain", clitest.Execute(t, configcli.NewExplain(), nil, "cluster", "quoting", "--ready-file", ready))
	response, err := http.Get(info.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(out, response.Body)
	response.Body.Close()
	for _, span := range spans.Ended() {
		fmt.Fprintln(out, span.Name(), span.Attributes(), span.Status(), span.Events())
	}
	text := out.String()
	if found := api.in(text); len(found) > 0 {
		for line := range strings.Lines(text) {
			if len(api.in(line)) > 0 {
				t.Errorf("%q came out: %.600s", found, line)
			}
		}
	}
	if !strings.Contains(text, "pcap_REDACTED") {
		t.Error("no error of the API server came out at all")
	}
}
