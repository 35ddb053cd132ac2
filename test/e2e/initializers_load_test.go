package e2e

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// TestInitializersWhileADispatcherAndAMemberOfEtcdAreKilled has many CREATEs in flight, each with three initializers, over three dispatchers.
// While all wait for the second initializer, a dispatcher and the leading member of etcd are killed. Clients repeat failed writes: in
// the end each Pod is there, and each initializer has acted on it once.
func TestInitializersWhileADispatcherAndAMemberOfEtcdAreKilled(t *testing.T) {
	citest.Soak(t, "kills a dispatcher and a member of etcd under load: 19 s")
	const creates = 500
	etcd := etcdtest.Start(t)
	o := etcd.Options(etcdtest.User)
	args := []string{
		"--etcd-ca=" + o.CAFile, "--etcd-cert=" + o.CertFile, "--etcd-key=" + o.KeyFile, "--etcd-create", "--operator=operator", "--ready-timeout=1ns",
	}
	for _, endpoint := range o.Endpoints {
		args = append(args, "--etcd="+endpoint)
	}
	names := []string{"a.example.com", "b.example.com", "c.example.com"}
	m := newMesh(t, mesh.Options{
		Documents: append(initializersOf("all", "Fail", ", stream: {}, timeout: 9s", names...), clusterDocument(t)), Args: args,
	})
	i := &initialized{road: newRoadOn(t, m, m.Serve(t))}
	dispatchers := []*mesh.Dispatcher{i.dispatcher, m.Serve(t), m.Serve(t)}
	i.balancer = mesh.Balance(t, mesh.BridgePort, dispatchers...)
	eventually(t, "the balancer uses all dispatchers", func() error { return i.balancer.Uses(dispatchers...) })
	i.bridge = "https://" + i.balancer.Address
	var waiting atomic.Int32
	gate := make(chan struct{})
	var hooks []hostsdk.Hook
	for n, name := range names {
		act := marks(name)
		hooks = append(hooks, hostsdk.Initialize(name, func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
			if n == 1 {
				waiting.Add(1)
				select {
				case <-gate:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return act(ctx, r)
		}))
	}
	i.host(t, hooks...)
	i.mutate(t)

	before := entriesOf(t, etcd)
	l := &loaded{initialized: i, failures: map[string]int{}, differs: regexp.MustCompile(`pod-\d+|[0-9a-f-]*\d[0-9a-f-]*`)}
	var writers sync.WaitGroup
	for n := range creates {
		writers.Go(func() { l.createUntilThere(t, fmt.Sprintf("pod-%03d", n)) })
	}
	eventually(t, "CREATEs wait for the second initializer", func() error {
		if n := waiting.Load(); n < 16 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	dispatchers[0].Kill(t)
	i.balancer.Remove(dispatchers[0])
	etcd.Leader().Kill()
	close(gate)
	writers.Wait()

	l.wantAllInitializedOnce(t, creates)
	t.Logf("%d CREATEs in %d attempts: 50%% within %s, 99%% within %s, the longest %s", creates, l.attempts.Load(),
		l.quantile(0.5), l.quantile(0.99), l.quantile(1))
	for _, message := range slices.Sorted(maps.Keys(l.failures)) {
		t.Logf("%d attempts have failed: %s", l.failures[message], message)
	}
	t.Logf("etcd has committed %d entries; each attempt that initializes a Pod needs 5", entriesOf(t, etcd)-before)
	for _, d := range dispatchers[1:] {
		if metrics, err := d.Metrics(t.Context()); err == nil {
			_, resident, _ := strings.Cut(metrics, "\nprocess_resident_memory_bytes ")
			resident, _, _ = strings.Cut(resident, "\n")
			t.Logf("a dispatcher has %s bytes resident", resident)
		}
	}
}

// loaded is a mesh with many writers.
type loaded struct {
	*initialized

	attempts atomic.Int32
	mu       sync.Mutex
	took     []time.Duration
	failures map[string]int // attempts that failed, by their cause
	differs  *regexp.Regexp // in messages of one cause
}

// fail counts an attempt that failed, by its message without the parts that differ each time.
func (l *loaded) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures[l.differs.ReplaceAllString(err.Error(), "#")]++
}

// entriesOf is how many entries etcd has committed.
func entriesOf(t *testing.T, etcd *etcdtest.Cluster) (n uint64) {
	t.Helper()
	client := etcd.Client(etcd.Options(etcdtest.Root))
	for _, endpoint := range client.Endpoints() {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // some of them may be gone
		status, err := client.Status(ctx, endpoint)
		cancel()
		if err == nil {
			n = max(n, status.RaftIndex)
		}
	}
	return n
}

// createUntilThere creates a Pod as a controller does: it tries again until the Pod is there.
func (l *loaded) createUntilThere(t *testing.T, name string) {
	begun := time.Now()
	pods := cluster.Client().CoreV1().Pods(l.namespace)
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 4*patience, true, func(ctx context.Context) (bool, error) {
		l.attempts.Add(1)
		_, err := pods.Create(ctx, kube.Pod(l.namespace, name), metav1.CreateOptions{})
		if err != nil {
			l.fail(err)
		}
		if apierrors.IsAlreadyExists(err) { // in the cluster, or held by a dispatcher that was killed
			_, err = pods.Get(ctx, name, metav1.GetOptions{})
		}
		return err == nil, nil
	})
	if err != nil {
		t.Errorf("Pod %s is not there: %v", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, time.Since(begun))
}

func (l *loaded) quantile(q float64) time.Duration {
	slices.Sort(l.took)
	return l.took[min(len(l.took)-1, int(q*float64(len(l.took))))].Round(time.Millisecond)
}

func (l *loaded) wantAllInitializedOnce(t *testing.T, n int) {
	t.Helper()
	list, err := cluster.Client().CoreV1().Pods(l.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != n {
		t.Errorf("%d Pods, %v: want %d", len(list.Items), err, n)
	}
	for _, pod := range list.Items {
		if got := pod.Labels["initialized-by"]; got != "a.example.com-b.example.com-c.example.com" {
			t.Errorf("Pod %s was initialized by %q", pod.Name, got)
		}
	}
}
