package serve

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/portcullis-mesh/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

const (
	// manyClustersVariable is the number of clusters that come and go together; without it fewClusters do.
	manyClustersVariable = "PORTCULLIS_TEST_CLUSTERS"
	fewClusters          = 50
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

// Clusters are added to the store of a dispatcher, each is asked by its kubeconfig for what reviews do not carry and sends a review, and
// they are removed. The dispatcher, a process of its own, then has the goroutines, the live heap, the metrics and the files of before.
func TestClustersThatAreRemovedLeaveNothing(t *testing.T) {
	n := fewClusters
	if text := os.Getenv(manyClustersVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	m := newManyClusters(t)
	idle := m.footprint()
	t.Logf("idle: %v", idle)
	var first footprint
	for round := range clusterRounds {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("round-%d-cluster-%d", round, i)
		}
		begin := time.Now()
		m.add(names)
		for _, name := range names {
			m.review(name)
		}
		t.Logf("%d clusters, %v after the first: %v", n, time.Since(begin).Round(time.Millisecond), m.footprint())
		m.remove(names)
		t.Logf("none, %v after the first: %v", time.Since(begin).Round(time.Millisecond), m.footprint())
		m.wantForgotten(names[0])
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

// footprint is what a dispatcher holds of its machine.
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

	ready      string // file for the commands
	callers    *http.Client
	kubeconfig string
	watches    *atomic.Int64 // of API servers
}

func newManyClusters(t *testing.T) *manyClusters {
	t.Helper()
	d := &dev{dir: t.TempDir()}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	m := &manyClusters{soak: &soak{T: t, dir: d.dir, stage: "validate"}}
	m.kubeconfig, m.watches = emptyAPIServer(t)
	etcd := etcdtest.Start(t).Options(etcdtest.User)
	ready := d.path("ready.json")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "--ready-file", ready,
		"--listen", "127.0.0.1:0", "--listen-hosts", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0",
		"--tls-cert", d.path("certs/server.crt"), "--tls-key", d.path("certs/server.key"), "--tls-ca", d.path("certs/ca.crt"),
		"--etcd", strings.Join(etcd.Endpoints, ","), "--etcd-create", "--etcd-ca", etcd.CAFile, "--etcd-cert", etcd.CertFile, "--etcd-key", etcd.KeyFile,
		"--operator", devAPIServer, "--log-level", "error")
	cmd.Env = append(os.Environ(), asServe+"=1", "GOGC=10", "GOMEMLIMIT=off", "HTTP2_READ_IDLE_TIMEOUT_SECONDS=1")
	cmd.Stderr = t.Output()
	m.start(cmd, ready)
	ca, cert, key := d.clientFiles()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	m.tls = &tls.Config{RootCAs: poolOf(t, ca), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	m.callers = m.connect()
	m.info.ClientCert, m.info.ClientKey = cert, key
	m.ready = m.info.file(t)
	return m
}

// add applies the documents of clusters, and waits until all that is asked of them is known.
func (m *manyClusters) add(names []string) {
	m.Helper()
	for some := range slices.Chunk(names, appliedTogether) {
		m.run(configcli.NewApply(), m.documents(some), "-f", "-", "--wait")
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

func (m *manyClusters) remove(names []string) {
	m.Helper()
	m.run(configcli.NewDelete(), m.documents(names), "-f", "-", "--wait")
}

// run runs a command against the dispatcher.
func (m *manyClusters) run(cmd *cobra.Command, in string, args ...string) {
	m.Helper()
	r := clitest.Execute(m.T, cmd, strings.NewReader(in), append(args, "--timeout", long.String(), "--ready-file", m.ready)...)
	if r.Code != 0 {
		m.Fatalf("%s: exit code %d: %.2000s", cmd.Name(), r.Code, r.Notes)
	}
}

func (m *manyClusters) documents(names []string) string {
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "---\napiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: %s}\nspec: {identities: [%s], kubeconfig: %q}\n",
			name, devAPIServer, m.kubeconfig)
	}
	return text.String()
}

// review sends a review of a cluster, as one of its entries does.
func (m *manyClusters) review(cluster string) {
	m.Helper()
	url := m.info.Bridge + "/v1/clusters/" + cluster + "/validate/fail-closed/10."
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
		if open := m.watches.Load(); open > 0 {
			return fmt.Errorf("%d watches are open", open)
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

// footprint reads the metrics until the collector has run a few times. The smallest heap is that which is live.
func (m *manyClusters) footprint() (f footprint) {
	m.Helper()
	const collections = 3
	for end := int64(0); ; {
		f.goroutines, f.files, f.resident = m.metric("go_goroutines"), m.metric("process_open_fds"), m.metric("process_resident_memory_bytes")
		if heap := m.metric("go_memstats_heap_alloc_bytes"); f.heap == 0 || heap < f.heap {
			f.heap = heap
		}
		switch n := m.metric("go_gc_duration_seconds_count"); {
		case end == 0:
			end = n + collections
		case n >= end:
			return f
		}
	}
}

// wantForgotten waits until no metric has the name of a cluster.
func (m *manyClusters) wantForgotten(cluster string) {
	m.Helper()
	m.await("no metric names "+cluster, func() error {
		for line := range strings.Lines(m.metrics()) {
			if strings.Contains(line, strconv.Quote(cluster)) {
				return errors.New(line)
			}
		}
		return nil
	})
}

// await waits until an attempt succeeds.
func (m *manyClusters) await(what string, attempt func() error) {
	m.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; <-time.After(20 * time.Millisecond) {
		err := attempt()
		switch {
		case err == nil:
			return
		case time.Now().After(deadline):
			m.Fatalf("waited in vain until %s: %v", what, err)
		}
	}
}

// emptyAPIServer serves what a dispatcher asks of a cluster without objects, and counts the open watches. It returns the kubeconfig.
func emptyAPIServer(t *testing.T) (kubeconfig string, watches *atomic.Int64) {
	t.Helper()
	watches = &atomic.Int64{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		kind := metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
		if strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") {
			kind = metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
		}
		switch {
		case r.URL.Query().Get("watch") != "":
			watches.Add(1)
			defer watches.Add(-1)
			keepWatch(w, r, kind)
		case r.URL.Path == "/api" || r.URL.Path == "/apis":
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			_ = json.NewEncoder(w).Encode(discovered(r.URL.Path == "/api")) // the client may have gone
		default:
			fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, kind.APIVersion, kind.Kind+"List")
		}
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	file.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: "token"}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	file.CurrentContext = "c"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, watches
}

// keepWatch sends bookmarks until the client ends the watch.
func keepWatch(w http.ResponseWriter, r *http.Request, kind metav1.TypeMeta) {
	bookmark := fmt.Appendf(nil, `{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1","annotations":{%q:"true"}}}}`+"\n",
		kind.APIVersion, kind.Kind, metav1.InitialEventsAnnotationKey)
	alive := time.NewTicker(20 * time.Second)
	defer alive.Stop()
	for {
		if _, err := w.Write(bookmark); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush() // the next write tells
		select {
		case <-alive.C:
		case <-r.Context().Done():
			return
		}
	}
}

// discovered is the discovery of a cluster: namespaces and Pods.
func discovered(core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"}}
	if core {
		version := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		for resource, kind := range map[string]string{"namespaces": "Namespace", "pods": "Pod"} {
			version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: resource, ResponseKind: &metav1.GroupVersionKind{Version: "v1", Kind: kind},
			})
		}
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{Versions: []apidiscoveryv2.APIVersionDiscovery{version}})
	}
	return list
}
