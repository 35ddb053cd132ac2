package etcdstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// How the checker works.
const (
	checkersReviewing = 16
	pauseOfReviewers  = 20 * time.Millisecond
	reviewTimeout     = 700 * time.Millisecond
	commitTimeout     = 3 * time.Second
)

// checker judges reviews by a real store in a real cluster, under faults, and collects the evidence for the proof.
type checker struct {
	t       *testing.T
	cluster *etcdtest.Cluster
	store   *etcdstore.Store
	source  *noting
	judging *store.Store
	judge   *dispatcher.Dispatcher

	version atomic.Int64 // last that somebody tried to commit
	changes atomic.Int64 // that were acknowledged
	stale   atomic.Int64 // reviews that nothing judged

	mu     sync.Mutex
	judged []judged
}

func newChecker(t *testing.T, maxAge time.Duration) *checker {
	t.Helper()
	c := &checker{t: t, cluster: etcdtest.Start(t)}
	c.store = c.cluster.Store()
	c.source = &noting{Source: c.store.Source(configtest.NewDecoder())}
	var err error
	if c.judging, err = store.New(store.Options{Sources: []config.Source{c.source}, MaxAge: maxAge}); err != nil {
		t.Fatal(err)
	}
	c.judge, err = dispatcher.New(dispatcher.Options{
		Snapshots: lending{c.judging}, Clusters: unknown{}, Streams: telling{}, Webhooks: telling{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// unknown are clusters that nothing is known about.
type unknown struct{ match.Unknown }

// Cluster implements [dispatcher.Clusters].
func (u unknown) Cluster(string) match.Cluster { return u }

// telling is a backend whose hooks let everything pass, and say who they are.
type telling struct{}

// Start implements [review.Backend].
func (telling) Start(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	for i, call := range b.Calls {
		done(i, review.Result{Verdict: &admissionv1.AdmissionResponse{
			Uid: b.Request.GetUid(), Allowed: true, Warnings: []string{"hook=" + call.Hook.ID.Name},
		}})
	}
	return func(int) {}
}

// configurationOf is a configuration of a version, in two objects that are written together.
func configurationOf(version int64) []*etcdstore.Record {
	var out []*etcdstore.Record
	for _, name := range []string{"left", "right"} {
		out = append(out, &etcdstore.Record{
			Key: config.Key{Kind: "ValidatingWebhookConfiguration", Name: name}, UID: name, Generation: version,
			Manifest: fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",
				"metadata":{"name":%q},"webhooks":[{"name":%q,"clientConfig":{"url":"https://localhost/"},"sideEffects":"None",
				"admissionReviewVersions":["v1"],"rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}]}`,
				name, hookOf(version)),
		})
	}
	return out
}

// change makes versions until ctx ends, some soon after the other. After a commit with an unknown outcome it makes another
// version.
func (c *checker) change(ctx context.Context) {
	var state *etcdstore.State
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, commitTimeout)
		if now, err := c.store.Read(asking, state); err == nil {
			state = now
			if _, err := c.store.Commit(asking, state, put(configurationOf(c.version.Add(1))...)); err == nil {
				c.changes.Add(1)
			}
		}
		cancel()
		waitFor(ctx, time.Duration(rand.Int64N(int64(200*time.Millisecond))))
	}
}

// review has reviews judged until enough are.
func (c *checker) review(ctx context.Context, left *atomic.Int64) {
	request := &review.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Admission: &admissionv1.AdmissionRequest{
		Uid: "one", Cluster: "prod", Operation: "CREATE", Namespace: "default", Name: "pod",
		Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod","namespace":"default"}}`)},
	}}
	for left.Load() > 0 && ctx.Err() == nil {
		var noted times
		reviewing, cancel := context.WithTimeout(context.WithValue(ctx, timesOf{}, &noted), reviewTimeout)
		answer, err := c.judge.Review(reviewing, request)
		cancel()
		switch {
		case err == nil && strings.Contains(answer.Response.GetStatus().GetMessage(), "deadline exceeded"): // on a busy machine
			c.stale.Add(1)
		case err == nil:
			c.answered(judgedBy(answer.Response.GetWarnings(), answer.Revision, noted))
			left.Add(-1)
		default:
			c.stale.Add(1)
		}
		waitFor(ctx, pauseOfReviewers)
	}
}

func (c *checker) answered(j judged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judged = append(c.judged, j)
}

// run judges so many reviews while something happens, again and again. It returns when everything has ended.
func (c *checker) run(reviews int64, happen func()) {
	c.t.Helper()
	ctx, stop := context.WithCancel(c.t.Context())
	defer stop()
	var running, reviewing sync.WaitGroup
	if _, err := c.store.Commit(ctx, c.first(), put(configurationOf(c.version.Add(1))...)); err != nil {
		c.t.Fatal(err)
	}
	running.Go(func() { _ = c.judging.Run(ctx) })
	running.Go(func() { c.change(ctx) })
	var left atomic.Int64
	left.Store(reviews)
	for range checkersReviewing {
		reviewing.Go(func() { c.review(ctx, &left) })
	}
	for deadline := time.Now().Add(patience + time.Duration(reviews)*10*time.Millisecond); left.Load() > 0; {
		happen()
		if time.Now().After(deadline) {
			c.t.Errorf("%d reviews are left", left.Load())
			break
		}
	}
	left.Store(0)
	reviewing.Wait()
	stop()
	running.Wait()
}

// first is the store before the first change.
func (c *checker) first() *etcdstore.State {
	c.t.Helper()
	state, err := c.store.Read(c.t.Context(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return state
}

// prove checks every review, and returns those that nothing proves.
func (c *checker) prove(maxAge time.Duration) (*proof, []error) {
	listings, _ := c.source.noted()
	p := newProof(maxAge, listings)
	var wrong []error
	for _, j := range c.judged {
		if err := p.check(j); err != nil {
			wrong = append(wrong, err)
		}
	}
	return p, wrong
}

// fault is something that fails for a while.
type fault struct {
	name string
	do   func()
}

// faults are the faults that may come next. The first takes longer than a configuration may be old.
func (c *checker) faults(maxAge time.Duration) []fault {
	m := c.cluster.Members
	one := rand.IntN(len(m))
	some, other := m[one], m[(one+1)%len(m)]
	short, long := between(0, maxAge/3), between(maxAge*3/2, maxAge*2)
	during := func(d time.Duration, fail, mend func()) {
		fail()
		waitFor(c.t.Context(), d)
		mend()
	}
	each := func(do func(*etcdtest.Member)) func() {
		return func() {
			for _, one := range m {
				do(one)
			}
		}
	}
	return []fault{
		{"no quorum", func() {
			during(long, func() { some.CutOff(); other.Hang() }, each((*etcdtest.Member).Heal))
		}},
		{"leader killed", func() { l := c.cluster.Leader(); during(short, l.Kill, l.Restart) }},
		{"member killed", func() { during(short, some.Kill, some.Restart) }},
		{"member cut off", func() { during(short, some.CutOff, some.Heal) }},
		{"member hangs", func() { during(short, some.Hang, some.Heal) }},
		{"member slow", func() { during(short, func() { some.Slow(50 * time.Millisecond) }, some.Heal) }},
		{"member deaf to clients", func() { during(short, some.Clients.Hang, some.Heal) }},
		{"all slow", func() {
			during(short, each(func(m *etcdtest.Member) { m.Slow(20 * time.Millisecond) }), each((*etcdtest.Member).Heal))
		}},
		{"all deaf to clients", func() {
			during(long, each(func(m *etcdtest.Member) { m.Clients.Hang() }), each((*etcdtest.Member).Heal))
		}},
		{"nothing", func() { waitFor(c.t.Context(), short) }},
	}
}

// between is a random duration.
func between(least, most time.Duration) time.Duration {
	return least + time.Duration(rand.Int64N(int64(most-least)))
}

// waitFor waits, or until ctx ends.
func waitFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// TestNoReviewIsJudgedByWhatIsTooOld proves the promise for a few thousand reviews, and in the soak for many by the default of an installation.
func TestNoReviewIsJudgedByWhatIsTooOld(t *testing.T) {
	citest.Gate(t, "judges reviews while members of an etcd fail: 10 s")
	t.Parallel()
	const manyReviews = 100_000
	reviews, maxAge := citest.Rounds(0, 2000, manyReviews), 2*time.Second
	if reviews == manyReviews {
		maxAge = store.DefaultMaxAge
	}
	c := newChecker(t, maxAge)
	happened, begun := map[string]int{}, time.Now()
	c.run(int64(reviews), func() {
		faults := c.faults(maxAge)
		next := faults[0]
		if len(happened) > 0 {
			next = faults[rand.IntN(len(faults))]
		}
		happened[next.name]++
		next.do()
		waitFor(t.Context(), between(0, maxAge/2))
	})
	p, wrong := c.prove(maxAge)
	for i, err := range wrong {
		if i < 10 {
			t.Error(err)
		}
	}
	listings, failed := c.source.noted()
	t.Logf("%d reviews judged by %d versions, and %d not judged; %d changes, %d listings and %d that failed, in %s",
		len(c.judged), len(p.digests), c.stale.Load(), c.changes.Load(), len(listings), failed, time.Since(begun).Round(time.Second))
	t.Logf("faults: %v; the oldest listing that judged had begun %s before", happened, p.oldest.Round(time.Millisecond))
}

func TestAStoreThatJudgesOnIsFoundOut(t *testing.T) {
	citest.Gate(t, "judges reviews while members of an etcd fail: 9 s")
	t.Parallel()
	const promised = 2 * time.Second
	c := newChecker(t, time.Hour) // the mutant: the age counts for nothing
	c.run(5000, func() {
		waitFor(t.Context(), promised/4)
		c.cluster.Members[0].CutOff()
		c.cluster.Members[1].Hang()
	})
	if _, wrong := c.prove(promised); len(wrong) == 0 {
		t.Errorf("%d reviews were judged, and nothing was found", len(c.judged))
	} else {
		t.Logf("%d of %d reviews, for example: %v", len(wrong), len(c.judged), wrong[0])
	}
}
