package dispatcher

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// spare is a capacity that remembers whom it was asked about.
type spare struct {
	busy  bool
	asked []string
}

func (s *spare) Spare(h *match.Hook, _ review.Mode, cluster string) bool {
	s.asked = append(s.asked, h.ID.Name+" for "+cluster)
	return !s.busy
}

// snapshotOf has mutating hooks of these names; those whose names begin with "s" may be asked ahead of their turn.
func snapshotOf(names ...string) *match.Snapshot {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	in := match.Input{Objects: []match.Object{{Mutating: c}}}
	for _, name := range names {
		effects := admissionregistrationv1.SideEffectClassNone
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{Name: name, SideEffects: &effects})
		in.Routes = append(in.Routes, match.RouteBinding{
			Configuration: "m", Hook: name, Route: match.Route{Stream: true, Speculate: name[0] == 's'},
		})
	}
	snapshot, _ := match.Compile(in)
	return snapshot
}

func (u *upsets) see(h *match.Hook, e chain.Effect, times int) {
	for range times {
		u.learn(chain.Outcome{Hook: h, Effect: e})
	}
}

func TestNobodyIsAskedAheadWhereNobodySaysHowBusyReplicasAre(t *testing.T) {
	g := &gate{}
	u := g.of(snapshotOf("s0"))
	u.see(nil, chain.Allowed, 1)
	if u != nil || g.speculate(u, "c") != nil {
		t.Error("hooks may be asked ahead")
	}
}

func TestNobodyIsAskedAheadWhereNoRouteAllowsIt(t *testing.T) {
	g, snapshot := &gate{capacity: &spare{}}, snapshotOf("a", "b")
	u := g.of(snapshot)
	u.see(snapshot.Hooks()[0], chain.Allowed, 1)
	if g.speculate(u, "c") != nil || u.shares != nil {
		t.Error("hooks may be asked ahead")
	}
}

func TestAHookIsAskedAheadIfItsRouteAllowsItAndAReplicaIsIdle(t *testing.T) {
	snapshot, replicas := snapshotOf("s0", "s1", "two"), &spare{}
	g, h := &gate{capacity: replicas}, snapshot.Hooks()
	u := g.of(snapshot)
	may := g.speculate(u, "east")
	if may(h[1], h[:1]) || len(replicas.asked) != 0 {
		t.Errorf("asked ahead behind a hook of which nothing is known; capacity was asked about %v", replicas.asked)
	}
	u.see(h[0], chain.Allowed, 1000)
	if !may(h[1], h[:1]) || !slices.Equal(replicas.asked, []string{"s1 for east"}) {
		t.Errorf("not asked ahead; capacity was asked about %v", replicas.asked)
	}
	if may(h[2], h[:1]) {
		t.Error("asked ahead, and its route does not allow it")
	}
	replicas.busy = true
	if may(h[1], h[:1]) {
		t.Error("asked ahead when all replicas are busy")
	}
}

// TestAHookIsTrustedOnceItHasLeftEnoughObjectsAlone is the edge: what is known of a hook that never upsets anything decays
// by 1/32 with each call, and is below one in twenty from the 95th on.
func TestAHookIsTrustedOnceItHasLeftEnoughObjectsAlone(t *testing.T) {
	snapshot := snapshotOf("s0", "s1")
	g, h := &gate{capacity: &spare{}}, snapshot.Hooks()
	u := g.of(snapshot)
	may := g.speculate(u, "")
	u.see(h[0], chain.Allowed, 94)
	if may(h[1], h[:1]) {
		t.Error("trusted too soon")
	}
	u.see(h[0], chain.FailedOpen, 1)
	if !may(h[1], h[:1]) {
		t.Error("not trusted")
	}
	for _, e := range []chain.Effect{chain.Undecided, chain.Skipped, chain.Discarded, chain.Shadowed} {
		u.see(h[0], e, 100)
	}
	if !may(h[1], h[:1]) {
		t.Error("what says nothing about a hook counts")
	}
	for _, e := range []chain.Effect{chain.Patched, chain.Denied, chain.FailedClosed, chain.Refused} {
		u.see(h[0], chain.Allowed, 200)
		u.see(h[0], e, 1)
		if !may(h[1], h[:1]) {
			t.Errorf("%s once in 200 calls is too much", e)
		}
		u.see(h[0], e, 1)
		if may(h[1], h[:1]) {
			t.Errorf("%s twice is not too much", e)
		}
	}
}

// TestHooksAreWeighedTogether has hooks each of which would be trusted alone.
func TestHooksAreWeighedTogether(t *testing.T) {
	snapshot := snapshotOf("s0", "s1", "s2", "s3")
	g, h := &gate{capacity: &spare{}}, snapshot.Hooks()
	u := g.of(snapshot)
	for _, each := range h {
		u.see(each, chain.Allowed, 200)
		u.see(each, chain.Patched, 1)
		u.see(each, chain.Allowed, 20) // 1.7 % are left
	}
	may := g.speculate(u, "")
	if !may(h[1], h[:1]) || !may(h[2], h[:2]) || may(h[3], h[:3]) {
		t.Errorf("behind one %t, two %t, three %t", may(h[1], h[:1]), may(h[2], h[:2]), may(h[3], h[:3]))
	}
}

func TestWhatIsKnownOfAHookOutlivesItsSnapshot(t *testing.T) {
	old, replicas := snapshotOf("s0", "s1", "s2"), &spare{}
	g := &gate{capacity: replicas}
	for _, h := range old.Hooks() {
		g.of(old).see(h, chain.Allowed, 200)
	}
	next := snapshotOf("s2", "s0", "s9") // in another order, without one, and with another
	h, u := next.Hooks(), g.of(next)
	may := g.speculate(u, "")
	if !may(h[1], h[:1]) || !may(h[0], h[1:2]) || may(h[0], h[2:]) {
		t.Errorf("behind s2 %t, s0 %t, s9 %t", may(h[1], h[:1]), may(h[0], h[1:2]), may(h[0], h[2:]))
	}
	if g.of(next) != u || len(u.shares) != 3 {
		t.Error("it is made anew each time, or holds hooks that are gone")
	}
	back := snapshotOf("s0", "s1")
	if h := back.Hooks(); g.speculate(g.of(back), "")(h[0], h[1:]) {
		t.Error("a hook that was gone is known")
	}
}

func TestManyReviewsLearnAtTheSameTime(t *testing.T) {
	snapshots := []*match.Snapshot{snapshotOf("s0", "s1"), snapshotOf("s1", "s0")}
	g := &gate{capacity: capacityFunc(func(*match.Hook, string) bool { return true })}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 1000 {
				snapshot := snapshots[(i+j/100)%2]
				u, h := g.of(snapshot), snapshot.Hooks()
				g.speculate(u, fmt.Sprint(i))(h[1], h[:1])
				u.see(h[j%2], chain.Allowed, 1)
			}
		})
	}
	all.Wait()
	for _, h := range snapshots[0].Hooks() {
		if share := g.of(snapshots[0]).of(h); share < 0 || share > 1 {
			t.Errorf("%s has a share of %v", h.ID.Name, share)
		}
	}
}

type capacityFunc func(*match.Hook, string) bool

func (f capacityFunc) Spare(h *match.Hook, _ review.Mode, cluster string) bool { return f(h, cluster) }
