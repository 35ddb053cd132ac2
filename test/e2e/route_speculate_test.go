package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

const (
	// links is how many hooks a chain has.
	links = 8
	// steadyWrites are enough that the mesh knows: the hooks change nothing.
	steadyWrites = 200
)

// chain is a road with mutating hooks, whose handlers the test may change.
type chain struct {
	*road
	hooks   []string
	handler atomic.Pointer[hostsdk.Handler]
}

// newChain has the hooks change nothing for so long that they can be asked
// ahead of their turn, where their routes allow it.
func newChain(t *testing.T, fields string) *chain {
	t.Helper()
	c := &chain{}
	var hooks []kube.Hook
	for i := range links {
		c.hooks = append(c.hooks, fmt.Sprintf("link%d.example.com", i))
		hooks = append(hooks, onPods(c.hooks[i]))
	}
	c.road = newRoadWith(t, mesh.Options{Documents: routes("chain", fields, c.hooks...)}, kube.Mutating("chain", hooks...))
	c.set(allow)
	var served []hostsdk.Hook
	for _, name := range c.hooks {
		served = append(served, hostsdk.Mutate(name, func(ctx context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
			return (*c.handler.Load())(ctx, q)
		}, hostsdk.Speculate()))
	}
	c.host(t, served...)
	c.mutate(t)
	for range steadyWrites {
		if err := c.createDry(t.Context()); err != nil {
			t.Fatalf("create a pod: %v", err)
		}
	}
	return c
}

func (c *chain) set(h hostsdk.Handler) { c.handler.Store(&h) }

// TestHooksThatChangeNothingRunAtOnce has each hook wait until all of them
// have been asked: in series the first one would wait for the second until its
// time is over.
func TestHooksThatChangeNothingRunAtOnce(t *testing.T) {
	citest.Gate(t, "covers calls ahead: a second")
	c := newChain(t, "speculate: true")
	var asked sync.WaitGroup
	asked.Add(links)
	all := make(chan struct{})
	go func() {
		asked.Wait()
		close(all)
	}()
	c.set(func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
		asked.Done()
		select {
		case <-all:
			return hostsdk.Allow(), nil
		case <-ctx.Done():
			return hostsdk.Deny("the others were not asked"), nil
		}
	})

	if err := c.createDry(t.Context()); err != nil {
		t.Fatalf("create a pod: %v", err)
	}
}

// TestAChainThatIsAskedAheadMakesTheSameObject has hooks that change nothing,
// and then hooks that each build on the changes of the hooks before them.
func TestAChainThatIsAskedAheadMakesTheSameObject(t *testing.T) {
	citest.Gate(t, "covers calls ahead: 4 s")
	want := ""
	for i := range links {
		want += fmt.Sprintf(" link%d.example.com", i)
	}
	for _, fields := range []string{"speculate: false", "speculate: true"} {
		t.Run(fields, func(t *testing.T) {
			c := newChain(t, fields)
			c.set(func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
				var pod metav1.PartialObjectMetadata
				if err := json.Unmarshal(q.RawObject(), &pod); err != nil {
					return nil, err
				}
				return hostsdk.Patch(fmt.Appendf(nil, `[{"op":"add","path":"/metadata/annotations","value":{"chain":%q}}]`,
					pod.Annotations["chain"]+" "+q.Hook)), nil
			})
			pod, err := cluster.CreatePod(t.Context(), kube.Pod(c.namespace, "pod"))
			if err != nil {
				t.Fatalf("create a pod: %v", err)
			}
			if diff := cmp.Diff(map[string]string{"chain": want}, pod.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}
