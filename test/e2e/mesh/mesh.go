// Package mesh runs dispatchers, `portcullis serve`, as processes of their own,
// and hosts that dial them: in the test's process ([Mesh.Host]), or as
// processes that can be killed ([Mesh.HostProcess]).
//
// Everything listens on loopback addresses, unless it runs in a network
// namespace, and is gone when its test ends. Each dispatcher has an address of
// its own, as Pods have, and all of them have the same port for hosts. Host
// processes find them by name, as they would find the Pods behind a headless
// Service.
//
// The hosts and the dispatchers' own certificates come from the mesh's
// authority; callers that send reviews are known by another authority, since a
// cluster has an authority of its own.
package mesh

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// Options are the parts of a mesh.
type Options struct {
	// Portcullis is the file of the program.
	Portcullis string
	// Callers signs the certificates of those who send reviews.
	Callers *pki.Authority
	// OneAuthority has the mesh's authority vouch for callers too: for clients
	// that call services of the mesh on the listener for API servers.
	OneAuthority bool
	// Documents are the configuration at the start: see [Mesh.Configure].
	Documents []string
	// Args are further arguments of every dispatcher.
	Args []string
	// Env is added to the environment of every dispatcher, as KEY=value.
	Env []string
	// Memory is the control group of all dispatchers; nil for none.
	Memory *process.MemoryGroup
	// Certificates is a directory with tls.crt, tls.key and ca.crt of the
	// dispatchers, which the test keeps; empty for those that the mesh makes.
	Certificates string
	// Addresses are further IP addresses that dispatchers may listen on.
	Addresses []string
	// StopDelay is how long a dispatcher serves on after SIGTERM, unready;
	// 100 ms when 0, since most tests have nobody who would have to notice.
	StopDelay time.Duration
}

// hostsName is the name by which host processes know the dispatchers.
const hostsName = "dispatchers.mesh"

// maxDispatchers is how many dispatchers of a mesh run at a time.
const maxDispatchers = 8

// Mesh is the configuration and the certificates that dispatchers and hosts
// share. It belongs to one test and its goroutine.
type Mesh struct {
	options     Options
	authority   *pki.Authority
	dir         string
	dispatchers []*Dispatcher
	hostsPort   string // of all dispatchers; "0" before the first one
	started     int    // processes so far, by which their files are named
}

// New makes the files of a mesh; nothing runs yet.
func New(t testing.TB, options Options) *Mesh {
	t.Helper()
	authority, err := pki.NewAuthority("mesh")
	if err != nil {
		t.Fatal(err)
	}
	options.StopDelay = cmp.Or(options.StopDelay, 100*time.Millisecond)
	m := &Mesh{options: options, authority: authority, dir: t.TempDir(), hostsPort: "0"}
	if err := os.Mkdir(m.ConfigDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	m.write(t, "mesh-ca.crt", authority.PEM())
	callers := options.Callers.PEM()
	if options.OneAuthority {
		callers = append(slices.Clone(callers), authority.PEM()...)
	}
	m.write(t, "callers-ca.crt", callers)
	m.RotateCertificate(t)
	m.Configure(t, "initial", options.Documents...)
	return m
}

// Authority signs the certificates of dispatchers and hosts.
func (m *Mesh) Authority() *pki.Authority { return m.authority }

// AuthorityFile is a file with the authority's certificate.
func (m *Mesh) AuthorityFile() string {
	if kept := m.options.Certificates; kept != "" {
		return filepath.Join(kept, "ca.crt")
	}
	return m.path("mesh-ca.crt")
}

// certificateFiles are the certificate files of the dispatchers.
func (m *Mesh) certificateFiles() (cert, key string) {
	if kept := m.options.Certificates; kept != "" {
		return filepath.Join(kept, "tls.crt"), filepath.Join(kept, "tls.key")
	}
	return m.path("dispatcher.crt"), m.path("dispatcher.key")
}

// Names are the names and addresses in the certificate of dispatchers, bridges
// and balancers, without [Options.Addresses].
func Names() []string {
	names := []string{hostsName}
	for i := range maxDispatchers {
		names = append(names, loopback(i), fmt.Sprintf("127.0.0.%d", i+1))
	}
	return names
}

// ConfigDir is the directory of the configuration.
func (m *Mesh) ConfigDir() string { return m.path("config") }

// RotateCertificate gives the dispatchers a new certificate, as a file that
// they find changed.
func (m *Mesh) RotateCertificate(t testing.TB) pki.Pair {
	t.Helper()
	return m.certifyDispatchers(t, m.authority)
}

// ExpireCertificate gives the dispatchers an expired certificate.
func (m *Mesh) ExpireCertificate(t testing.TB) {
	t.Helper()
	m.certifyDispatchers(t, m.authority.Expired())
}

func (m *Mesh) certifyDispatchers(t testing.TB, authority *pki.Authority) pki.Pair {
	t.Helper()
	pair, err := authority.Server(append(Names(), m.options.Addresses...)...)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := pair.Write(m.dir, "dispatcher"); err != nil {
		t.Fatal(err)
	}
	return pair
}

// Install has dispatchers run another program from their next start.
func (m *Mesh) Install(portcullis string) { m.options.Portcullis = portcullis }

// Configure replaces one file of the configuration, in one step. Dispatchers
// that run obey a little later.
func (m *Mesh) Configure(t testing.TB, name string, documents ...string) {
	t.Helper()
	m.write(t, "next.yaml", []byte(strings.Join(documents, "\n---\n")))
	if err := os.Rename(m.path("next.yaml"), filepath.Join(m.ConfigDir(), name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// Document is an object as a document of the configuration.
func Document(t testing.TB, object any) string {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Route has hosts of these identities serve the hooks of a configuration.
func Route(configuration string, hosts ...string) string {
	return fmt.Sprintf(`apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: %[1]s}
spec:
  configuration: %[1]s
  stream: {}
  hosts: [%[2]s]
`, configuration, strings.Join(hosts, ", "))
}

// Cluster lets identity send reviews of a cluster. The mesh reads data that
// reviews do not carry from the cluster, by the kubeconfig; with "" it reads
// none.
func Cluster(name, identity, kubeconfig string) string {
	document := fmt.Sprintf(`apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: %s}
spec:
  identities: [%s]
`, name, identity)
	if kubeconfig != "" {
		document += fmt.Sprintf("  kubeconfig: %q\n", kubeconfig)
	}
	return document
}

// loopback is the address of the i-th dispatcher that runs. Test binaries that run side by side have different ones, so that none takes the
// port that all dispatchers of another have.
func loopback(i int) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 128+pid>>8%128, pid%256, i+1)
}

// publish tells the host processes where the dispatchers are.
func (m *Mesh) publish(t testing.TB) {
	t.Helper()
	var running []string
	for _, d := range m.dispatchers {
		if d.published {
			running = append(running, d.ip)
		}
	}
	m.write(t, "addresses.next", []byte(strings.Join(running, "\n")))
	if err := os.Rename(m.path("addresses.next"), m.path("addresses")); err != nil {
		t.Fatal(err)
	}
}

func (m *Mesh) path(name string) string { return filepath.Join(m.dir, name) }

func (m *Mesh) write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(m.path(name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ReadReadyFile decodes the JSON of a ready file; an error when there is none
// yet.
func ReadReadyFile(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return errors.Join(fmt.Errorf("ready file %s is not whole", file), err)
	}
	return nil
}
