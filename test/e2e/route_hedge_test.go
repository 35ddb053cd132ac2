package e2e

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// TestAReplicaThatHangsIsNotWaitedForWhereCallsAreHedged has two replicas. The
// first that is called hangs: nothing lets it go before the write has been
// answered.
func TestAReplicaThatHangsIsNotWaitedForWhereCallsAreHedged(t *testing.T) {
	citest.Gate(t, "covers hedged calls: a second")
	const hook = "hedged.example.com"
	r := newRoadWith(t, mesh.Options{Documents: routes("hedged", "hedge: {after: 1s, percent: 50}", hook)},
		kube.Validating("hedged", onPods(hook)))
	var hanging, calls atomic.Int32
	answered := make(chan struct{})
	given := make(chan error, 1) // how the call that hung ended
	for range 2 {
		r.host(t, hostsdk.Validate(hook, func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
			calls.Add(1)
			if !hanging.CompareAndSwap(1, 2) {
				return hostsdk.Allow(), nil
			}
			defer func() { given <- context.Cause(ctx) }()
			<-answered
			<-ctx.Done() // when it is told, or else when its time is over
			return hostsdk.Allow(), nil
		}))
	}
	r.validate(t)
	for range 10 { // an extra call has to be earned
		if err := r.createDry(t.Context()); err != nil {
			t.Fatalf("create a pod: %v", err)
		}
	}
	before := calls.Load()
	hanging.Store(1)

	err := r.createDry(t.Context())

	close(answered)
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}
	if n := calls.Load() - before; n != 2 {
		t.Errorf("%d calls, want one to each replica", n)
	}
	if err := <-given; errors.Is(err, context.DeadlineExceeded) {
		t.Error("the replica that hung was not told that nobody waits for it")
	}
	wantMetric(t, r.dispatcher, `portcullis_host_hedges_total{outcome="won"} 1`)
}
