package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// startTime bounds the start of a mesh and its first reviews, on a machine that is busy.
const startTime = 2 * time.Minute

// oldEntry is the end of the path of an entry that was made from another configuration.
const oldEntry = "fail-closed/10."

// running is `portcullis dev`, in a process of its own, with a configuration in which nearly all metrics have series.
type running struct {
	t       *testing.T
	program string
	dir     string
	Bridge  string `json:"bridge"`
	Admin   string `json:"admin"`
}

// start builds the program, runs a mesh until the test ends, and has it judge reviews.
func start(t *testing.T) *running {
	t.Helper()
	m := &running{t: t, dir: t.TempDir()}
	m.program = filepath.Join(m.dir, "portcullis")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-o", m.program, "./cmd/portcullis").CombinedOutput(); err != nil {
		t.Fatalf("building portcullis: %v\n%s", err, out)
	}
	m.configure()
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), m.program, "dev", "--data-dir", m.dir, "--ready-file", m.file("ready.json"))
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the context of the test has ended
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of the mesh:\n%s", &log)
		}
	})
	m.eventually("the mesh serves", func() error {
		text, err := os.ReadFile(m.file("ready.json"))
		if err != nil {
			return err
		}
		return json.Unmarshal(text, m)
	})
	m.review()
	return m
}

func (m *running) file(name string) string { return filepath.Join(m.dir, name) }

// configure writes documents for `dev` beside its samples: a hook that no host serves, a hook in shadow, a hook that may be called before
// its turn, and a cluster with everything that expires.
func (m *running) configure() {
	m.t.Helper()
	if err := os.MkdirAll(m.file("config"), 0o700); err != nil {
		m.t.Fatal(err)
	}
	hour := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	text := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: more}
webhooks:%s%s%s%s
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: early}
webhooks:%s
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: more}
spec: {configuration: more, hook: shadowed.example.com, shadow: true}
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: early}
spec: {configuration: early, stream: {}, hosts: ["spiffe://portcullis.dev/early"], speculate: true, hedge: {}}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: far}
spec:
  identities: [far]
  kubeconfig: %q
  registration: {url: "https://mesh.example.com"}
  capabilities: [{name: one, sha256: %q, notAfter: %q}]
  bypass: {breakGlass: {until: %q, reason: a test}}
`, hook("absent.example.com", "true"), hook("shadowed.example.com", "true"), hook("exempt.example.com", "object.metadata.name == ''"),
		hook("broken.example.com", "object.no.no == 1"), hook("early.example.com", "true"),
		m.file("far.kubeconfig"), strings.Repeat("0", 64), hour, hour)
	if err := os.WriteFile(m.file("config/more.yaml"), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// hook is a webhook with a condition, at an address where nothing listens.
func hook(name, condition string) string {
	return fmt.Sprintf(`
- name: %s
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}
  clientConfig: {url: "https://127.0.0.1:1/"}
  matchConditions: [{name: one, expression: %q}]
  failurePolicy: Ignore
  sideEffects: None
  timeoutSeconds: 1
  admissionReviewVersions: [v1]`, name, condition)
}

// review has the mesh judge a review in each stage, and one by an entry that was made from another configuration.
func (m *running) review() {
	m.t.Helper()
	for _, stage := range []string{"mutate", "validate"} {
		m.eventually("a review to "+stage, func() error {
			out, err := exec.CommandContext(m.t.Context(), m.program, "review", "-f", m.file("pod.json"), "--stage", stage,
				"--ready-file", m.file("ready.json")).CombinedOutput()
			if !bytes.Contains(out, []byte(stage+": ")) {
				return fmt.Errorf("no answer (%w): %s", err, out)
			}
			return nil
		})
	}
	pair, err := tls.LoadX509KeyPair(m.file("certs/client.crt"), m.file("certs/client.key"))
	if err != nil {
		m.t.Fatal(err)
	}
	authority, err := os.ReadFile(m.file("certs/ca.crt"))
	if err != nil {
		m.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	pod, err := os.ReadFile(m.file("pod.json"))
	if err != nil {
		m.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: roots}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, m.Bridge+"/v1/clusters/dev/validate/"+oldEntry, bytes.NewReader(pod))
	if err != nil {
		m.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		m.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		m.t.Fatalf("a review by an entry: %s", answer.Status)
	}
}

func (m *running) eventually(what string, try func() error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), startTime)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			m.t.Fatalf("%s: %v", what, err)
		}
	}
}

// scrape is the text that Prometheus gets, and the metrics in it.
func (m *running) scrape() (text []byte, families map[string]*dto.MetricFamily) {
	m.t.Helper()
	request, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, m.Admin+"/metrics", nil)
	if err != nil {
		m.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		m.t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		m.t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if families, err = parser.TextToMetricFamilies(bytes.NewReader(text)); err != nil {
		m.t.Fatal(err)
	}
	return text, families
}
