package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/e2e/kube"
	"github.com/portcullis-mesh/portcullis/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/e2e/netns"
)

const distant = "distant.example.com"

// newDistant is a road whose dispatcher and two replicas are in namespaces of
// their own. It returns the link to the first replica.
func newDistant(t *testing.T) (*pair, *netns.Link) {
	t.Helper()
	n := netns.New(t)
	here, middle, first, second := n.Here(), n.Namespace(t), n.Namespace(t), n.Namespace(t)
	n.Link(t, here, middle)
	link := n.Link(t, middle, first)
	n.Link(t, middle, second)
	m := newMesh(t, mesh.Options{
		Addresses: []string{middle.Address()},
		Documents: []string{mesh.Cluster(clusterName, kube.WebhookClientName, "")}, // whose API it cannot reach
	}, kube.Validating("distant", onPods(distant)))
	r := newRoadOn(t, m, m.ServeIn(t, middle))
	r.validate(t)
	return newPairIn(t, r, first, second, "-validate="+distant), link
}

func TestCallsInFlightBehindALinkThatIsCutAreAnsweredByTheOther(t *testing.T) {
	p, link := newDistant(t)
	p.send(t, p.createDryOf)

	begun := time.Now()
	link.Cut()
	p.release(t)
	flow := newTraffic(t, p.createDry)
	p.wantAnswers(t, inFlight) // while it is cut
	t.Logf("all calls in flight were answered %v after the link was cut", time.Since(begun))
	flow.await(t)
	link.Mend()
	p.one.servesAgain(t)

	flow.wantNoFailure(t)
}

// TestAReplicaBehindASlowLinkServesOn has no other replica left, to which its
// calls would rather go. It is slow, and it is alive.
func TestAReplicaBehindASlowLinkServesOn(t *testing.T) {
	p, link := newDistant(t)
	p.release(t)
	flow := newTraffic(t, p.createDry)
	flow.await(t)

	link.Slow(200*time.Millisecond, 1_000_000/8)
	p.other.Drain(t)
	for range 5 {
		flow.await(t)
	}

	flow.wantNoFailure(t)
	p.wantEnded(t, 1) // that of the drained one
}

// wantEnded fails the test unless so many sessions have ended, for whatever
// reason.
func (p *pair) wantEnded(t *testing.T, sessions int) {
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
		t.Errorf("%d sessions have ended, want %d:\n%s", ended, sessions, &lines)
	}
}
