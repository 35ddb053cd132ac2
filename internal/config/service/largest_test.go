package service_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// reviewsPerSecond is the rate of all dispatchers together, while something is applied.
const reviewsPerSecond = 1000

// holds are how long reviews waited for their configuration.
type holds struct {
	dispatcher.Snapshots

	mu   sync.Mutex
	took []time.Duration
}

// Acquire implements dispatcher.Snapshots.
func (h *holds) Acquire(ctx context.Context, cluster string, bytes int64) (*match.Snapshot, string, error) {
	begun := time.Now()
	snapshot, stale, err := h.Snapshots.Acquire(ctx, cluster, bytes)
	took := time.Since(begun)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.took = append(h.took, took)
	return snapshot, stale, err
}

// sizes are the sizes of an apply.
type sizes struct{ manifests, bytes, conditions, expressions int }

// largeApply is an apply of such sizes. Each condition differs from the conditions of other rounds.
func largeApply(s sizes, round int) *configv1.ApplyRequest {
	r, each := &configv1.ApplyRequest{}, s.conditions/s.manifests
	n := 0
	expression := func() string {
		n++
		x := fmt.Sprintf("request.name != 'r%d-%d'", round, n)
		for term := " && request.namespace != 'n%d'"; len(x)+len(term)+5 < s.expressions/s.conditions; {
			x += fmt.Sprintf(term, len(x))
		}
		return x + strings.Repeat(" ", s.expressions/s.conditions-len(x))
	}
	for i := range s.manifests {
		var conditions []string
		for j := range each {
			conditions = append(conditions, fmt.Sprintf(`{"name":"c%d","expression":%q}`, j, expression()))
		}
		head, tail := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"large-%d","annotations":{"a":"`, i),
			fmt.Sprintf(`"}},"webhooks":[{"name":"large-%d.example.com","clientConfig":{},"failurePolicy":"Ignore","sideEffects":"None","admissionReviewVersions":["v1"],`+
				`"matchConditions":[%s],"rules":[{"operations":["CREATE"],"apiGroups":["x.y"],"apiVersions":["v1"],"resources":["z%d"]}]}]}`, i, strings.Join(conditions, ","), i)
		padding := strings.Repeat("x", max(0, s.bytes/s.manifests-len(head)-len(tail)))
		r.Manifests = append(r.Manifests, &admissionv1.Object{Raw: []byte(head + padding + tail)})
	}
	return r
}

// reviewed asks the dispatchers in turn for reviews at a fixed rate, however long each takes, until stop is called, and returns how
// long they took.
func (m *mesh) reviewed(t *testing.T) (stop func() []time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var took []time.Duration
	var asking sync.WaitGroup
	asking.Go(func() {
		started := time.Now()
		for i := 0; ctx.Err() == nil; i++ {
			<-time.After(time.Until(started.Add(time.Duration(i) * time.Second / reviewsPerSecond))) // those that are late are made up for
			asking.Go(func() {
				begun := time.Now()
				judge(t, m.dispatchers[i%len(m.dispatchers)])
				one := time.Since(begun)
				mu.Lock()
				defer mu.Unlock()
				took = append(took, one)
			})
		}
	})
	return func() []time.Duration {
		cancel()
		asking.Wait()
		return took
	}
}

// inForce waits until each store has a revision in force.
func (m *mesh) inForce(t *testing.T, revision int64) {
	t.Helper()
	for _, s := range m.stores {
		for deadline := time.Now().Add(2 * time.Minute); ; {
			c := s.Configuration()
			if now, err := strconv.ParseInt(c.Sources[etcdstore.SourceName], 10, 64); err == nil && now >= revision {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("revision %d is not in force: %v", revision, s.Ready())
			}
			<-c.Next()
		}
	}
}

// TestTheLargestApplyHoldsNoReview applies a hundredth of the limits of one apply, and in the soak all of it a few times, at every limit at once.
func TestTheLargestApplyHoldsNoReview(t *testing.T) {
	limit := config.DocumentLimit()
	part, rounds := citest.Rounds(100, 100, 1), citest.Rounds(1, 1, 5)
	s := sizes{service.MaxManifests / part, service.MaxApplyBytes / part, limit[config.Conditions] / part, limit[config.ConditionBytes] / part}
	m := newMeshOf(t, 2, func(s config.Source) config.Source { return s }, 0)
	m.refuse(t, true)
	m.effective(t, true)
	stop := m.reviewed(t)
	shortest := time.Hour
	for round := range rounds {
		begun := time.Now()
		answer, err := m.Apply(t.Context(), largeApply(s, round))
		must(t, err)
		acknowledged := time.Since(begun)
		revision, err := strconv.ParseInt(answer.GetRevision().GetSources()[etcdstore.SourceName], 10, 64)
		must(t, err)
		m.inForce(t, revision)
		inForce := time.Since(begun)
		shortest = min(shortest, inForce)
		t.Logf("%+v: acknowledged after %s, in force after %s", s, acknowledged.Round(time.Millisecond), inForce.Round(time.Millisecond))
	}
	took := stop()
	slices.Sort(took)
	var held []time.Duration
	for _, h := range m.holds {
		held = append(held, h.took...)
	}
	slices.Sort(held)
	longest := held[len(held)-1]
	t.Logf("%d reviews: the longest hold %s; reviews p50 %s, p99 %s, longest %s", len(took), longest.Round(time.Microsecond),
		took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond), took[len(took)-1].Round(time.Microsecond))
	if part == 1 && longest > shortest/2 { // a small apply is over before a review could wait for it
		t.Errorf("a review was held for %s, and the shortest apply took %s: a review must not wait for an apply", longest, shortest)
	}
}
