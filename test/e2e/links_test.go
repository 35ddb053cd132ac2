package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/netns"
)

const (
	distant  = "distant.example.com"  // validating
	patching = "patching.example.com" // mutating
)

// farTimeout is how long the API server and the mesh wait for a verdict: TCP
// takes its time on a link that drops packets.
const farTimeout = 30 * time.Second

// far is a road whose dispatcher and two replicas are in namespaces of their
// own.
type far struct {
	*pair
	first *netns.Namespace // the network of the one replica
	link  *netns.Link      // to it
}

func newFar(t *testing.T, args ...string) far {
	t.Helper()
	n := netns.New(t)
	here, middle, first, second := n.Here(), n.Namespace(t), n.Namespace(t), n.Namespace(t)
	n.Link(t, here, middle)
	link := n.Link(t, middle, first)
	n.Link(t, middle, second)
	validating, mutating := onPods(distant), onPods(patching)
	validating.Timeout, mutating.Timeout = farTimeout, farTimeout
	m := newMesh(t, mesh.Options{
		Addresses: []string{middle.Address()},
		Documents: []string{mesh.Cluster(clusterName, kube.WebhookClientName, "")}, // whose API it cannot reach
	}, kube.Validating("distant", validating), kube.Mutating("patching", mutating))
	r := newRoadOn(t, m, m.ServeIn(t, middle))
	entry := r.entry("validate", nil)
	entry.Timeout = farTimeout
	cluster.InstallValidating(t, kube.Validating(r.name, entry))
	args = append(args, "-validate="+distant, "-mutate="+patching)
	return far{newPairIn(t, r, first, second, args...), first, link}
}

func TestCallsInFlightBehindALinkThatIsCutAreAnsweredByTheOther(t *testing.T) {
	citest.Gate(t, "cuts a link, as root: 6 s")
	p := newFar(t)
	p.holdBack(t)
	p.send(t, p.createDryOf)

	begun := time.Now()
	p.link.Cut()
	p.release(t)
	flow := newTraffic(t, p.createDry)
	p.wantAnswers(t, inFlight) // while it is cut
	t.Logf("all calls in flight were answered %v after the link was cut", time.Since(begun))
	flow.await(t)
	p.link.Mend()
	p.one.servesAgain(t)

	flow.wantNoFailure(t)
}

// TestALinkThatIsCutInOneDirectionOrFlapsCostsNoRequest has one replica behind
// it.
func TestALinkThatIsCutInOneDirectionOrFlapsCostsNoRequest(t *testing.T) {
	citest.Soak(t, "cuts links under load, as root: 11 s")
	p := newFar(t)
	flow := newTraffic(t, p.createDry)

	for i, cut := range []func(*netns.Namespace){
		p.link.Mute,   // it hears, and is not heard
		p.link.Deafen, // it is heard, and does not hear
	} {
		cut(p.first)
		eventually(t, "the session is given up", func() error { return p.haveEnded(t, i+1) })
		p.link.Mend()
		p.one.servesAgain(t)
	}
	for range 4 {
		p.link.Cut()
		<-time.After(400 * time.Millisecond)
		p.link.Mend()
		<-time.After(200 * time.Millisecond)
	}
	p.one.servesAgain(t)

	flow.wantNoFailure(t)
}

// TestASlowLinkEndsNoSession has one replica alone behind it: it is slow, and
// it is alive. Large reviews, and a large patch that goes the other way, take
// longer than a host may be silent.
func TestASlowLinkEndsNoSession(t *testing.T) {
	citest.Soak(t, "sends much over a slow link, as root: 19 s")
	const bytes = 500_000
	p := newFar(t, "-patch-bytes="+strconv.Itoa(bytes))
	p.other.Drain(t)
	flow := newTraffic(t, p.createDry)

	p.link.Slow(200*time.Millisecond, 1_000_000/8)
	patched := make(chan error, 1)
	caller := mesh.NewCaller(t, p.Authority().Pool(), apiServerCertificate(t), false)
	go func() { patched <- p.patch(t.Context(), caller, bytes) }()
	if err := p.createLarge(t.Context(), bytes); err != nil {
		t.Errorf("a large review: %v", err)
	}
	if err := <-patched; err != nil {
		t.Errorf("a large patch: %v", err)
	}
	p.link.Slow(200*time.Millisecond, 2_000_000/8)
	if err := p.createLarge(t.Context(), 2*bytes); err != nil {
		t.Errorf("a larger review: %v", err)
	}

	flow.wantNoFailure(t)
	p.wantEnded(t, 1) // the session of the drained replica
}

// patch has the mutating hook asked, past the API server: the Pod would have
// to bear its patch.
func (p far) patch(ctx context.Context, caller *mesh.Caller, bytes int) error {
	url := p.dispatcher.URL(clusterName, "mutate") + "?timeout=" + farTimeout.String()
	response, err := caller.Review(ctx, url, podRequest(p.namespace, "app"))
	if err != nil {
		return err
	}
	if !response.Allowed || len(response.Patch) < bytes {
		return fmt.Errorf("allowed %t, with a patch of %d bytes", response.Allowed, len(response.Patch))
	}
	return nil
}

// TestALinkThatIsCutUnderALargeReview has another replica first, which answers
// the calls that were on their way to the first one, and then none. A short cut
// ends no session: TCP repeats lost segments.
func TestALinkThatIsCutUnderALargeReview(t *testing.T) {
	citest.Soak(t, "sends much over a slow link, as root: 10 s")
	p := newFar(t)
	p.link.Slow(20*time.Millisecond, 2_000_000/8)

	answers := p.createLargeOnes(t, 2) // one for each replica, of which it is not known yet which one is slow
	flow := newTraffic(t, p.createDry)
	p.link.Cut()
	wantAll(t, answers)
	p.link.Mend()
	p.one.servesAgain(t)
	p.wantEnded(t, 1)

	p.other.Drain(t)
	answers = p.createLargeOnes(t, 1)
	p.link.Cut()
	<-time.After(2 * time.Second)
	p.link.Mend()
	wantAll(t, answers)
	p.wantEnded(t, 2) // the session of the drained replica, too

	flow.wantNoFailure(t)
}

// createLargeOnes has some large Pods created, and returns when a review is on
// its way over the link.
func (p far) createLargeOnes(t *testing.T, n int) (answers []<-chan error) {
	t.Helper()
	const large, some = 500_000, 100_000
	target := p.link.Carried(p.first) + some
	for range n {
		answer := make(chan error, 1)
		answers = append(answers, answer)
		go func() { answer <- p.createLarge(t.Context(), large) }()
	}
	eventually(t, "a large review is on its way", func() error {
		if n := p.link.Carried(p.first); n < target {
			return fmt.Errorf("%d bytes, not %d", n, target)
		}
		return nil
	})
	return answers
}

func wantAll(t *testing.T, answers []<-chan error) {
	t.Helper()
	for _, answer := range answers {
		if err := <-answer; err != nil {
			t.Errorf("a large one: %v", err)
		}
	}
}

// createLarge creates a Pod of so many bytes, dry.
func (r *road) createLarge(ctx context.Context, bytes int) error {
	pod := kube.Pod(r.namespace, "large")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LARGE", Value: strings.Repeat("x", bytes)}}
	_, err := cluster.Client().CoreV1().Pods(r.namespace).
		Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// wantEnded fails the test unless so many sessions have ended, for whatever
// reason.
func (p far) wantEnded(t *testing.T, sessions int) {
	t.Helper()
	if err := p.haveEnded(t, sessions); err != nil {
		t.Error(err)
	}
}

// haveEnded is an error unless so many sessions have ended.
func (p far) haveEnded(t *testing.T, sessions int) error {
	t.Helper()
	metrics, err := p.dispatcher.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	var lines strings.Builder
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "portcullis_host_sessions_ended_total{") {
			_, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			ended += n
			lines.WriteString(line)
		}
	}
	if ended != sessions {
		return fmt.Errorf("%d sessions have ended, want %d:\n%s", ended, sessions, &lines)
	}
	return nil
}
