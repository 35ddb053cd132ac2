package mesh

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/e2e/process"
)

const (
	// startTimeout bounds the start of a dispatcher or host.
	startTimeout = 20 * time.Second
	// stopTimeout bounds the graceful end of one.
	stopTimeout = 15 * time.Second
	// tailLines is how much of a log the output of a failed test has.
	tailLines = 40
)

// Addresses are where a dispatcher listens, as its ready file says it.
type Addresses struct {
	// Bridge is the URL for API servers.
	Bridge string `json:"bridge"`
	// Hosts is the host:port for hosts.
	Hosts string `json:"hosts"`
	// Admin is the URL for probes and metrics.
	Admin string `json:"admin"`
}

// Dispatcher is one `portcullis serve`. It belongs to one test and its
// goroutine.
type Dispatcher struct {
	Addresses
	mesh    *Mesh
	name    string
	process *process.Process
}

// Serve starts a dispatcher and returns when it listens. When the test ends
// it is stopped, and must stop in good order.
func (m *Mesh) Serve(t testing.TB) *Dispatcher {
	t.Helper()
	m.started++
	d := &Dispatcher{
		mesh: m, name: fmt.Sprintf("dispatcher-%d", m.started),
		Addresses: Addresses{Bridge: "https://127.0.0.1:0", Hosts: "127.0.0.1:0", Admin: "http://127.0.0.1:0"},
	}
	m.dispatchers = append(m.dispatchers, d)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.process.Tail(tailLines))
		}
	})
	d.Start(t)
	t.Cleanup(func() { d.Stop(t) })
	return d
}

// Start starts the dispatcher, again on its addresses after a Stop.
func (d *Dispatcher) Start(t testing.TB) {
	t.Helper()
	m, readyFile := d.mesh, d.mesh.path(d.name+".ready")
	if err := os.RemoveAll(readyFile); err != nil {
		t.Fatal(err)
	}
	started, err := process.Start(process.Command{
		Path: m.options.Portcullis,
		Args: []string{
			"serve", "--config=" + m.ConfigDir(), "--ready-file=" + readyFile,
			"--listen=" + d.Bridge[len("https://"):], "--listen-hosts=" + d.Hosts, "--listen-admin=" + d.Admin[len("http://"):],
			"--tls-cert=" + m.path("dispatcher.crt"), "--tls-key=" + m.path("dispatcher.key"),
			"--tls-ca=" + m.path("callers-ca.crt"), "--hosts-tls-ca=" + m.AuthorityFile(),
			"--stop-delay=100ms", "--drain-timeout=5s",
			"--ready-timeout=10m", // so that ready means that hosts serve
		},
		Env:     m.options.Env,
		LogFile: m.path(d.name + ".log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	d.process = started
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	var now Addresses
	if err := started.Await(ctx, func(context.Context) error { return ReadReadyFile(readyFile, &now) }); err != nil {
		t.Fatal(err)
	}
	if d.Addresses != now { // a balancer reads them meanwhile
		d.Addresses = now
	}
}

// Stop ends the dispatcher as an operator would, and fails the test unless it
// ends in good order. Once it has ended, Stop does nothing.
func (d *Dispatcher) Stop(t testing.TB) {
	t.Helper()
	if err := d.process.Stop(stopTimeout); err != nil {
		t.Errorf("stop the dispatcher: %v", err)
	}
	if err := d.process.Err(); err != nil {
		t.Errorf("the dispatcher ended with %v", err)
	}
}

// URL is where the reviews of a stage of a cluster are posted.
func (d *Dispatcher) URL(cluster, stage string) string {
	return d.Bridge + "/v1/clusters/" + cluster + "/" + stage
}

// Ready is an error, with the reasons, while the dispatcher says that it is
// not ready: every hook needs a host, for example.
func (d *Dispatcher) Ready(ctx context.Context) error {
	_, err := d.get(ctx, "/readyz")
	return err
}

// HasMetric is an error unless the dispatcher's metrics hold the line.
func (d *Dispatcher) HasMetric(ctx context.Context, line string) error {
	metrics, err := d.get(ctx, "/metrics")
	if err == nil && !strings.Contains(metrics, "\n"+line+"\n") {
		err = fmt.Errorf("no metric %q in:\n%s", line, metrics)
	}
	return err
}

// get asks the admin port.
func (d *Dispatcher) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.Admin+path, nil)
	if err != nil {
		return "", err
	}
	request.Close = true // the tests look for connections that were left open
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, response.Status, body)
	}
	return string(body), err
}
