package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/netns"
)

// replica is a host process whose calls can be counted.
type replica struct {
	mesh.HostProcess
	dir string
}

// replica starts one, in a network namespace unless that is nil.
func (r *road) replica(t *testing.T, namespace *netns.Namespace, args ...string) replica {
	t.Helper()
	dir := t.TempDir()
	return replica{dir: dir, HostProcess: r.HostProcess(t, mesh.HostOptions{
		Program: testhost, Identity: hostName, Namespace: namespace, Args: append([]string{"-calls=" + dir}, args...),
	})}
}

// calls is how many calls have reached a handler.
func (h replica) calls(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// wasCalled is an error unless at least so many calls have.
func (h replica) wasCalled(t *testing.T, times int) error {
	t.Helper()
	if n := h.calls(t); n < times {
		return fmt.Errorf("%d calls, not %d", n, times)
	}
	return nil
}

// inFlight is how many requests are under way while something happens to the
// replicas that hold their calls.
const inFlight = 16

// pair is a road with two replicas that can hold back their verdicts, and the
// requests that wait for these.
type pair struct {
	*road
	one, other replica
	hold       string // a file, while verdicts are held back
	answers    chan error
}

// newPair starts the replicas, and requests whose calls are all in the hands
// of their handlers.
func newPair(t *testing.T, r *road, request func(ctx context.Context, i int) error, args ...string) *pair {
	t.Helper()
	p := newPairIn(t, r, nil, nil, args...)
	p.holdBack(t)
	p.send(t, request)
	return p
}

// newPairIn starts the replicas, each in a namespace.
func newPairIn(t *testing.T, r *road, first, second *netns.Namespace, args ...string) *pair {
	t.Helper()
	p := &pair{road: r, hold: filepath.Join(t.TempDir(), "hold"), answers: make(chan error, inFlight)}
	args = append(args, "-hold="+p.hold)
	p.one, p.other = r.replica(t, first, args...), r.replica(t, second, args...)
	return p
}

// holdBack has the handlers wait for release.
func (p *pair) holdBack(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(p.hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// send starts requests and returns when their calls are in the hands of
// handlers.
func (p *pair) send(t *testing.T, request func(ctx context.Context, i int) error) {
	t.Helper()
	oneBefore, otherBefore := p.one.calls(t), p.other.calls(t)
	for i := range inFlight {
		go func() { p.answers <- request(t.Context(), i) }()
	}
	eventually(t, "both replicas hold calls", func() error {
		if one, other := p.one.calls(t)-oneBefore, p.other.calls(t)-otherBefore; one == 0 || other == 0 || one+other < inFlight {
			return fmt.Errorf("%d and %d calls", one, other)
		}
		return nil
	})
}

// release lets the handlers go on.
func (p *pair) release(t *testing.T) {
	t.Helper()
	if err := os.Remove(p.hold); err != nil {
		t.Fatal(err)
	}
}

// wantAnswers waits for the answers of so many requests.
func (p *pair) wantAnswers(t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := <-p.answers; err != nil { // as late as kube-apiserver waits
			t.Errorf("a request that was under way: %v", err)
		}
	}
}

// createDryOf is createDry with a name for each request.
func (r *road) createDryOf(ctx context.Context, i int) error {
	return r.create(ctx, fmt.Sprintf("pod-%d", i), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// createOf creates a Pod for each request.
func (r *road) createOf(ctx context.Context, i int) error {
	return r.create(ctx, fmt.Sprintf("pod-%d", i), metav1.CreateOptions{})
}

func (r *road) create(ctx context.Context, name string, options metav1.CreateOptions) error {
	_, err := cluster.Client().CoreV1().Pods(r.namespace).Create(ctx, kube.Pod(r.namespace, name), options)
	return err
}

// servesAgain fails the test unless a replica gets new calls.
func (h replica) servesAgain(t *testing.T) {
	t.Helper()
	before := h.calls(t)
	eventually(t, "the replica serves again", func() error { return h.wasCalled(t, before+1) })
}
