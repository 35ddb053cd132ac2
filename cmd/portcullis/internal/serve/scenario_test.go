package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	k8sadmission "k8s.io/api/admission/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/analyze"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

const (
	// scenarioClusters is how many clusters send reviews.
	scenarioClusters = 12
	// plain is the time from which on a finding is no noise of a busy machine, while clusters send at the same time and a fault is there. All
	// faults take much longer. Without a fault the bounds of the product hold.
	plain = 300 * time.Millisecond
	// mostStalled is for how many percent of the time a dispatcher may not run: a machine with so little time for it has a fault of its own. A
	// fault is played again then, so often.
	mostStalled, attempts = 10, 3
	// asScenarioHost makes the test's own binary a host, so that it can be stopped.
	asScenarioHost = "RUN_AS_SCENARIO_HOST"
)

// scenarioSessions is how many instances of hosts are connected to each dispatcher.
const scenarioSessions = 7

// delays are the waiting times of hosts and webhooks, in nanoseconds. The zero value waits for nothing.
type delays struct {
	images, policy, large, oneCluster, webhook atomic.Int64
}

// scenario is a mesh of three dispatchers and ten hooks, and the API servers of twelve clusters.
type scenario struct {
	*testing.T
	etcd        etcdstore.DialOptions
	dispatchers []*replica
	store       []*slowLink // from the third dispatcher to etcd
	remote      []*slowLink // from the remote host to the dispatchers
	delays      delays
	audit       *exec.Cmd
	callers     *http.Client
	ready       string // file of the commands
	console     string // address of a console
	token       string // of the console
}

// fault is one fault of the mesh, and the finding that has to name it. Empty parts of it are not compared.
type fault struct {
	name  string
	begin func(*scenario)
	load  func(*scenario)
	end   func(*scenario)
	want  named
}

// named are the parts of a finding that name a cause. The lists are joined by spaces.
type named struct{ Code, Phase, Hooks, Clusters, Instances, Dispatchers, Neighbour string }

// allClusters stands for all of them, in named.
const allClusters = "all"

// TestAnalyzeNamesEachFault has one fault at a time in a mesh with real dispatchers, hosts, links and webhooks, and asks `portcullis analyze`.
func TestAnalyzeNamesEachFault(t *testing.T) {
	citest.Soak(t, "causes one fault after the other in real time, and a machine without time to spare has faults of its own: 90 s")
	t.Parallel()
	s := newScenario(t)
	for _, f := range scenarioFaults() {
		t.Run(f.name, func(t *testing.T) {
			s.T = t
			for range attempts {
				s.forget()
				s.play(f)
				busy := s.stalled() > mostStalled
				t.Logf("dispatchers did not run for %d %% of the time", s.stalled())
				switch wrong := s.compare(f.want); {
				case wrong == "":
					if wrong := s.compareConsole(); wrong != "" {
						t.Fatalf("the console differs from analyze (-analyze +console):\n%s", wrong)
					}
					return
				case !busy:
					t.Fatal(wrong)
				default: // that is a fault too, and was found
					t.Logf("once more, since this machine did not run the dispatchers: %s", wrong)
				}
			}
			t.Skipf("the findings were wrong %d times, while this machine did not run the dispatchers for more than %d %% of the time: nothing is tested of this fault",
				attempts, mostStalled)
		})
	}
}

// play has the mesh have a fault under load.
func (s *scenario) play(f fault) {
	begun := time.Now()
	if f.begin != nil {
		f.begin(s)
	}
	f.load(s)
	if f.end != nil {
		f.end(s)
	}
	s.Logf("took %v", time.Since(begun).Round(100*time.Millisecond))
}

// stalled returns the percentage of time in which any dispatcher of this process did not run, since they last forgot.
func (s *scenario) stalled() (percent int) {
	for _, d := range s.dispatchers {
		for _, series := range d.app.latencies.Series(latency.Query{}) {
			if series.Observed > 0 {
				percent = max(percent, int(100*series.Stalled/series.Observed))
			}
		}
	}
	return percent
}

func scenarioFaults() []fault {
	const wait = 700 * time.Millisecond
	each := func(n int) func(*scenario) { return func(s *scenario) { s.load(sending{reviews: n, object: 1 << 10}) } }
	set := func(of func(*delays) *atomic.Int64, d time.Duration) func(*scenario) {
		return func(s *scenario) { of(&s.delays).Store(int64(d)) }
	}
	images := func(d *delays) *atomic.Int64 { return &d.images }
	policy := func(d *delays) *atomic.Int64 { return &d.policy }
	large := func(d *delays) *atomic.Int64 { return &d.large }
	oneCluster := func(d *delays) *atomic.Int64 { return &d.oneCluster }
	webhook := func(d *delays) *atomic.Int64 { return &d.webhook }
	const policies = "policy-1 policy-2"
	return []fault{
		{"nothing", nil, (*scenario).loadCalmly, nil, named{}},
		{
			"a host has too few slots", set(images, wait/3), each(6), set(images, 0),
			named{Code: "queue", Phase: "queue", Hooks: "images.example.com", Clusters: allClusters, Instances: "images-1"},
		},
		{
			"a handler is slow", set(policy, wait), each(6), set(policy, 0),
			named{Code: "handler", Phase: "handler", Hooks: "policy.example.com", Clusters: allClusters, Instances: policies},
		},
		{
			"a handler is slow for large objects", set(large, wait),
			func(s *scenario) {
				s.load(sending{reviews: 10, object: 1 << 10})
				s.load(sending{reviews: 10, object: 65 << 10})
			}, set(large, 0),
			named{Code: "large-objects", Phase: "handler", Hooks: "policy.example.com", Clusters: allClusters, Instances: policies},
		},
		{
			"a handler is slow for one cluster", set(oneCluster, wait), each(6), set(oneCluster, 0),
			named{Code: "one-cluster", Phase: "handler", Hooks: "policy.example.com", Clusters: "prod-07"}, // by the instances that got its few calls
		},
		{
			"a link has a delay", func(s *scenario) { s.setRemote(wait / 3) }, each(8), func(s *scenario) { s.setRemote(0) },
			named{Code: "link", Phase: "wire", Hooks: "remote.example.com", Clusters: allClusters, Instances: "remote-1"},
		},
		{
			"a webhook over HTTPS sleeps", set(webhook, wait), each(6), set(webhook, 0),
			named{Code: "webhook", Phase: "webhook", Hooks: "webhook.example.com", Clusters: allClusters},
		},
		{
			"a neighbour uses the slots of a host", set(images, wait/2), (*scenario).flood, set(images, 0),
			named{
				Code: "neighbour", Phase: "queue", Hooks: "images.example.com", Clusters: "prod-02 prod-03 prod-04", Instances: "images-1", Neighbour: "prod-01",
			},
		},
		{
			"a host stands still at moments", nil, (*scenario).loadWithPauses, nil,
			named{Code: "pauses", Phase: "wire", Hooks: "audit.example.com quota.example.com", Clusters: allClusters, Instances: "audit-1"},
		},
		{
			"the configuration of a dispatcher is stale", (*scenario).beginStale, (*scenario).loadStale, nil,
			named{Code: "stale-configuration", Phase: "held", Clusters: allClusters, Dispatchers: "third"},
		},
		{
			"a dispatcher is short of CPU", nil, (*scenario).loadStarved, nil,
			named{Code: "dispatcher-cpu", Phase: "dispatcher", Clusters: allClusters, Dispatchers: "starved"},
		},
	}
}

func newScenario(t *testing.T) *scenario {
	t.Helper()
	s := &scenario{T: t, etcd: etcdtest.Start(t).Options(etcdtest.User)}
	slow := s.etcd
	slow.Endpoints = nil
	for _, endpoint := range s.etcd.Endpoints {
		l := newSlowLink(t, strings.TrimPrefix(endpoint, "https://"))
		s.store = append(s.store, l)
		slow.Endpoints = append(slow.Endpoints, "https://"+l.address())
	}
	webhook := s.webhook()
	for i, id := range []string{"first", "second", "third"} {
		etcd, like := s.etcd, (*replica)(nil)
		if id == "third" {
			etcd = slow
		}
		if i > 0 {
			like = s.dispatchers[0]
		}
		s.dispatchers = append(s.dispatchers, newReplica(t, id, etcd, like, func(c *serveConfig) {
			c.advertise, c.stores.operator.Names = []string{"127.0.0.1"}, []string{devAPIServer}
			writeScenario(t, c.stores.paths[0], webhook)
		}))
	}
	info := s.dispatchers[0].info
	info.ClientCert, info.ClientKey = s.dispatchers[0].dev.path("certs/"+devClientName+".crt"), s.dispatchers[0].dev.path("certs/"+devClientName+".key")
	s.ready = readyFileOf(t, info)
	s.console, s.token = startConsole(t, s.ready)
	s.callers = apiServer(t, s.dispatchers[0].dev)
	s.callers.Transport.(*http.Transport).MaxIdleConnsPerHost = 4 * scenarioClusters
	s.hosts()
	return s
}

// webhook is an ordinary one; it returns its clientConfig.
func (s *scenario) webhook() string {
	w := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review k8sadmission.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		wait(r.Context(), &s.delays.webhook)
		review.Response = &k8sadmission.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review) // the caller may have gone
	}))
	s.Cleanup(w.Close)
	ca, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw}))
	if err != nil {
		s.Fatal(err)
	}
	return fmt.Sprintf("{url: %q, caBundle: %s}", w.URL+"/", ca)
}

// wait waits as long as it shall, or until the call is over.
func wait(ctx context.Context, d *atomic.Int64) {
	if d := time.Duration(d.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

// allowAfter is a handler that allows everything, after something.
func allowAfter(something func(context.Context, *hostsdk.Request)) hostsdk.Handler {
	return func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		something(ctx, r)
		return hostsdk.Allow(), nil
	}
}

// writeScenario writes the configuration of a dispatcher in the place of the samples.
func writeScenario(t *testing.T, dir, webhook string) {
	t.Helper()
	var hooks, mesh strings.Builder
	configuration := func(kind, name string, spec func(hook string) string, names ...string) {
		fmt.Fprintf(&hooks, "---\napiVersion: admissionregistration.k8s.io/v1\nkind: %sWebhookConfiguration\nmetadata: {name: %s}\nwebhooks:\n", kind, name)
		for _, hook := range names {
			fmt.Fprintf(&hooks, "- name: %s.example.com\n  clientConfig: %s\n  failurePolicy: Fail\n  sideEffects: None\n  timeoutSeconds: 20\n"+
				"  admissionReviewVersions: [v1]\n  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}]\n", hook, spec(hook))
		}
	}
	stream := func(string) string { return "{}" }
	configuration("Mutating", "labels", stream, "owner", "team", "limits")
	configuration("Validating", "policies", stream, "policy", "names", "images", "audit", "quota", "remote")
	configuration("Validating", "ordinary", func(string) string { return webhook }, "webhook")
	for _, name := range []string{"labels", "policies"} {
		fmt.Fprintf(&mesh, "---\napiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: %s}\nspec: {configuration: %s, stream: {}, hosts: [%q]}\n", name, name, devHost)
	}
	for i := range scenarioClusters {
		fmt.Fprintf(&mesh, "---\napiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: %s}\nspec: {identities: [%s], namespaces: {static: {default: {}}}}\n",
			clusterNumber(i), devAPIServer)
	}
	for name, text := range map[string]string{"hooks.yaml": hooks.String(), "mesh.yaml": mesh.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func clusterNumber(i int) string { return fmt.Sprintf("prod-%02d", i+1) }

// hosts starts all hosts and waits until each dispatcher has them, and the clusters.
func (s *scenario) hosts() {
	s.Helper()
	pass := allowAfter(func(context.Context, *hostsdk.Request) {})
	policy := allowAfter(func(ctx context.Context, r *hostsdk.Request) {
		wait(ctx, &s.delays.policy)
		if len(r.RawObject()) > 64<<10 {
			wait(ctx, &s.delays.large)
		}
		if r.Cluster() == "prod-07" {
			wait(ctx, &s.delays.oneCluster)
		}
	})
	images := allowAfter(func(ctx context.Context, _ *hostsdk.Request) { wait(ctx, &s.delays.images) })
	for _, instance := range []string{"labels-1", "labels-2"} {
		s.host(instance, s.addresses(), 0,
			hostsdk.Mutate("owner.example.com", pass), hostsdk.Mutate("team.example.com", pass), hostsdk.Mutate("limits.example.com", pass))
	}
	for _, instance := range []string{"policy-1", "policy-2"} {
		s.host(instance, s.addresses(), 0,
			hostsdk.Validate("policy.example.com", policy),
			hostsdk.Validate("names.example.com", pass),
		)
	}
	s.host("images-1", s.addresses(), len(s.dispatchers), hostsdk.Validate("images.example.com", images))
	var far []string
	for _, address := range s.addresses() {
		l := newSlowLink(s.T, address)
		s.remote, far = append(s.remote, l), append(far, l.address())
	}
	s.host("remote-1", far, 0, hostsdk.Validate("remote.example.com", pass))
	s.hostProcess()
	for _, d := range s.dispatchers {
		s.until(func() bool { return s.knows(d, clusterNumber(scenarioClusters-1)) })
		s.until(func() bool {
			return len(d.app.router.Ready()) == 0 && strings.Contains(d.app.metrics(s.T), fmt.Sprintf("\nportcullis_host_sessions %d\n", scenarioSessions))
		})
	}
}

// knows reports whether a dispatcher has a cluster in force: it refuses an empty body for its content, and not for its
// sender.
func (s *scenario) knows(d *replica, cluster string) bool {
	response, err := s.callers.Post(d.info.Bridge+"/v1/clusters/"+cluster+"/validate", "application/json", http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode == http.StatusBadRequest
}

func (s *scenario) addresses() (all []string) {
	for _, d := range s.dispatchers {
		all = append(all, d.info.Hosts)
	}
	return all
}

// host runs an instance of a host, which takes so many calls at a time, until the end of the test.
func (s *scenario) host(instance string, dispatchers []string, slots int, hooks ...hostsdk.Hook) {
	s.Helper()
	d := s.dispatchers[0].dev
	name, _, _ := strings.Cut(instance, "-")
	h, err := hostsdk.New(hostsdk.Options{
		Name: name, Instance: instance, Dispatchers: dispatchers, MaxOutstanding: slots, DrainTimeout: time.Millisecond,
		TLS:    hostsdk.TLSFiles(d.path("certs/host.crt"), d.path("certs/host.key"), d.path("certs/ca.crt")),
		Logger: slog.New(slog.DiscardHandler), Dial: s.dialer(dispatchers),
	}, hooks...)
	if err != nil {
		s.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx := s.Context()
	go func() { ended <- h.Run(ctx) }()
	s.Cleanup(func() { <-ended })
}

// dialer reaches the given addresses alone: the addresses that dispatchers name of each other go around slow links.
func (s *scenario) dialer(known []string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if !slices.Contains(known, address) && slices.Contains(s.addresses(), address) {
			return nil, fmt.Errorf("no way to %s but over the link", address)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
}

// scenarioHost is the audit host as its process is told it.
type scenarioHost struct {
	Dispatchers []string `json:"dispatchers"`
	CA          string   `json:"ca"`
	Cert        string   `json:"cert"`
	Key         string   `json:"key"`
}

// hostProcess runs the audit host in a process of its own.
func (s *scenario) hostProcess() {
	s.Helper()
	d := s.dispatchers[0].dev
	data, err := json.Marshal(scenarioHost{s.addresses(), d.path("certs/ca.crt"), d.path("certs/host.crt"), d.path("certs/host.key")})
	if err != nil {
		s.Fatal(err)
	}
	s.audit = exec.CommandContext(s.Context(), os.Args[0])
	s.audit.Env, s.audit.Stderr = append(os.Environ(), asScenarioHost+"="+string(data)), s.Output()
	if err := s.audit.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.audit.Wait() }) // the test's context has ended by then
}

// runScenarioHost is the audit host.
func runScenarioHost(text string) error {
	var o scenarioHost
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	pass := allowAfter(func(context.Context, *hostsdk.Request) {})
	h, err := hostsdk.New(hostsdk.Options{
		Name: "audit", Instance: "audit-1", Dispatchers: o.Dispatchers, TLS: hostsdk.TLSFiles(o.Cert, o.Key, o.CA), Logger: slog.New(slog.DiscardHandler),
	}, hostsdk.Validate("audit.example.com", pass), hostsdk.Validate("quota.example.com", pass))
	if err != nil {
		return err
	}
	return h.Run(context.Background())
}

func (s *scenario) until(so func() bool) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatal("waited in vain")
		}
	}
}

func (s *scenario) setRemote(delay time.Duration) {
	for _, l := range s.remote {
		l.delay.Store(int64(delay))
	}
}

// forget clears the records of the dispatchers, once they get to run most of the time. Their findings would otherwise show the machine's own
// stalls.
func (s *scenario) forget() {
	body := soakReview("pods", "Pod", 1<<10)
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(100 * time.Millisecond) {
		for _, d := range s.dispatchers {
			s.review("prod-01", d.info.Bridge, body, true)
		}
		calm := s.stalled() <= mostStalled
		for _, d := range s.dispatchers {
			d.app.latencies.Keep(nil)
		}
		if calm || time.Now().After(deadline) {
			return
		}
	}
}

// sending is the load of the clusters: each sends so many reviews, one after the other, to all dispatchers in turn.
type sending struct {
	clusters []string // none: all
	callers  int      // of each cluster; 0 means 1
	reviews  int      // of each caller
	object   int      // bytes
	think    time.Duration
	until    time.Time // if it is set, in the place of reviews
	bridges  []string  // of the dispatchers; none: all
	refused  bool      // some may be
}

func (s *scenario) load(l sending) {
	s.Helper()
	if l.clusters == nil {
		for i := range scenarioClusters {
			l.clusters = append(l.clusters, clusterNumber(i))
		}
	}
	if l.bridges == nil {
		for _, d := range s.dispatchers {
			l.bridges = append(l.bridges, d.info.Bridge)
		}
	}
	body := soakReview("pods", "Pod", l.object)
	var calling sync.WaitGroup
	for i, cluster := range l.clusters {
		for caller := range max(1, l.callers) {
			calling.Go(func() {
				for n := 0; n < l.reviews || time.Now().Before(l.until); n++ {
					s.review(cluster, l.bridges[(i+caller+n)%len(l.bridges)], body, l.refused)
					if l.think > 0 {
						<-time.After(l.think)
					}
				}
			})
		}
	}
	calling.Wait()
}

// review sends a request as an API server does: to the mutating hooks, then to the validating ones.
func (s *scenario) review(cluster, bridge string, body []byte, refused bool) {
	for _, stage := range []string{"mutate", "validate"} {
		response, err := s.callers.Post(bridge+"/v1/clusters/"+cluster+"/"+stage+"?timeout=20s", "application/json", bytes.NewReader(body))
		if err != nil {
			s.Error(err)
			return
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !refused && !bytes.Contains(text, []byte(`"allowed":true`)) {
			s.Errorf("a review of %s: %d %.300s, %v", cluster, response.StatusCode, text, err)
			return
		}
	}
}

// loadCalmly has each cluster send reviews, one after the other: then the mesh causes the long times, and not the load on this machine.
func (s *scenario) loadCalmly() {
	for i := range scenarioClusters {
		s.load(sending{clusters: []string{clusterNumber(i)}, reviews: 40, object: 1 << 10})
	}
}

// flood has one cluster send as much as a host takes, and three others a review now and then.
func (s *scenario) flood() {
	var flooding sync.WaitGroup
	flooding.Go(func() {
		s.load(sending{clusters: []string{"prod-01"}, callers: 4 * len(s.dispatchers), object: 1 << 10, until: time.Now().Add(8 * time.Second)})
	})
	s.load(sending{clusters: []string{"prod-02", "prod-03", "prod-04"}, reviews: 6, object: 1 << 10, think: 400 * time.Millisecond})
	flooding.Wait()
}

// loadWithPauses stops the audit host four times, as a collector of garbage or a CPU limit does.
func (s *scenario) loadWithPauses() {
	var loading sync.WaitGroup
	loading.Go(func() {
		s.load(sending{object: 1 << 10, think: 100 * time.Millisecond, until: time.Now().Add(12 * time.Second)})
	})
	for range 4 {
		<-time.After(2 * time.Second)
		s.signal(s.audit.Process.Pid, syscall.SIGSTOP)
		<-time.After(700 * time.Millisecond)
		s.signal(s.audit.Process.Pid, syscall.SIGCONT)
	}
	loading.Wait()
}

func (s *scenario) signal(pid int, signal syscall.Signal) {
	if err := syscall.Kill(pid, signal); err != nil {
		s.Error(err)
	}
}

// beginStale cuts the third dispatcher off its store until its configuration is stale.
func (s *scenario) beginStale() {
	for _, l := range s.store {
		l.setCut(true)
	}
	third := s.dispatchers[2].app
	s.until(func() bool { return !third.store.Configuration().Fresh })
}

// loadStale mends the way to the store once reviews have waited for a while.
func (s *scenario) loadStale() {
	mend := time.AfterFunc(2*time.Second, func() {
		for _, l := range s.store {
			l.setCut(false)
		}
	})
	defer mend.Stop()
	s.load(sending{reviews: 6, object: 1 << 10, refused: true})
}

// loadStarved adds a dispatcher that runs a quarter of the time, as under a CPU limit.
func (s *scenario) loadStarved() {
	d := s.dispatchers[0].dev
	ready := filepath.Join(s.TempDir(), "ready.json")
	p := &soak{T: s.T}
	cmd := exec.CommandContext(s.Context(), os.Args[0], "serve", "--id", "starved", "--config", d.path("config"), "--ready-file", ready,
		"--listen", "127.0.0.1:0", "--listen-hosts", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0", "--advertise-hosts", "127.0.0.1",
		"--tls-cert", d.path("certs/server.crt"), "--tls-key", d.path("certs/server.key"), "--tls-ca", d.path("certs/ca.crt"),
		"--etcd", strings.Join(s.etcd.Endpoints, ","), "--etcd-ca", s.etcd.CAFile, "--etcd-cert", s.etcd.CertFile, "--etcd-key", s.etcd.KeyFile,
		"--operator", devAPIServer, "--ready-timeout", "1ns", "--log-level", "error")
	cmd.Env, cmd.Stderr = append(os.Environ(), asServe+"=1"), s.Output()
	p.start(cmd, ready)
	s.until(func() bool { return p.metric("portcullis_host_sessions") == scenarioSessions })
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for !closed(over) {
			s.signal(p.pid, syscall.SIGSTOP)
			<-time.After(240 * time.Millisecond)
			s.signal(p.pid, syscall.SIGCONT)
			<-time.After(80 * time.Millisecond)
		}
	}()
	bridges := []string{p.info.Bridge}
	for _, d := range s.dispatchers {
		bridges = append(bridges, d.info.Bridge)
	}
	s.load(sending{object: 1 << 10, think: 100 * time.Millisecond, until: time.Now().Add(10 * time.Second), bridges: bridges})
	close(over)
	<-stopped
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// shownFinding is a finding as `analyze -o json` prints it.
type shownFinding struct {
	Code        string   `json:"code"`
	Text        string   `json:"text"`
	Phase       string   `json:"phase"`
	Hooks       []string `json:"hooks"`
	Clusters    []string `json:"clusters"`
	Instances   []string `json:"instances"`
	Dispatchers []string `json:"dispatchers"`
	Neighbour   string   `json:"neighbour"`
	Took        string   `json:"took"`
}

func (f *shownFinding) named() named {
	n := named{
		f.Code, f.Phase, strings.Join(f.Hooks, " "), strings.Join(f.Clusters, " "), strings.Join(f.Instances, " "), strings.Join(f.Dispatchers, " "), f.Neighbour,
	}
	if len(f.Clusters) == scenarioClusters {
		n.Clusters = allClusters
	}
	return n
}

// findingsReport is the part of a report that has the findings.
type findingsReport struct {
	Findings []shownFinding `json:"findings"`
}

// consoleFindings are those that the page of the console gets.
func (s *scenario) consoleFindings() []shownFinding {
	s.Helper()
	var state struct {
		Notes  []string
		Report findingsReport
	}
	if code := fetch(s.T, s.console+"data/state", s.token, &state); code != http.StatusOK {
		s.Fatalf("console: status %d", code)
	}
	if len(state.Notes) > 0 {
		s.Log(state.Notes)
	}
	return state.Report.Findings
}

// analyzeFindings are those that the command prints.
func (s *scenario) analyzeFindings() []shownFinding {
	s.Helper()
	got := clitest.Execute(s.T, analyze.NewCommand(), strings.NewReader(""), "--ready-file", s.ready, "-o", "json")
	var report findingsReport
	if err := json.Unmarshal([]byte(got.Out), &report); err != nil || got.Code != 0 {
		s.Fatalf("analyze: exit code %d, %v: %s%s", got.Code, err, got.Out, got.Notes)
	}
	if got.Notes != "" {
		s.Log(got.Notes)
	}
	return report.Findings
}

// compareConsole returns the differences between the findings of the console and of analyze. Both read the same records, but a dispatcher
// looks on whether it runs, and may answer either too late.
func (s *scenario) compareConsole() (wrong string) {
	s.Helper()
	names := func(all []shownFinding) (out []named) {
		for _, f := range all {
			out = append(out, f.named())
		}
		return out
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(100 * time.Millisecond) {
		if wrong = cmp.Diff(names(s.analyzeFindings()), names(s.consoleFindings())); wrong == "" || time.Now().After(deadline) {
			return wrong
		}
	}
}

// findings returns the plain findings of all dispatchers, or all findings if want is empty.
func (s *scenario) findings(want named) (all []shownFinding) {
	s.Helper()
	found := s.analyzeFindings()
	if (want == named{}) {
		return found
	}
	for _, f := range found {
		took, err := time.ParseDuration(f.Took)
		switch {
		case err != nil:
			s.Fatal(err)
		case took >= plain || f.Code == string(analysis.CodeFailures):
			all = append(all, f)
		default:
			s.Logf("noise: %s", f.Text)
		}
	}
	return all
}

// compare returns how the plain findings differ from the wanted finding, or from none if want is empty. Dispatchers that were away are
// asked until they are back.
func (s *scenario) compare(want named) (wrong string) {
	s.Helper()
	var found []shownFinding
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(100 * time.Millisecond) {
		if found = s.findings(want); (want == named{}) == (len(found) == 0) || time.Now().After(deadline) {
			break
		}
	}
	var all []string
	for _, f := range found {
		all = append(all, f.Code+": "+f.Text)
	}
	s.Logf("found %q", all)
	switch {
	case (want == named{}) && len(found) == 0:
		return ""
	case len(found) != 1:
		return fmt.Sprintf("%d findings, want one of %q", len(found), want.Code)
	}
	got := found[0].named()
	for _, part := range [][2]string{
		{got.Code, want.Code}, {got.Phase, want.Phase}, {got.Hooks, want.Hooks}, {got.Clusters, want.Clusters}, {got.Instances, want.Instances},
		{got.Dispatchers, want.Dispatchers}, {got.Neighbour, want.Neighbour},
	} {
		if part[1] != "" && part[0] != part[1] {
			return fmt.Sprintf("named %q, want %q", part[0], part[1])
		}
	}
	return ""
}
