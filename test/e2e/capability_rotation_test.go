package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/keeper"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// rotating is a managed cluster whose capabilities the mesh makes, with two
// dispatchers, and Pods that are created.
type rotating struct {
	*managed
	keys        string // file
	dispatchers []*mesh.Dispatcher
	url         string
	names       atomic.Int64
	created     sync.Map // names of Pods that were created
	shownBefore []capability
}

func newRotating(t *testing.T, period time.Duration, keys ...string) *rotating {
	t.Helper()
	r := &rotating{managed: newControlPlane(t), keys: filepath.Join(t.TempDir(), "keys")}
	r.kubeconfig = kubeconfigOf(t, r.cluster.Config())
	r.useKeys(t, keys...)
	r.Mesh = mesh.New(t, r.options(t, "--capability-key-file="+r.keys, "--capability-key-overlap=3s"))
	r.dispatchers = []*mesh.Dispatcher{r.Serve(t), r.Serve(t)}
	r.dispatcher = r.dispatchers[0]
	balancer := mesh.Balance(t, mesh.BridgePort, r.dispatchers...)
	r.url = "https://" + balancer.Address
	r.serveHooks(t)
	r.rotate(t, period)
	return r
}

// useKeys replaces the file of the keys in one step.
func (r *rotating) useKeys(t *testing.T, keys ...string) {
	t.Helper()
	writeFile(t, r.keys+".next", strings.Join(keys, "\n")+"\n")
	if err := os.Rename(r.keys+".next", r.keys); err != nil {
		t.Fatal(err)
	}
}

// rotate writes the document of the cluster.
func (r *rotating) rotate(t *testing.T, period time.Duration) {
	t.Helper()
	r.Configure(t, "cluster", mesh.Document(t, map[string]any{
		"apiVersion": "portcullis.dev/v1", "kind": "Cluster", "metadata": map[string]any{"name": managedName},
		"spec": map[string]any{
			"kubeconfig": r.kubeconfig, "rotateCapability": period.String(),
			"registration": map[string]any{"url": r.url, "caBundle": r.Authority().PEM()},
		},
	}))
}

// create creates a Pod, dry, under a name of its own.
func (r *rotating) create(ctx context.Context) error {
	name := fmt.Sprint("pod-", r.names.Add(1))
	pod, err := r.cluster.Client().CoreV1().Pods(r.namespace).Create(ctx, r.pod(name, "good"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	r.created.Store(name, true)
	if pod.Labels["marked"] != "yes" {
		return errors.New("the mutating hook was not asked")
	}
	return nil
}

// shown is the capability in the URLs of all entries, and its decoded form.
func (r *rotating) shown(t *testing.T, keys *identity.CapabilityKeys) (identity.Capability, identity.MadeCapability, error) {
	t.Helper()
	none, nothing := identity.Capability{}, identity.MadeCapability{}
	entries, err := r.cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "portcullis", metav1.GetOptions{})
	if err != nil {
		return none, nothing, err
	}
	if len(entries.Webhooks) == 0 {
		return none, nothing, errors.New("there are no entries")
	}
	found, err := identity.FindCapabilities([]byte(*entries.Webhooks[0].ClientConfig.URL))
	if err != nil || len(found) != 1 {
		return none, nothing, fmt.Errorf("%d capabilities in the entries: %w", len(found), err)
	}
	made, ok := keys.Find(found[0], managedName)
	if !ok {
		return none, nothing, errors.New("none of the keys has made the capability")
	}
	return found[0], made, nil
}

// awaitKnown waits until each dispatcher knows a key, or none does.
func (r *rotating) awaitKnown(t *testing.T, key string, want bool) {
	t.Helper()
	for _, d := range r.dispatchers {
		eventually(t, fmt.Sprintf("a dispatcher knows key %s: %v", key, want), func() error {
			if _, known := reviewsBy(t, d, "key:"+key); known != want {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

// awaitCompared waits until each dispatcher has compared the entries again.
func (r *rotating) awaitCompared(t *testing.T) {
	t.Helper()
	for _, d := range r.dispatchers {
		before := compared(t, d)
		eventually(t, "a dispatcher compares the entries", func() error {
			if compared(t, d) == before {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

// compared are the counts, above 0, of the attempts of a dispatcher to compare
// entries.
func compared(t *testing.T, d *mesh.Dispatcher) string {
	t.Helper()
	metrics, err := d.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(regexp.MustCompile(`(?m)^portcullis_registration_attempts_total.* [1-9].*$`).FindAllString(metrics, -1), "\n")
}

// usesOf is how many reviews have come by a key, on all dispatchers.
func (r *rotating) usesOf(t *testing.T, key string) (n int) {
	t.Helper()
	for _, d := range r.dispatchers {
		uses, _ := reviewsBy(t, d, "key:"+key)
		n += uses
	}
	return n
}

// awaitShown waits until the entries show a capability of a key that has the
// property.
func (r *rotating) awaitShown(t *testing.T, what string, keys *identity.CapabilityKeys, has func(identity.MadeCapability) bool) identity.MadeCapability {
	t.Helper()
	var made identity.MadeCapability
	eventually(t, what, func() error {
		text, now, err := r.shown(t, keys)
		if err == nil && !has(now) {
			err = fmt.Errorf("they show one of key %s until %s", now.Key, now.End)
		}
		if err == nil {
			made = now
			r.shownBefore = append(r.shownBefore, capability{Name: now.Key + " until " + now.End.String(), Capability: text.Reveal()})
		}
		return err
	})
	return made
}

// periodThatEnds is the length of a period that ends soon after a moment, and
// its end.
func periodThatEnds(t *testing.T, after time.Time, within time.Duration) (period time.Duration, end time.Time) {
	t.Helper()
	for seconds := int64(kinds.MinCapabilityPeriod / time.Second); seconds < int64(kinds.MaxCapabilityPeriod/time.Second); seconds++ {
		if left := seconds - after.Unix()%seconds; left <= int64(within/time.Second) {
			return time.Duration(seconds) * time.Second, time.Unix(after.Unix()+left, 0)
		}
	}
	t.Fatal("there is no such period")
	return 0, time.Time{}
}

// TestTheMeshRotatesCapabilitiesWhilePodsAreCreated: no command writes a
// capability. The key is replaced with overlap, then the period is another one,
// then a period ends.
func TestTheMeshRotatesCapabilitiesWhilePodsAreCreated(t *testing.T) {
	citest.Soak(t, "waits for the end of a period while Pods are created: 28 s")
	former, next := identity.NewCapabilityKey(), identity.NewCapabilityKey()
	both, err := identity.ParseCapabilityKeys([]byte(former + "\n" + next))
	if err != nil {
		t.Fatal(err)
	}
	names := both.Names()
	r := newRotating(t, 720*time.Hour, former)
	first := r.awaitShown(t, "the mesh writes entries with a capability", both, func(m identity.MadeCapability) bool { return m.Key == names[0] })
	eventually(t, "the entries are in force", func() error {
		if err := r.create(t.Context()); err != nil {
			return err
		}
		if _, ok := r.seen.Load(fmt.Sprint("pod-", r.names.Load())); !ok {
			return errors.New("the hook has not seen it")
		}
		return nil
	})
	r.created.Clear() // those from before the entries
	flow := newTraffic(t, r.create)
	flow.await(t)

	r.useKeys(t, former, next)
	r.awaitKnown(t, names[1], true)
	r.awaitCompared(t)
	r.useKeys(t, next, former)
	r.awaitShown(t, "the entries show a capability of the new key", both, func(m identity.MadeCapability) bool { return m.Key == names[1] })
	eventually(t, "the API server shows the capability of the new key alone", func() error {
		before := r.usesOf(t, names[0])
		flow.await(t)
		flow.await(t)
		if r.usesOf(t, names[1]) == 0 || r.usesOf(t, names[0]) != before {
			return errors.New("not yet")
		}
		return nil
	})
	r.useKeys(t, next)
	r.awaitKnown(t, names[0], false)
	flow.await(t)

	period, end := periodThatEnds(t, time.Now().Add(8*time.Second), 6*time.Second)
	r.rotate(t, period)
	r.awaitShown(t, "the entries show a capability of the new period", both, func(m identity.MadeCapability) bool { return m.End.Before(first.End) })
	flow.await(t)
	eventually(t, "the period ends", func() error {
		if time.Now().Before(end) {
			return errors.New("not yet")
		}
		return nil
	})
	r.awaitShown(t, "the entries show the capability of the next period", both, func(m identity.MadeCapability) bool {
		return m.End.Equal(end.Add((1 + keeper.SparePeriods) * period))
	})
	flow.await(t)
	flow.wantNoFailure(t)
	r.wantAllSeen(t)

	r.wantRefused(t, r.shownBefore[0])
	r.wantUnseen(t, r.shownBefore...)
}

// wantAllSeen wants no Pod to have been created that the hook has not seen.
func (r *rotating) wantAllSeen(t *testing.T) {
	t.Helper()
	total, unseen := 0, 0
	for name := range r.created.Range {
		total++
		if _, ok := r.seen.Load(name); !ok {
			unseen++
		}
	}
	t.Logf("%d Pods created, %d that the hook has not seen", total, unseen)
	if unseen > 0 || total == 0 {
		t.Errorf("%d Pods were created, %d without the hook", total, unseen)
	}
}
