package mesh

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/hostsdk"

	"github.com/portcullis-mesh/portcullis/test/e2e/netns"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// Host runs a host of the test's own process, with these hooks,
// on sessions to all dispatchers, and returns when all hooks are in
// rotation. It drains when the test ends.
func (m *Mesh) Host(t testing.TB, identity string, hooks ...hostsdk.Hook) *hostsdk.Host {
	t.Helper()
	return awaitHost(t, identity, m.StartHost(t, identity, hooks...))
}

// HostOn is Host with a session to one dispatcher alone.
func (m *Mesh) HostOn(t testing.TB, d *Dispatcher, identity string, hooks ...hostsdk.Hook) *hostsdk.Host {
	t.Helper()
	return awaitHost(t, identity, m.startHost(t, []string{d.Hosts}, identity, hooks...))
}

func awaitHost(t testing.TB, identity string, host *hostsdk.Host) *hostsdk.Host {
	t.Helper()
	select {
	case <-host.Ready():
	case <-time.After(startTimeout):
		t.Fatalf("the hooks of host %s are not in rotation: %+v", identity, host.Status())
	}
	return host
}

// StartHost is Host, and returns at once.
func (m *Mesh) StartHost(t testing.TB, identity string, hooks ...hostsdk.Hook) *hostsdk.Host {
	t.Helper()
	return m.startHost(t, m.addresses(), identity, hooks...)
}

func (m *Mesh) startHost(t testing.TB, dispatchers []string, identity string, hooks ...hostsdk.Hook) *hostsdk.Host {
	t.Helper()
	cert, key := m.Certify(t, identity)
	log := newLog(t)
	host, err := hostsdk.New(hostsdk.Options{
		Name:        identity,
		Dispatchers: dispatchers,
		TLS:         hostsdk.TLSFiles(cert, key, m.AuthorityFile()),
		Logger:      slog.New(slog.NewTextHandler(log, nil)),
	}, hooks...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("host %s: %v", identity, err)
		}
	})
	return host
}

// HostOptions configure a process of the program testhost.
type HostOptions struct {
	// Program is its file.
	Program string
	// Identity is its certificate's.
	Identity string
	// Args are its arguments besides addresses and certificates.
	Args []string
	// Env is added to its environment.
	Env []string
	// Namespace is where it runs; nil is where the test does.
	Namespace *netns.Namespace
}

// HostProcess is a host in a process of its own.
type HostProcess struct {
	*process.Process
}

// HostProcess starts a host and returns when all its hooks are in rotation.
// The process is killed when the test ends, if it still runs.
func (m *Mesh) HostProcess(t testing.TB, options HostOptions) HostProcess {
	t.Helper()
	m.started++
	name := fmt.Sprintf("host-%d", m.started)
	cert, key := m.Certify(t, options.Identity)
	args := append([]string{
		"-name=" + options.Identity, "-ready-file=" + m.path(name+".ready"),
		"-cert=" + cert, "-key=" + key, "-ca=" + m.AuthorityFile(),
		"-dispatcher=" + net.JoinHostPort(hostsName, m.hostsPort), "-addresses=" + m.path("addresses"),
	}, options.Args...)
	path, args := options.Namespace.Command(options.Program, args)
	started, err := process.Start(process.Command{Path: path, Args: args, Env: options.Env, LogFile: m.path(name + ".log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && !endedWell(started) {
			t.Log(started.Tail(tailLines))
		}
		if err := started.Kill(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	err = started.Await(ctx, func(context.Context) error {
		_, err := os.Stat(m.path(name + ".ready"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return HostProcess{Process: started}
}

// endedWell says whether a process has nothing to tell any more: a rollout
// has many of them.
func endedWell(p *process.Process) bool {
	select {
	case <-p.Exited():
		return p.Err() == nil
	default:
		return false
	}
}

// Drain ends the host with SIGTERM, as a rollout does, and fails the test
// unless it ends in good order.
func (h HostProcess) Drain(t testing.TB) {
	t.Helper()
	if err := h.Stop(stopTimeout); err != nil {
		t.Fatal(err)
	}
	if err := h.Err(); err != nil {
		t.Fatalf("the host ended with %v\n%s", err, h.Tail(tailLines))
	}
}

// Certify makes the certificate of a host, as files.
func (m *Mesh) Certify(t testing.TB, identity string) (cert, key string) {
	t.Helper()
	pair, err := m.authority.Client(identity)
	if err != nil {
		t.Fatal(err)
	}
	m.started++
	cert, key, err = pair.Write(m.dir, fmt.Sprintf("client-%d", m.started))
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// addresses are the addresses of all dispatchers that run, for hosts in the
// test's own process.
func (m *Mesh) addresses() []string {
	addresses := make([]string, 0, len(m.dispatchers))
	for _, d := range m.dispatchers {
		if d.published {
			addresses = append(addresses, d.Hosts)
		}
	}
	return addresses
}

// newLog collects a log that belongs to the output of a failed test alone.
func newLog(t testing.TB) io.Writer {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), "host-*.log")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("log of a host:\n%s", text)
		}
		log.Close()
	})
	return log
}
