package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// outage is a dispatcher whose etcd comes and goes.
type outage struct {
	t      *testing.T
	etcd   *etcdtest.Cluster
	app    *app
	client *http.Client
	info   listen.ReadyInfo
	ready  string // its ready file
}

// newOutage starts a dispatcher that keeps permits in its own directory. In its Cluster, words are replaced in pairs.
func newOutage(t *testing.T, words ...string) *outage {
	t.Helper()
	o := &outage{t: t, etcd: etcdtest.Start(t)}
	o.etcd.Store()
	reach := o.etcd.Options(etcdtest.User)
	a, d := sampleApp(t, func(d *dev, c *serveConfig) {
		c.stores.etcd = etcdConfig{
			endpoints: reach.Endpoints, prefix: etcdstore.DefaultPrefix, user: reach.User, passwordFile: reach.PasswordFile,
			tls: listen.TLSFiles{CA: reach.CAFile, Cert: reach.CertFile, Key: reach.KeyFile},
		}
		c.stores.stateDir, c.stores.operator.Names, c.id = d.path("state"), []string{devAPIServer}, "test"
		if err := os.WriteFile(d.path("config/hooks.yaml"), []byte("# none\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		mesh, err := os.ReadFile(d.path("config/mesh.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.path("config/mesh.yaml"), []byte(strings.NewReplacer(words...).Replace(string(mesh))), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	o.app, o.client = a, apiServer(t, d)
	ctx, stop := context.WithCancel(t.Context())
	started, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() {
		ended <- a.run(ctx, func(info listen.ReadyInfo) error { started <- info; return nil })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	o.info = within(t, "the dispatcher", started)
	_, o.info.ClientCert, o.info.ClientKey = d.clientFiles()
	o.ready = readyFileOf(t, o.info)
	o.becomes("there is a configuration", func() bool { code, _ := o.readyz(); return code == http.StatusOK })
	return o
}

// begin kills two of three members.
func (o *outage) begin() {
	for _, m := range o.etcd.Members[1:] {
		m.Kill()
	}
}

// end starts them again. The test does not end before they run: its end stops them.
func (o *outage) end() {
	var starting sync.WaitGroup
	for _, m := range o.etcd.Members[1:] {
		starting.Go(m.Restart) // one cannot take part alone
	}
	o.t.Cleanup(starting.Wait)
}

// verdict is how a review of an object that no hook looks at was answered.
type verdict struct {
	code  int
	retry string
	text  string
	stale string // the annotation
}

// review sends one and waits for the answer.
func (o *outage) review(timeout time.Duration) verdict {
	body := strings.NewReplacer("pods", "configmaps", "Pod", "ConfigMap").Replace(clitest.Review)
	url := fmt.Sprintf("%s/v1/clusters/%s/validate?timeout=%s", o.info.Bridge, devCluster, timeout)
	r, err := http.NewRequestWithContext(o.t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		o.t.Error(err)
		return verdict{}
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := o.client.Do(r)
	if err != nil {
		o.t.Error(err)
		return verdict{}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		o.t.Error(err)
	}
	var said struct {
		Response struct {
			AuditAnnotations map[string]string `json:"auditAnnotations"`
		} `json:"response"`
	}
	_ = json.Unmarshal(text, &said)
	return verdict{answer.StatusCode, answer.Header.Get("Retry-After"), string(text), said.Response.AuditAnnotations["stale-configuration"]}
}

// readyz returns the answer to a readiness probe.
func (o *outage) readyz() (code int, text string) {
	w := httptest.NewRecorder()
	o.app.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(o.t.Context(), http.MethodGet, "/readyz", nil))
	return w.Code, w.Body.String()
}

// becomes waits until something is so.
func (o *outage) becomes(state string, so func() bool) {
	o.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !so(); {
		if time.Now().After(deadline) {
			_, text := o.readyz()
			o.t.Fatalf("never: %s; readyz says %s", state, text)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// stale waits until nothing is judged any more.
func (o *outage) stale() {
	o.t.Helper()
	o.becomes("the configuration is stale", func() bool {
		code, text := o.readyz()
		return code == http.StatusServiceUnavailable && strings.Contains(text, "the configuration is stale")
	})
}

// counted checks lines of the metrics of the configuration.
func (o *outage) counted(want ...string) {
	o.t.Helper()
	var lines []string
	for line := range strings.Lines(o.app.metrics(o.t)) {
		if rest, ok := strings.CutPrefix(line, "portcullis_configuration_"); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	for _, w := range want {
		if !slices.Contains(lines, w) {
			o.t.Errorf("no %q among %q", w, lines)
		}
	}
}

// serveStale runs the command.
func (o *outage) serveStale(args ...string) clitest.Result {
	o.t.Helper()
	return clitest.Execute(o.t, mesh.NewServeStale(), nil, append(args, "--ready-file", o.ready)...)
}

func (o *outage) says(r clitest.Result, want ...string) {
	o.t.Helper()
	for _, w := range want {
		if r.Code != 0 || !strings.Contains(r.Out, w) {
			o.t.Errorf("exit code %d, and no %q in: %s%s", r.Code, w, r.Out, r.Notes)
		}
	}
}

func TestReviewsWaitForAStoreThatComesBack(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	if a := o.review(30 * time.Second); a.code != http.StatusOK || a.stale != "" {
		t.Fatalf("before: %+v", a)
	}
	o.begin()
	o.stale()
	if a := o.review(time.Second); a.code != http.StatusServiceUnavailable || a.retry != "" || // no time is left to try again
		!strings.Contains(a.text, "the configuration is stale") {
		t.Errorf("a review whose time ends: %+v", a)
	}
	var direct clitest.Result
	asked := 0
	for asked == 0 || asked < 5 && strings.Contains(direct.Notes, "no answer within") { // the answer has 200 ms for its way
		direct = clitest.Execute(t, reviewcli.NewCommand(), strings.NewReader(clitest.Review), "-f", "-", "--stage", "validate", "--timeout", "1s", "--ready-file", o.ready)
		asked++
	}
	if direct.Code != cli.ExitError || !strings.HasPrefix(direct.Out, "validate: refused\n") || !strings.Contains(direct.Out, "the configuration is stale") {
		t.Errorf("exit code %d, %q %q", direct.Code, direct.Out, direct.Notes)
	}
	held := make(chan verdict, 20) // the last thing before the end: reviews have 30 s at most, and a busy machine needs most of that
	for range cap(held) {
		go func() { held <- o.review(30 * time.Second) }()
	}
	o.becomes("reviews wait", func() bool {
		return strings.Contains(o.app.metrics(t), "portcullis_configuration_held_reviews 20")
	})
	o.end()
	for range cap(held) {
		if a := <-held; a.code != http.StatusOK || a.stale != "" {
			t.Errorf("afterwards: %+v", a)
		}
	}
	o.counted("held_bytes 0", "stale_reviews_total 0")
	if asked == 1 {
		o.counted(`refused_total{reason="late"} 2`)
	}
}

func TestAClusterMayBeJudgedByAnOlderConfigurationThanOthers(t *testing.T) {
	t.Parallel()
	o := newOutage(t, "identities:", "maxConfigurationAge: 10m\n  identities:")
	o.becomes("the lease is long enough", func() bool { return o.app.control.presence.LeaseCoverage() == 10*time.Minute })
	o.begin()
	o.becomes("it is too old for others", func() bool {
		code, text := o.readyz()
		return code == http.StatusOK && strings.Contains(text, "the configuration is stale")
	})
	if a := o.review(10 * time.Second); a.code != http.StatusOK || a.stale != "" {
		t.Errorf("within its own age: %+v", a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, _, err := o.app.store.Acquire(ctx, "another", 0); !errors.Is(err, store.ErrStale) {
		t.Errorf("of another cluster: %v", err)
	}
}

func TestAnOperatorMayHaveADispatcherServeStale(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	o.says(o.serveStale(), "has no permit", ": fresh")
	o.begin()
	o.stale()
	held := make(chan verdict, 1)
	go func() { held <- o.review(30 * time.Second) }()
	o.becomes("a review waits", func() bool {
		return strings.Contains(o.app.metrics(t), "portcullis_configuration_held_reviews 1")
	})
	o.says(o.serveStale("--for", "1h", "--reason", "INC-42"), "dispatcher test judges by its last configuration", "a restart keeps that", devAPIServer+": INC-42")
	for _, a := range []verdict{<-held, o.review(30 * time.Second)} {
		if a.code != http.StatusOK || !strings.Contains(a.stale, `"reason":"INC-42"`) || !strings.Contains(a.stale, `"actor":"`+devAPIServer) {
			t.Errorf("by a permit: %+v", a)
		}
	}
	if code, text := o.readyz(); code != http.StatusOK || !strings.Contains(text, "by permit of kube-apiserver: INC-42\nthe configuration is stale") {
		t.Errorf("readyz says %d %s", code, text)
	}
	o.becomes("it is known why", func() bool { _, text := o.readyz(); return strings.Contains(text, "source etcd") })
	o.says(o.serveStale(), "until", ": stale, listed last at", "etcd")
	o.says(o.serveStale("-o", "json"), `"kube-apiserver"`, `"INC-42"`)
	o.counted("stale_reviews_total 2")
	if now := o.app.store.Configuration(); o.app.control.status(&now).GetServesStaleUntil() == nil {
		t.Error("other dispatchers are not told")
	}
	o.says(o.serveStale("--revoke"), "has no permit")
	if a := o.review(time.Second); a.code != http.StatusServiceUnavailable {
		t.Errorf("without a permit: %+v", a)
	}
}

// With --etcd-create a store that was lost would be made anew, and judge by nothing.
func TestAStoreThatWasWipedIsNotMadeAnewByARestart(t *testing.T) {
	d := &dev{dir: t.TempDir()}
	c := storeConfig{dataDir: d.dir, quota: minQuota}
	open := func() *stores {
		t.Helper()
		s, err := c.open(t.Context(), "test", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := open()
	if _, err := first.source.List(t.Context()); err != nil {
		t.Error(err)
	}
	first.close()
	if err := os.RemoveAll(configcli.StoreDir(d.dir)); err != nil {
		t.Fatal(err)
	}
	second := open()
	defer second.close()
	if _, err := second.source.List(t.Context()); !errors.Is(err, etcdstore.ErrMissing) || !strings.Contains(err.Error(), knownFile) {
		t.Errorf("a missing store is listed: %v", err)
	}
}

func TestServeStaleSaysWhatIsMissing(t *testing.T) {
	ready := withStore(t)
	for want, args := range map[string][]string{
		"--reason is missing":               {"--for", "1h"},
		"--for is missing":                  {"--reason", "x"},
		"give a permit, or end it":          {"--for", "1h", "--revoke"},
		"at most 24h0m0s":                   {"--for", "24h1s", "--reason", "x"},
		"more than nothing":                 {"--for", "-1s", "--reason", "x"},
		"say why, in at most 256 bytes":     {"--for", "1h", "--reason", strings.Repeat("x", 257)},
		"say which mesh: --ready-file FILE": {"--ready-file", ""},
	} {
		clitest.Execute(t, mesh.NewServeStale(), nil, append([]string{"--ready-file", ready}, args...)...).Fails(t, want)
	}
}

func TestAPermitIsForOperatorsOfTheProcessAlone(t *testing.T) {
	a, d := sampleApp(t, func(d *dev, c *serveConfig) {
		c.stores.dataDir, c.id, c.readyTimeout = d.dir, "test", time.Nanosecond // and no operator
	})
	ctx, stop := context.WithCancel(t.Context())
	started, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() {
		ended <- a.run(ctx, func(info listen.ReadyInfo) error { started <- info; return nil })
	}()
	info := within(t, "the dispatcher", started)
	info.CA, info.ClientCert, info.ClientKey = d.clientFiles()
	ready := readyFileOf(t, info)
	for _, args := range [][]string{nil, {"--for", "1h", "--reason", "x"}, {"--revoke"}} {
		clitest.Execute(t, mesh.NewServeStale(), nil, append(args, "--ready-file", ready)...).Fails(t, "is no operator of this dispatcher")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
