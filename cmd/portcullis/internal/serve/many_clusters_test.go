package serve

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	// clustersTogether is how many clusters come and go together.
	clustersTogether = 1000
	// manyClustersPrefix begins their names.
	manyClustersPrefix = "round"
	// appliedTogether is how many documents etcd takes in a transaction, with its default --max-txn-ops.
	appliedTogether = 40
	// clusterRounds is how often they come and go, under new names each time. The first round fills pools and caches.
	clusterRounds = 3
	// perCluster is how much the live heap may grow for each cluster of a round that is gone, in bytes.
	perCluster = 1 << 10
	// heapNoise is how much the live heap of an idle dispatcher varies, in bytes.
	heapNoise = 3 << 20
	// steadyFor is how long the heap has not fallen when it falls no more: longer than the timers of a connection that is closed.
	steadyFor = 3 * time.Second
	// goroutineNoise is how much its goroutines and files do: timers, connections of etcd's client, scrapes, and a few connections that
	// are about to be closed.
	goroutineNoise = 40
)

// Clusters are added to the store of a dispatcher, which keeps their entries and makes their capabilities. It asks each by its kubeconfig
// for facts that reviews do not carry, and each sends a review by its entry. Then they are removed, and the dispatcher, a process of its
// own, has as many goroutines, metrics and files and as large a live heap as before. It has released their Leases.
func TestClustersThatAreRemovedLeaveNothing(t *testing.T) {
	citest.Soak(t, "has a thousand clusters come and go three times: 12 minutes")
	const n = clustersTogether
	m := newManyClusters(t)
	idle := m.footprint()
	t.Logf("idle: %v", idle)
	var first footprint
	for round := range clusterRounds {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("%s-%d-%d", manyClustersPrefix, round, i)
		}
		begin := time.Now()
		m.add(names)
		for _, name := range names {
			m.review(name)
		}
		t.Logf("%d clusters, %v after the first: %v", n, time.Since(begin).Round(time.Millisecond), m.footprint())
		m.remove(names)
		t.Logf("none, %v after the first: %v", time.Since(begin).Round(time.Millisecond), m.footprint())
		m.wantForgotten()
		if round == 0 {
			first = m.settled(idle)
			t.Logf("when all has ended: %v", first)
		}
	}
	last := m.settled(idle)
	t.Logf("when all has ended: %v", last)
	allowed := int64((clusterRounds-1)*n*perCluster + heapNoise)
	if grown := last.heap - first.heap; grown > allowed {
		t.Errorf("the live heap has grown by %d bytes in %d rounds of %d clusters, want at most %d", grown, clusterRounds-1, n, allowed)
	}
}

// footprint is a dispatcher's use of its machine.
type footprint struct {
	goroutines, heap, files, resident int64
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %.1f MiB of live heap, %d open files, %.1f MiB resident",
		f.goroutines, float64(f.heap)/(1<<20), f.files, float64(f.resident)/(1<<20))
}

// manyClusters is a dispatcher in a process of its own, its store, and the API servers of its clusters.
type manyClusters struct {
	*soak

	ready   string // file for the commands
	callers *http.Client
	api     *emptyAPIServer // of each of the clusters
}

func newManyClusters(t *testing.T) *manyClusters {
	t.Helper()
	d := &dev{dir: t.TempDir()}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	m := &manyClusters{soak: &soak{T: t, dir: d.dir, stage: "validate"}}
	m.api = newEmptyAPIServer(t)
	etcd := etcdtest.Start(t).Options(etcdtest.User)
	ready := d.path("ready.json")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "--ready-file", ready,
		"--listen", "127.0.0.1:0", "--listen-hosts", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0",
		"--tls-cert", d.path("certs/server.crt"), "--tls-key", d.path("certs/server.key"), "--tls-ca", d.path("certs/ca.crt"),
		"--etcd", strings.Join(etcd.Endpoints, ","), "--etcd-create", "--etcd-ca", etcd.CAFile, "--etcd-cert", etcd.CertFile, "--etcd-key", etcd.KeyFile,
		"--operator", devAPIServer, "--log-level", "error", "--pprof",
		"--allow-capabilities", "--capability-key-file", clitest.Write(t, "keys", identity.NewCapabilityKey()+"\n"))
	cmd.Env = append(os.Environ(), asServe+"=1", "GOMEMLIMIT=off", "HTTP2_READ_IDLE_TIMEOUT_SECONDS=1")
	cmd.Stderr = t.Output()
	m.start(cmd, ready)
	var ca string
	ca, m.info.ClientCert, m.info.ClientKey = d.clientFiles()
	m.tls = &tls.Config{RootCAs: poolOf(t, ca), MinVersion: tls.VersionTLS12}
	m.callers = m.connect()
	m.ready = readyFileOf(t, m.info)
	m.run(configcli.NewApply, strings.NewReplacer("GROUP", "apps").Replace(appliedHooks), "-f", "-")
	return m
}

// add applies the documents of clusters, and waits until all that is asked of them is known.
func (m *manyClusters) add(names []string) {
	m.Helper()
	for some := range slices.Chunk(names, appliedTogether) {
		m.run(configcli.NewApply, m.documents(some, m.registered), "-f", "-", "--wait")
	}
	m.await("the clusters are asked", func() error {
		text := m.metrics()
		for _, name := range names {
			for _, part := range []string{"namespaces", "resources", "custom-resources"} {
				if line := fmt.Sprintf(`portcullis_cluster_context_fresh{cluster=%q,part=%q} 1`, name, part); !strings.Contains(text, line) {
					return fmt.Errorf("no %s", line)
				}
				if begin := fmt.Sprintf(`portcullis_cluster_context_confirmed_timestamp_seconds{cluster=%q,part=%q} `, name, part); !strings.Contains(text, begin) {
					return fmt.Errorf("no %s", begin)
				}
			}
		}
		return nil
	})
}

// remove ends that the mesh keeps the entries of clusters, and removes their documents: it refuses to do both at once. The entries stay.
func (m *manyClusters) remove(names []string) {
	m.Helper()
	for some := range slices.Chunk(names, appliedTogether) {
		m.run(configcli.NewApply, m.documents(some, m.identified), "-f", "-", "--wait")
	}
	m.run(configcli.NewDelete, m.documents(names, m.identified), "-f", "-", "--wait", "--ignore-not-found")
}

// run runs a command against the dispatcher, until it is done. A machine that is busy may be late or lose a connection.
func (m *manyClusters) run(cmd func() *cobra.Command, in string, args ...string) {
	m.Helper()
	m.await("a command is done", func() error {
		r := clitest.Execute(m.T, cmd(), strings.NewReader(in), append(args, "--timeout", long.String(), "--ready-file", m.ready)...)
		if r.Code == cli.ExitDenied {
			m.Fatalf("refused: %.2000s", r.Notes)
		}
		if r.Code != 0 {
			return fmt.Errorf("exit code %d: %.2000s", r.Code, r.Notes)
		}
		return nil
	})
}

// documents returns a Cluster for each name, with the spec that spec returns.
func (m *manyClusters) documents(names []string, spec func(name string) string) string {
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "---\napiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: %s}\nspec: {kubeconfig: %q, %s}\n",
			name, m.api.kubeconfig, spec(name))
	}
	return text.String()
}

// registered is a cluster whose entries the mesh keeps, with a capability that it makes.
func (m *manyClusters) registered(name string) string {
	return fmt.Sprintf("rotateCapability: 24h, registration: {name: %s, url: %q}", name, m.info.Bridge)
}

// identified is one whose entries it does not keep.
func (*manyClusters) identified(string) string { return "identities: [" + devAPIServer + "]" }

// review sends a review of a cluster through an entry of its own, once it is written: apply --wait does not wait after an attempt has
// failed.
func (m *manyClusters) review(cluster string) {
	m.Helper()
	url := ""
	m.await("the entries of "+cluster+" are written", func() (err error) {
		url, err = m.api.entryOf(cluster)
		return err
	})
	request, err := http.NewRequestWithContext(m.Context(), http.MethodPost, url, bytes.NewReader(soakReview("pods", "Pod", 1<<10)))
	if err != nil {
		m.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := m.callers.Do(request)
	if err != nil {
		m.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"allowed":true`)) {
		m.Fatalf("a review of %s: %d %s, %v", cluster, response.StatusCode, text, err)
	}
}

// settled waits until the goroutines and files of clusters are gone, and the heap falls no more. Connections that were not idle when
// their cluster was removed are closed 90 s later, and the timers of closed ones hold their buffers for a while (x/net/http2).
func (m *manyClusters) settled(idle footprint) (now footprint) {
	m.Helper()
	m.await("the goroutines of the clusters end", func() error {
		if watches, leases := m.api.watches.Load(), m.api.heldLeases(); watches > 0 || leases > 0 {
			return fmt.Errorf("%d watches are open, and %d Leases are held", watches, leases)
		}
		if now = m.footprint(); now.goroutines > idle.goroutines+goroutineNoise || now.files > idle.files+goroutineNoise {
			return fmt.Errorf("%v, and without clusters %v", now, idle)
		}
		return nil
	})
	for least := time.Now(); time.Since(least) < steadyFor; {
		next := m.footprint()
		if next.heap < now.heap-now.heap/100 {
			least = time.Now()
		}
		next.heap = min(next.heap, now.heap)
		now = next
	}
	return now
}

// footprint collects garbage, and reads the metrics. It collects twice, since the first collection leaves pooled and
// finalizable objects.
func (m *manyClusters) footprint() (f footprint) {
	m.Helper()
	const collections = 2
	for range collections {
		m.get("/debug/pprof/heap?gc=1")
	}
	f.goroutines, f.files, f.resident = m.metric("go_goroutines"), m.metric("process_open_fds"), m.metric("process_resident_memory_bytes")
	f.heap = m.metric("go_memstats_heap_alloc_bytes")
	return f
}

// wantForgotten waits until no metric has the name of a cluster.
func (m *manyClusters) wantForgotten() {
	m.Helper()
	m.await("no metric names a cluster", func() error {
		for line := range strings.Lines(m.metrics()) {
			if strings.Contains(line, `"`+manyClustersPrefix+"-") {
				return errors.New(line)
			}
		}
		return nil
	})
}

// await waits until an attempt succeeds.
func (m *manyClusters) await(goal string, attempt func() error) {
	m.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; <-time.After(20 * time.Millisecond) {
		err := attempt()
		switch {
		case err == nil:
			return
		case time.Now().After(deadline):
			m.Fatalf("waited in vain until %s: %v", goal, err)
		}
	}
}
