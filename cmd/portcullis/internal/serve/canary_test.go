package serve

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
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
	q.refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
}

// refuse answers with an error.
func (c canaries) refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Warning", fmt.Sprintf("299 - %q", c.capability))
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"details":{"causes":[{"message":%q}]},"code":%d}`,
		c.error(), reason, c.capability, code)
}

// readable is an API server that holds the configuration of a mesh, and is followed by it. Reads are answered truly; each write but of a Lease is
// forbidden, with the canaries. The bodies of writes come out.
type readable struct {
	*emptyAPIServer
	canaries

	out   io.Writer
	lists map[string][]string // the items of lists, as JSON, by the last part of their path

	mu    sync.Mutex
	asked map[string]bool // the writes: a method and the last parts of the path
}

func (q *readable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, last := r.URL.Path, path.Base(r.URL.Path)
	mesh, hooks := strings.Contains(at, "/apis/portcullis.dev/v1/"), strings.HasSuffix(at, "webhookconfigurations")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.Contains(at, "/leases") || strings.Contains(at, "accessreviews"):
		q.emptyAPIServer.ServeHTTP(w, r)
	case r.Method != http.MethodGet:
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(q.out, "written: %s\n", body)
		q.mu.Lock()
		q.asked[r.Method+" "+strings.TrimPrefix(at, path.Dir(path.Dir(at)))] = true
		q.mu.Unlock()
		if last == "copied" { // switched off
			_, _ = w.Write(body)
			return
		}
		q.refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case r.URL.Query().Has("watch") && (mesh || hooks):
		kind := metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"}
		if last[0] == 'm' {
			kind.Kind = "MutatingWebhookConfiguration"
		}
		for _, item := range q.lists[last] {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", item)
		}
		keepWatch(w, r, kind)
	case mesh || hooks:
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"AnyList","metadata":{"resourceVersion":"1"},"items":[%s]}`, strings.Join(q.lists[last], ","))
	case strings.Contains(at, "/customresourcedefinitions/"):
		fmt.Fprintf(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":%q}}`, last)
	default:
		q.emptyAPIServer.ServeHTTP(w, r)
	}
}

// wrote reports whether each write was asked for.
func (q *readable) wrote(all ...string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !slices.ContainsFunc(all, func(one string) bool { return !q.asked[one] })
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
	ready := readyFileOf(t, info)
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
	out.metrics(t, info)
	for _, span := range spans.Ended() {
		fmt.Fprintln(out, span.Name(), span.Attributes(), span.Status(), span.Events())
	}
	text := out.String()
	api.notIn(t, text)
	if !strings.Contains(text, "pcap_REDACTED") {
		t.Error("no error of the API server came out at all")
	}
}

// TestNoSecretThatAnAPIServerQuotesOnWritesComesOut has the API server of the configuration, and of a cluster, answer reads, so that the mesh goes on
// to write entries, copies, conditions of originals and statuses, and quote the canaries in its refusals.
func TestNoSecretThatAnAPIServerQuotesOnWritesComesOut(t *testing.T) {
	t.Parallel()
	out := &disclosed{}
	api := &readable{canaries: newCanaries(), out: out, asked: map[string]bool{}}
	api.emptyAPIServer = newEmptyAPIServerOf(t, api)
	const original = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q,"uid":%q,` +
		`"resourceVersion":"1","labels":{"follow":"true"}},"webhooks":[]}`
	api.lists = map[string][]string{
		"validatingwebhookconfigurations": {fmt.Sprintf(original, "copied", "copied"), fmt.Sprintf(original, "kept", "kept")},
		"clusters": {fmt.Sprintf(`{"apiVersion":"portcullis.dev/v1","kind":"Cluster","metadata":{"name":"refusing","uid":"u","resourceVersion":"1","generation":1},`+
			`"spec":{"identities":["refusing"],"kubeconfig":%q,"registration":{"url":"https://mesh.example.com:8443"},`+
			`"follow":{"selector":{"matchLabels":{"follow":"true"}}}}}`, api.kubeconfig)},
	}
	log, err := telemetry.NewLogger(out, "json", "debug")
	if err != nil {
		t.Fatal(err)
	}
	_, _, info := observedAppWithStore(t, log, noop.NewTracerProvider(), func(_ *dev, c *serveConfig) {
		c.stores.dataDir, c.stores.custom, c.stores.kubeconfig = "", true, api.kubeconfig
	})
	ready := readyFileOf(t, info)
	said := func() string {
		text := ""
		for _, args := range [][]string{{"cluster", "refusing", "-o", "json"}, {"clusters"}, {"dispatchers", "-o", "yaml"}, {"hooks"}} {
			r := clitest.Execute(t, configcli.NewGet(), nil, append(args, "--ready-file", ready)...)
			text += r.Out + r.Notes
		}
		return text
	}
	writes := []string{
		"PATCH /hookroutes/followed.refusing.copied.validate", "PATCH /validatingwebhookconfigurations/kept", "PUT /refusing/status", "POST /v1/mutatingwebhookconfigurations",
	}
	told := func(text string) bool {
		return strings.Contains(text, "does not take the copy") && strings.Contains(text, "does not have its webhooks switched off")
	}
	for deadline := time.Now().Add(time.Minute); !api.wrote(writes...) || !told(said()); <-time.After(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("written: %v\nsaid: %s", api.asked, said())
		}
	}
	fmt.Fprintln(out, said())
	r := clitest.Execute(t, configcli.NewExplain(), nil, "cluster", "refusing", "--ready-file", ready)
	fmt.Fprintln(out, r.Out, r.Notes)
	out.metrics(t, info)
	api.notIn(t, out.String())
}

// metrics adds the metrics of a dispatcher.
func (w *disclosed) metrics(t *testing.T, info listen.ReadyInfo) {
	t.Helper()
	for _, page := range []string{"/metrics", "/readyz?verbose"} {
		response, err := http.Get(info.Admin + page)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(w, response.Body)
		response.Body.Close()
	}
}

// notIn fails for each line of a text that has a secret.
func (c canaries) notIn(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if found := c.in(line); len(found) > 0 {
			t.Errorf("%q came out: %.600s", found, line)
		}
	}
}
