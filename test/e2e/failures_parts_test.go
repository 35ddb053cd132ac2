package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// failureMemory is the memory budget of the dispatchers, in bytes: as much as a few reviews of the largest size hold.
const failureMemory = 8 << 20

// loseCluster gives the mesh a kubeconfig of an address where nothing listens.
func (f *failures) loseCluster(t *testing.T) (mend func()) {
	t.Helper()
	f.behaveAs("allow")(t)
	config := cluster.Config()
	config.Host = "https://127.0.0.1:1"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(file, config); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(f.ConfigDir(), "initial.yaml")
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	replaced := regexp.MustCompile(`kubeconfig: "[^"]*"`).ReplaceAllString(string(before), fmt.Sprintf("kubeconfig: %q", file))
	f.Configure(t, "initial", replaced)
	eventually(t, "the cluster is away", func() error {
		if err := f.passes(t); err == nil {
			return fmt.Errorf("writes pass")
		}
		return nil
	})
	return func() {
		f.Configure(t, "initial", string(before))
		eventually(t, "the cluster answers again", func() error { return f.passes(t) })
	}
}

// loseStore cuts the dispatchers off from etcd.
func (f *failures) loseStore(t *testing.T) (mend func()) {
	t.Helper()
	f.store.Cut()
	eventually(t, "the configuration is stale", func() error { return f.refuses(t, "stale") })
	return func() {
		f.store.Mend()
		eventually(t, "the configuration is fresh again", func() error { return f.passes(t) })
	}
}

// fillMemory has callers announce reviews, and send none of them, until there is no memory for another one.
func (f *failures) fillMemory(t *testing.T) (mend func()) {
	t.Helper()
	f.behaveAs("allow")(t)
	caller := mesh.NewCaller(t, f.Authority().Pool(), apiServerCertificate(t), false)
	ctx, cancel := context.WithCancel(t.Context())
	body, held := io.Pipe()
	var callers sync.WaitGroup
	end := func() { cancel(); held.Close(); callers.Wait() }
	t.Cleanup(end)
	hold := func(size int64) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.dispatcher.URL(clusterName, "mutate")+"?timeout=30s", body)
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength = size
		request.Header.Set("Content-Type", "application/json")
		callers.Go(func() { _, _ = caller.Do(request) })
	}
	for _, size := range []int64{64 << 10, 4 << 10} {
		for range 20 {
			hold(size)
		}
	}
	eventually(t, "there is no memory", func() error {
		for range 10 {
			hold(1)
		}
		return f.refuses(t, "no memory")
	})
	return func() {
		end()
		eventually(t, "there is memory again", func() error { return f.passes(t) })
	}
}

// hurry gives the entries less time than their hooks have.
func (f *failures) hurry(t *testing.T) (mend func()) {
	t.Helper()
	f.unlike = "unavailable"
	f.entryTimeouts(t, 1)
	return func() { f.apply(" updated") }
}

// entryTimeouts changes the timeoutSeconds of all entries.
func (f *failures) entryTimeouts(t *testing.T, seconds int32) {
	t.Helper()
	admission := cluster.Client().AdmissionregistrationV1()
	validating, err := admission.ValidatingWebhookConfigurations().Get(t.Context(), f.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].TimeoutSeconds = &seconds
	}
	if _, err := admission.ValidatingWebhookConfigurations().Update(t.Context(), validating, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	mutating, err := admission.MutatingWebhookConfigurations().Get(t.Context(), f.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].TimeoutSeconds = &seconds
	}
	if _, err := admission.MutatingWebhookConfigurations().Update(t.Context(), mutating, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the entries have that time", func() error { return f.all(t, "which its entry and the hooks before it left", "(timeout)") })
}

// expireMesh starts the dispatcher anew with a certificate that is over.
func (f *failures) expireMesh(t *testing.T) (mend func()) {
	t.Helper()
	f.dispatcher.Stop(t)
	f.ExpireCertificate(t)
	f.dispatcher.Start(t)
	return func() {
		f.dispatcher.Stop(t)
		f.RotateCertificate(t)
		f.dispatcher.Start(t)
	}
}

// loseDispatcher has two rows: of a dispatcher that is killed with the reviews, and of the other one afterwards.
func (f *failures) loseDispatcher(t *testing.T) {
	t.Helper()
	f.behaveAs("allow")(t)
	spare := f.Serve(t)
	f.Host(t, hostName, f.hooks()...)
	both := mesh.Balance(t, mesh.BridgePort, spare)
	eventually(t, "the balancer uses the spare one", func() error { return both.Uses(spare) })
	before := f.bridge
	f.bridge = "https://" + both.Address
	f.apply(" updated")
	f.row(t, "A dispatcher dies with the review", "Try again: the other dispatchers judge.", func(t *testing.T) func() {
		f.behaveAs("hold")(t)
		ctx, cancel := context.WithCancel(t.Context())
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			f.killWithCalls(ctx, t, spare)
		}()
		return func() { cancel(); <-killed }
	})
	both.Add(f.dispatcher)
	f.row(t, "One of two dispatchers is dead", "Start it: the other one has all reviews.", func(t *testing.T) func() {
		f.behaveAs("allow")(t)
		eventually(t, "writes pass by the other one", func() error { return errors.Join(both.Uses(f.dispatcher), f.passes(t)) })
		return nil
	})
	f.bridge = before
	f.apply(" updated")
	both.Close()
	eventually(t, "writes pass without the balancer", func() error { return f.passes(t) })
}

// killWithCalls kills a dispatcher when hosts hold a call for each cell, or at the end of ctx, and ends the calls.
func (f *failures) killWithCalls(ctx context.Context, t *testing.T, d *mesh.Dispatcher) {
	t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for f.held.Load() < int64(len(f.cells)) && ctx.Err() == nil {
		<-tick.C
	}
	d.Kill(t)
	close(f.end)
}
