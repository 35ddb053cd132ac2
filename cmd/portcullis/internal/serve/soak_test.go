package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

var (
	soakReviews = flag.Int("soak", 600, "how many large reviews the soak sends")
	soakBudget  = flag.Int64("soak-budget", 64<<20, "memory budget of the dispatcher under it, in bytes: with one that is "+
		"never reached the soak has to fail")
)

// asServe makes the test's own binary a dispatcher, so that its memory is measured apart from the test's.
const asServe = "RUN_AS_PORTCULLIS"

func TestMain(m *testing.M) {
	if os.Getenv(asServe) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		root := &cobra.Command{Use: "portcullis", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(NewCommand())
		code := cli.Run(ctx, root)
		stop()
		os.Exit(code)
	}
	if said := os.Getenv(asHosts); said != "" {
		if err := runHosts(said); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if text := os.Getenv(asScenarioHost); text != "" {
		if err := runScenarioHost(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

const (
	soakObject  = 1 << 20 // bytes of each large object
	soakBodies  = 32      // how many of the largest bodies the budget has room for, as by default
	soakCallers = 100     // of each of two clusters, all at the same time: three times the room of the budget
	// soakCeiling bounds the heap of the dispatcher for a budget in bytes. It adds the same again for garbage, at which the
	// collector begins (GOGC=100), half as much for allocations during a collection, and soakBase for an idle dispatcher
	// with two hundred connections.
	soakBase = 96 << 20
)

func soakCeiling(budget int64) int64 { return 5*budget/2 + soakBase }

// Two clusters send more reviews of 1 MiB than there is memory for, to hosts that answer one whenever another was refused:
// the dispatcher is at its limit all the time. It stays under its ceiling, refuses and says why, and judges all reviews of a
// third cluster meanwhile. At the end nothing is booked.
func TestSoakAtTheMemoryLimit(t *testing.T) {
	for _, stage := range []string{"validate", "mutate"} {
		t.Run(stage, func(t *testing.T) { newSoak(t, soakOptions{stage: stage, budget: *soakBudget}).run() })
	}
}

func (s *soak) run() {
	small := soakReview("pods", "Pod", 1<<10)
	var callers []*http.Client
	for range 2 * soakCallers { // one after the other: this test is not about handshakes
		callers = append(callers, s.connect())
		s.judge(callers[len(callers)-1], small)
	}
	stop, client := make(chan struct{}), s.connect()
	s.judge(client, small)
	var floods, quiet sync.WaitGroup
	for i, client := range callers {
		floods.Go(func() { s.flood(client, fmt.Sprint("flood-", 1+i%2)) })
	}
	quiet.Go(func() {
		for s.small.Store(0); !over(stop) && s.judge(client, small); {
		}
	})
	floods.Wait()
	close(stop)
	quiet.Wait()

	heap, ceiling := s.metric("go_memstats_heap_sys_bytes"), soakCeiling(64<<20)
	s.Logf("%d large reviews were judged, %d refused, %d failed by their hook, %d small ones judged beside them; "+
		"the heap grew to %d MiB of %d", s.judged.Load(), s.refused.Load(), s.failed.Load(), s.small.Load(), heap>>20, ceiling>>20)
	if s.judged.Load() == 0 || s.refused.Load() == 0 || s.small.Load() == 0 {
		s.Error("want some that were judged, some that were refused, and some small ones")
	}
	if heap > ceiling {
		s.Errorf("the heap grew to %d bytes, want at most %d", heap, ceiling)
	}
	s.nothingIsBooked()
}

// nothingIsBooked waits until the dispatcher has released the memory of its reviews.
func (s *soak) nothingIsBooked() {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); s.metric("portcullis_memory_used_bytes") != 0; {
		if time.Now().After(deadline) {
			s.Fatalf("%v bytes are still booked", s.metric("portcullis_memory_used_bytes"))
		}
	}
	if strings.Contains(s.metrics(), "portcullis_memory_cluster_used_bytes{") {
		s.Error("clusters without reviews still have accounts")
	}
}

// soakOptions is how a dispatcher is set up for a soak.
type soakOptions struct {
	stage  string
	budget int64 // --memory-budget, in bytes
}

// soak is a dispatcher in a process of its own, with hosts and callers in this one.
type soak struct {
	*testing.T
	dir    string // of its files
	stage  string
	pid    int // of the dispatcher
	info   listen.ReadyInfo
	tls    *tls.Config // of callers
	large  []byte
	tokens chan struct{} // one for each review that a slow host may answer
	over   chan struct{} // closed when all may be
	again  chan struct{} // a place for each caller that tries again: some more than are let in, so that some are refused

	posted, sent, judged, refused, failed, small atomic.Int64
}

func newSoak(t *testing.T, o soakOptions) *soak {
	t.Helper()
	d := &dev{dir: t.TempDir()}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.path("soak.yaml"), []byte(soakConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	again := 56
	if o.stage == "mutate" {
		again = 12
	}
	s := &soak{
		T: t, dir: d.dir, stage: o.stage, large: soakReview("configmaps", "ConfigMap", soakObject),
		tokens: make(chan struct{}, 2*soakCallers), over: make(chan struct{}), again: make(chan struct{}, again),
	}
	s.serve(d, o)
	for range 2 {
		s.host(d, "slow.portcullis.dev", s.slow)
	}
	s.host(d, "fast.portcullis.dev", fast)
	s.host(d, "worst.portcullis.dev", s.annotate)
	ca, cert, key := d.clientFiles()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s.tls = &tls.Config{RootCAs: poolOf(t, ca), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return s
}

// serve starts the dispatcher and waits until it serves.
func (s *soak) serve(d *dev, o soakOptions) {
	s.Helper()
	ready := d.path("ready.json")
	cmd := exec.CommandContext(s.Context(), os.Args[0], "serve", "--config", d.path("soak.yaml"), "--ready-file", ready,
		"--listen", "127.0.0.1:0", "--listen-hosts", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0",
		"--tls-cert", d.path("certs/server.crt"), "--tls-key", d.path("certs/server.key"), "--tls-ca", d.path("certs/ca.crt"),
		"--memory-budget", strconv.FormatInt(o.budget, 10), "--max-body-bytes", strconv.FormatInt(o.budget/soakBodies, 10), "--log-level", "error")
	cmd.Env = append(os.Environ(), asServe+"=1", "GOGC=100", "GOMEMLIMIT=off")
	cmd.Stderr = s.Output()
	s.start(cmd, ready)
}

// start starts a dispatcher, which ends with the test, and waits until it serves.
func (s *soak) start(cmd *exec.Cmd, ready string) {
	s.Helper()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.pid = cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.Cleanup(func() { <-ended }) // the test's context has ended by then
	for deadline := time.After(time.Minute); ; {
		data, err := os.ReadFile(ready)
		if err == nil && json.Unmarshal(data, &s.info) == nil {
			return
		}
		select {
		case err := <-ended:
			s.Fatalf("the dispatcher has ended: %v", err)
		case <-deadline:
			s.Fatal("the dispatcher does not serve")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// host runs a replica of a hook, which takes few calls at a time: the others wait in the dispatcher.
func (s *soak) host(d *dev, hook string, handler hostsdk.Handler) {
	s.Helper()
	h, err := hostsdk.New(hostsdk.Options{
		Name: hook, Dispatchers: []string{s.info.Hosts}, MaxOutstanding: 8, DrainTimeout: time.Millisecond,
		TLS:    hostsdk.TLSFiles(d.path("certs/host.crt"), d.path("certs/host.key"), d.path("certs/ca.crt")),
		Logger: slog.New(slog.DiscardHandler),
	},
		hostsdk.Validate(hook, handler),
		hostsdk.Mutate(hook, handler),
	)
	if err != nil {
		s.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Run(s.Context()) }()
	s.Cleanup(func() { <-ended })
	within(s.T, "the host", h.Ready())
}

// fast answers at once.
func fast(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }

// slow waits for permission to answer, and then changes the allowed fields.
func (s *soak) slow(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
	select {
	case <-s.tokens:
	case <-s.over:
	case <-ctx.Done():
	}
	if s.stage == "mutate" {
		return hostsdk.Patch([]byte(`[{"op":"add","path":"/data","value":{"changed":"yes"}}]`)), nil
	}
	return hostsdk.Allow(), nil
}

// flood sends large reviews until there were enough of them, the first together with all others.
func (s *soak) flood(client *http.Client, cluster string) {
	for more := s.send(client, cluster); more; {
		s.again <- struct{}{}
		more = s.send(client, cluster)
		<-s.again
	}
}

// send sends one large review, unless there were enough. A refusal is leave for a host to answer another one.
func (s *soak) send(client *http.Client, cluster string) (more bool) {
	switch n := s.sent.Add(1); {
	case n == int64(*soakReviews):
		close(s.over)
	case n > int64(*soakReviews):
		return false
	}
	status, text := s.post(client, cluster, s.large)
	switch {
	case status == http.StatusOK && strings.Contains(text, `"allowed":true`):
		s.judged.Add(1)
	case status == http.StatusTooManyRequests && strings.Contains(text, "no memory for"):
		s.refused.Add(1)
		select {
		case s.tokens <- struct{}{}:
		default:
		}
	case hookFailed(status, text):
		s.failed.Add(1)
	default:
		s.Errorf("a large review of %s: %d %.500s", cluster, status, text)
	}
	return true
}

// hookFailed reports whether a hook, which fails closed, had no verdict that could be kept: it lacked memory, or the race
// detector kept a host in this process from a processor for seconds. Defaulting a mutated object may lack memory too
// (docs/design/0008).
func hookFailed(status int, text string) bool {
	return status == http.StatusOK &&
		(strings.Contains(text, "failed calling webhook") || strings.Contains(text, "cannot be given its defaults: no memory for"))
}

// quietCluster is the cluster whose reviews may not be refused.
const quietCluster = "quiet"

// judge sends a review that may not be refused. It is to be counted when its hook has allowed it.
func (s *soak) judge(client *http.Client, body []byte) (goOn bool) {
	return s.allowed(s.post(client, quietCluster, body))
}

// allowed counts the answer to a review that may not be refused.
func (s *soak) allowed(status int, text string) (goOn bool) {
	if hookFailed(status, text) {
		return true
	}
	if status != http.StatusOK || !strings.Contains(text, `"allowed":true`) {
		s.Errorf("a small review: %d %.300s", status, text)
		return false
	}
	s.small.Add(1)
	return true
}

// over reports whether a channel is closed.
func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// post sends a review with a uid of its own, without a copy of its body. A refusal has to say when to try again: it does not when the time
// of the first attempt, by the uid, is over.
func (s *soak) post(client *http.Client, cluster string, body []byte) (status int, text string) {
	url := s.info.Bridge + "/v1/clusters/" + cluster + "/" + s.stage + "?timeout=30s"
	before, after, _ := bytes.Cut(body, []byte(soakUID))
	uid := fmt.Appendf(nil, "%0*d", len(soakUID), s.posted.Add(1))
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, url,
		io.MultiReader(bytes.NewReader(before), bytes.NewReader(uid), bytes.NewReader(after)))
	if err != nil {
		return 0, err.Error()
	}
	request.ContentLength = int64(len(body))
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	if response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") == "" {
		s.Error("a refusal does not say when to try again")
	}
	return response.StatusCode, string(answer)
}

// metrics returns the dispatcher's own metrics.
func (s *soak) metrics() string {
	s.Helper()
	return s.get("/metrics")
}

// get asks the listener for operators.
func (s *soak) get(path string) string {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.info.Admin+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.Fatalf("%s: status %d, %v", path, response.StatusCode, err)
	}
	return string(text)
}

// metric returns the value of a metric without labels.
func (s *soak) metric(name string) int64 {
	s.Helper()
	for line := range strings.Lines(s.metrics()) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				s.Fatal(err)
			}
			return int64(n)
		}
	}
	s.Fatalf("there is no metric %s", name)
	return 0
}

// connect is a caller with a connection of its own, as an API server makes one: HTTP/1.1.
func (s *soak) connect() *http.Client {
	transport := &http.Transport{TLSClientConfig: s.tls, MaxConnsPerHost: 1}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// soakUID is the uid in the body of a review, in whose place post writes another one.
const soakUID = "00000000-uid"

// soakReview is a review of the creation of an object that has a value of n bytes.
func soakReview(resource, kind string, n int) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"`+soakUID+`",`+
		`"kind":{"group":"","version":"v1","kind":%[2]q},"resource":{"group":"","version":"v1","resource":%[1]q},`+
		`"operation":"CREATE","name":"x","namespace":"default","userInfo":{"username":"alice"},`+
		`"object":{"apiVersion":"v1","kind":%[2]q,"metadata":{"name":"x","namespace":"default","annotations":{"x":%[3]q}}}}}`,
		resource, kind, strings.Repeat("x", n))
}

// soakConfig has the same two hooks in both stages.
const soakConfig = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: soak-validate}
webhooks:
- name: slow.portcullis.dev
  rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps]}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]
- name: fast.portcullis.dev
  rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]
- name: worst.portcullis.dev
  rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [podtemplates]}]
  objectSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}
  matchConditions: [{name: kind, expression: 'object.kind == "PodTemplate"'}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: soak-mutate}
webhooks:
- name: slow.portcullis.dev
  rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps]}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]
- name: fast.portcullis.dev
  rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]
- name: worst.portcullis.dev
  rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [podtemplates]}]
  objectSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}
  matchConditions: [{name: kind, expression: 'object.kind == "PodTemplate"'}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: soak-mutate}
spec:
  configuration: soak-mutate
  stream: {}
  hosts: ["spiffe://portcullis.dev/sample-host"]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: soak-validate}
spec:
  configuration: soak-validate
  stream: {}
  hosts: ["spiffe://portcullis.dev/sample-host"]
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: flood-1}
spec: {identities: [kube-apiserver], namespaces: {static: {default: {}}}}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: flood-2}
spec: {identities: [kube-apiserver], namespaces: {static: {default: {}}}}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: quiet}
spec: {identities: [kube-apiserver], namespaces: {static: {default: {}}}}
`

// poolOf is the authorities in a PEM file.
func poolOf(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return poolFrom(data)
}

// poolFrom is the authorities in a bundle.
func poolFrom(bundle []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return pool
}
