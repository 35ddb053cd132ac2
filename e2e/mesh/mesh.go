// Package mesh runs dispatchers, `portcullis serve`, as processes of their
// own, and hosts that dial them: in the test's process ([Mesh.Host]), or as
// processes that can be killed ([Mesh.HostProcess]).
//
// Everything listens on 127.0.0.1 and is gone when its test ends. The hosts
// and the dispatchers' own certificates come from the mesh's authority; who
// sends reviews is known by another one, as it is where the authority of a
// cluster is not that of the mesh.
package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/e2e/pki"
)

// Options say what a mesh consists of.
type Options struct {
	// Portcullis is the file of the program.
	Portcullis string
	// Callers signs the certificates of those who send reviews.
	Callers *pki.Authority
	// Documents are the configuration at the start: see [Mesh.Configure].
	Documents []string
	// Env is added to the environment of every dispatcher, as KEY=value.
	Env []string
}

// Mesh is the configuration and the certificates that dispatchers and hosts
// share. It belongs to one test and its goroutine.
type Mesh struct {
	options     Options
	authority   *pki.Authority
	dir         string
	dispatchers []*Dispatcher
	started     int // processes so far, by which their files are named
}

// New makes the files of a mesh; nothing runs yet.
func New(t testing.TB, options Options) *Mesh {
	t.Helper()
	authority, err := pki.NewAuthority("mesh")
	if err != nil {
		t.Fatal(err)
	}
	m := &Mesh{options: options, authority: authority, dir: t.TempDir()}
	if err := os.Mkdir(m.ConfigDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	m.write(t, "mesh-ca.crt", authority.PEM())
	m.write(t, "callers-ca.crt", options.Callers.PEM())
	m.RotateCertificate(t)
	m.Configure(t, "initial", options.Documents...)
	return m
}

// Authority signs the certificates of dispatchers and hosts.
func (m *Mesh) Authority() *pki.Authority { return m.authority }

// AuthorityFile is a file with the authority's certificate.
func (m *Mesh) AuthorityFile() string { return m.path("mesh-ca.crt") }

// ConfigDir is the directory of the configuration.
func (m *Mesh) ConfigDir() string { return m.path("config") }

// RotateCertificate gives the dispatchers a new certificate, as a file that
// they find changed.
func (m *Mesh) RotateCertificate(t testing.TB) pki.Pair {
	t.Helper()
	pair, err := m.authority.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := pair.Write(m.dir, "dispatcher"); err != nil {
		t.Fatal(err)
	}
	return pair
}

// Configure replaces what one file of the configuration says, in one step.
// Dispatchers that run obey a little later.
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

// Cluster lets identity send reviews of a cluster, which is asked by the
// kubeconfig for what they do not carry.
func Cluster(name, identity, kubeconfig string) string {
	return fmt.Sprintf(`apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: %s}
spec:
  identities: [%s]
  kubeconfig: %q
`, name, identity, kubeconfig)
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
