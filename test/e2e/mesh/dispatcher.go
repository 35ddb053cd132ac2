package mesh

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/test/e2e/netns"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

const (
	// startTimeout bounds the start of a dispatcher or host.
	startTimeout = 2 * time.Minute
	// stopTimeout bounds the graceful end of one.
	stopTimeout = 2 * time.Minute
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
	mesh      *Mesh
	name      string
	ip        string
	namespace *netns.Namespace // nil: the test's own
	published bool             // hosts are told its address
	process   *process.Process
	killed    bool
}

// Serve starts a dispatcher and returns when it listens. When the test ends
// it is stopped, and must stop in good order.
func (m *Mesh) Serve(t testing.TB) *Dispatcher {
	t.Helper()
	return m.serve(t, &Dispatcher{ip: m.freeAddress(t)})
}

// ServeIn is Serve in a network namespace, on its address, which has to be
// among [Options.Addresses].
func (m *Mesh) ServeIn(t testing.TB, namespace *netns.Namespace) *Dispatcher {
	t.Helper()
	return m.serve(t, &Dispatcher{ip: namespace.Address(), namespace: namespace})
}

// freeAddress is a loopback address that no dispatcher has which runs.
func (m *Mesh) freeAddress(t testing.TB) string {
	t.Helper()
	for i := range maxDispatchers {
		taken := func(d *Dispatcher) bool { return d.ip == loopback(i) && d.published }
		if !slices.ContainsFunc(m.dispatchers, taken) {
			return loopback(i)
		}
	}
	t.Fatalf("more than %d dispatchers", maxDispatchers)
	return ""
}

func (m *Mesh) serve(t testing.TB, d *Dispatcher) *Dispatcher {
	t.Helper()
	m.started++
	d.mesh, d.name = m, fmt.Sprintf("dispatcher-%d", m.started)
	d.Addresses = Addresses{
		Bridge: "https://" + d.ip + ":0", Hosts: net.JoinHostPort(d.ip, m.hostsPort), Admin: "http://" + d.ip + ":0",
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
	cert, key := m.certificateFiles()
	path, args := m.options.Memory.Command(m.options.Portcullis, append([]string{
		"serve", "--config=" + m.ConfigDir(), "--ready-file=" + readyFile,
		"--listen=" + d.Bridge[len("https://"):], "--listen-hosts=" + d.Hosts, "--listen-admin=" + d.Admin[len("http://"):],
		"--webhook-network=127.0.0.0/8", "--tls-cert=" + cert, "--tls-key=" + key,
		"--tls-ca=" + m.path("callers-ca.crt"), "--hosts-tls-ca=" + m.AuthorityFile(),
		"--stop-delay=" + m.options.StopDelay.String(), "--drain-timeout=30s",
		"--ready-timeout=10m", // so that ready means that hosts serve
	}, m.options.Args...))
	path, args = d.namespace.Command(path, args)
	started, err := process.Start(process.Command{Path: path, Args: args, Env: m.options.Env, LogFile: d.LogFile()})
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
	d.Addresses = now
	if _, m.hostsPort, err = net.SplitHostPort(d.Hosts); err != nil {
		t.Fatal(err)
	}
	d.publish(t, true)
}

// publish tells hosts where the dispatcher is, or that it is not any more.
func (d *Dispatcher) publish(t testing.TB, published bool) {
	t.Helper()
	d.published = published
	d.mesh.publish(t)
}

// Stop ends the dispatcher as an operator would, and fails the test unless it
// ends in good order. Once it has ended, Stop does nothing.
func (d *Dispatcher) Stop(t testing.TB) {
	t.Helper()
	if d.killed {
		return
	}
	d.publish(t, false)
	if err := d.process.Stop(stopTimeout); err != nil {
		t.Errorf("stop the dispatcher: %v", err)
	}
	if err := d.process.Err(); err != nil {
		t.Errorf("the dispatcher ended with %v", err)
	}
}

// Kill ends the dispatcher as a machine that dies does, for good.
func (d *Dispatcher) Kill(t testing.TB) {
	t.Helper()
	d.killed = true
	d.publish(t, false)
	if err := d.process.Kill(); err != nil {
		t.Errorf("kill the dispatcher: %v", err)
	}
}

// Process is the process of the dispatcher, until the next Start.
func (d *Dispatcher) Process() *process.Process { return d.process }

// URL is where the reviews of a stage of a cluster are posted.
func (d *Dispatcher) URL(cluster, stage string) string {
	return d.Bridge + "/v1/clusters/" + cluster + "/" + stage
}

// LogFile is the file with the output of the dispatcher.
func (d *Dispatcher) LogFile() string { return d.mesh.path(d.name + ".log") }

// Ready is an error, with the reasons, while the dispatcher says that it is
// not ready: every hook needs a host, for example.
func (d *Dispatcher) Ready(ctx context.Context) error {
	_, err := d.get(ctx, "/readyz")
	return err
}

// Notes are the lines of a dispatcher that is ready.
func (d *Dispatcher) Notes(ctx context.Context) (string, error) { return d.get(ctx, "/readyz") }

// Metrics are all lines of the dispatcher's metrics.
func (d *Dispatcher) Metrics(ctx context.Context) (string, error) { return d.get(ctx, "/metrics") }

// Profile is a CPU profile of the dispatcher over a time, for `go tool pprof`. It needs the argument --pprof.
func (d *Dispatcher) Profile(ctx context.Context, length time.Duration) ([]byte, error) {
	profile, err := d.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", length.Seconds()))
	return []byte(profile), err
}

// Heap is a profile of the heap after a collection of garbage, for `go tool pprof`. It needs the argument --pprof.
func (d *Dispatcher) Heap(ctx context.Context) ([]byte, error) {
	profile, err := d.get(ctx, "/debug/pprof/heap?gc=1")
	return []byte(profile), err
}

// HasMetric is an error unless the dispatcher's metrics hold the line.
func (d *Dispatcher) HasMetric(ctx context.Context, line string) error {
	metrics, err := d.Metrics(ctx)
	if err == nil && !strings.Contains(metrics, "\n"+line+"\n") {
		err = fmt.Errorf("no metric %q in:\n%s", line, metrics)
	}
	return err
}

// get asks the admin port.
func (d *Dispatcher) get(ctx context.Context, path string) (string, error) {
	return get(ctx, d.Admin+path)
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
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
		err = fmt.Errorf("GET %s: %s: %s", url, response.Status, body)
	}
	return string(body), err
}
