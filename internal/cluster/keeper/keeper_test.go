package keeper

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// kept are the documents of clusters whose entries are kept.
func kept(names ...string) []*kinds.Cluster {
	var all []*kinds.Cluster
	for _, name := range names {
		c := &kinds.Cluster{Spec: kinds.ClusterSpec{
			Identities: []string{"a"}, Kubeconfig: "/" + name, Registration: &kinds.Registration{URL: "https://mesh.example.com"},
		}}
		c.Metadata.Name = name
		all = append(all, c)
	}
	return all
}

// TestAClusterThatDoesNotAnswerDelaysNoOther has a cluster that hangs, and another that refuses at once.
func TestAClusterThatDoesNotAnswerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var asked []time.Duration // of the cluster that refuses
		k, _ := running(t, kept("hangs", "refuses"), func(ctx context.Context, cluster string) error {
			if cluster == "hangs" {
				<-ctx.Done()
				return ctx.Err()
			}
			asked = append(asked, time.Since(begun))
			return errors.New("no")
		})

		<-time.After(attemptTimeout - time.Nanosecond)
		synctest.Wait()
		if len(asked) < 2 || asked[0] != 0 {
			t.Errorf("the other cluster was asked at %v", asked)
		}
		if s := k.States(); len(s) != 1 || s[0].Cluster != "refuses" || s[0].Err == nil || s[0].behind(s[0].Digest) != "no" {
			t.Errorf("states %+v", s)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if s := k.States(); len(s) != 2 || !errors.Is(s[0].Err, context.DeadlineExceeded) {
			t.Errorf("after the time of an attempt: %+v", s)
		}
	})
}

// TestAClusterThatLeavesIsForgotten has a cluster whose document goes while an attempt runs.
func TestAClusterThatLeavesIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, set := running(t, nil, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		})
		for _, clusters := range [][]*kinds.Cluster{kept("a", "b"), kept("b"), nil} {
			set(clusters)
			synctest.Wait()
			if s := k.States(); len(s) != 0 {
				t.Errorf("states before the first attempt has ended: %+v", s)
			}
		}
		set(kept("b"))
		<-time.After(attemptTimeout + time.Second)
		synctest.Wait()
		if s := k.States(); len(s) != 1 || s[0].Cluster != "b" {
			t.Errorf("states %+v", s)
		}
		set(nil)
		synctest.Wait()
		if s := k.States(); len(s) != 0 {
			t.Errorf("states %+v", s)
		}
	})
}

// running is a keeper of clusters until the test ends, and a function that replaces the clusters.
func running(t *testing.T, clusters []*kinds.Cluster, api func(context.Context, string) error) (*Keeper, func([]*kinds.Cluster)) {
	t.Helper()
	next := make(chan struct{})
	var now atomic.Pointer[Generation]
	now.Store(&Generation{Clusters: clusters, Fresh: true, Next: next})
	k, err := New(Options{
		ID: "one", Metrics: prometheus.NewRegistry(), Generation: func() Generation { return *now.Load() },
		API: func(ctx context.Context, cluster string) (*rest.Config, *http.Client, error) {
			return nil, nil, api(ctx, cluster)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return k, func(clusters []*kinds.Cluster) {
		before := next
		next = make(chan struct{})
		now.Store(&Generation{Clusters: clusters, Fresh: true, Next: next})
		close(before)
	}
}
