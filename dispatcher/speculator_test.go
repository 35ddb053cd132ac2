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

func (r *changeRates) learnTimes(h *match.Hook, e chain.Effect, times int) {
	for range times {
		r.learnOutcome(chain.Outcome{Call: review.Call{Hook: h}, Effect: e})
	}
}

func TestNobodyIsAskedAheadWhereNobodySaysHowBusyReplicasAre(t *testing.T) {
	s := &speculator{}
	rates := s.ratesOf(snapshotOf("s0"))
	rates.learnTimes(nil, chain.Allowed, 1)
	if rates != nil || s.speculate(rates, "c") != nil {
		t.Error("hooks may be asked ahead")
	}
}

func TestNobodyIsAskedAheadWhereNoRouteAllowsIt(t *testing.T) {
	s, snapshot := &speculator{capacity: &spare{}}, snapshotOf("a", "b")
	rates := s.ratesOf(snapshot)
	rates.learnTimes(snapshot.Hooks()[0], chain.Allowed, 1)
	if s.speculate(rates, "c") != nil || rates.rates != nil {
		t.Error("hooks may be asked ahead")
	}
}

func TestAHookIsAskedAheadIfItsRouteAllowsItAndAReplicaIsIdle(t *testing.T) {
	snapshot, replicas := snapshotOf("s0", "s1", "two"), &spare{}
	s, h := &speculator{capacity: replicas}, snapshot.Hooks()
	rates := s.ratesOf(snapshot)
	may := s.speculate(rates, "east")
	if may(h[1], h[:1]) || len(replicas.asked) != 0 {
		t.Errorf("asked ahead behind a hook of which nothing is known; capacity was asked about %v", replicas.asked)
	}
	rates.learnTimes(h[0], chain.Allowed, 1000)
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

// TestAHookIsTrustedOnceItHasLeftEnoughObjectsAlone tests the edge: the rate of changes of a hook that never changes anything decays by 1/32 with
// each call, and is below one in twenty from the 95th call on.
func TestAHookIsTrustedOnceItHasLeftEnoughObjectsAlone(t *testing.T) {
	snapshot := snapshotOf("s0", "s1")
	s, h := &speculator{capacity: &spare{}}, snapshot.Hooks()
	rates := s.ratesOf(snapshot)
	may := s.speculate(rates, "")
	rates.learnTimes(h[0], chain.Allowed, 94)
	if may(h[1], h[:1]) {
		t.Error("trusted too soon")
	}
	rates.learnTimes(h[0], chain.FailedOpen, 1)
	if !may(h[1], h[:1]) {
		t.Error("not trusted")
	}
	for _, e := range []chain.Effect{chain.Undecided, chain.Skipped, chain.Discarded, chain.Shadowed} {
		rates.learnTimes(h[0], e, 100)
	}
	if !may(h[1], h[:1]) {
		t.Error("what says nothing about a hook counts")
	}
	for _, e := range []chain.Effect{chain.Patched, chain.Denied, chain.FailedClosed, chain.Refused} {
		rates.learnTimes(h[0], chain.Allowed, 200)
		rates.learnTimes(h[0], e, 1)
		if !may(h[1], h[:1]) {
			t.Errorf("%s once in 200 calls is too much", e)
		}
		rates.learnTimes(h[0], e, 1)
		if may(h[1], h[:1]) {
			t.Errorf("%s twice is not too much", e)
		}
	}
}

// TestHooksAreWeighedTogether has hooks each of which would be trusted alone.
func TestHooksAreWeighedTogether(t *testing.T) {
	snapshot := snapshotOf("s0", "s1", "s2", "s3")
	s, h := &speculator{capacity: &spare{}}, snapshot.Hooks()
	rates := s.ratesOf(snapshot)
	for _, each := range h {
		rates.learnTimes(each, chain.Allowed, 200)
		rates.learnTimes(each, chain.Patched, 1)
		rates.learnTimes(each, chain.Allowed, 20) // 1.7 % are left
	}
	may := s.speculate(rates, "")
	if !may(h[1], h[:1]) || !may(h[2], h[:2]) || may(h[3], h[:3]) {
		t.Errorf("behind one %t, two %t, three %t", may(h[1], h[:1]), may(h[2], h[:2]), may(h[3], h[:3]))
	}
}

func TestWhatIsKnownOfAHookOutlivesItsSnapshot(t *testing.T) {
	old, replicas := snapshotOf("s0", "s1", "s2"), &spare{}
	s := &speculator{capacity: replicas}
	for _, h := range old.Hooks() {
		s.ratesOf(old).learnTimes(h, chain.Allowed, 200)
	}
	next := snapshotOf("s2", "s0", "s9") // in another order, without one, and with another
	h, rates := next.Hooks(), s.ratesOf(next)
	may := s.speculate(rates, "")
	if !may(h[1], h[:1]) || !may(h[0], h[1:2]) || may(h[0], h[2:]) {
		t.Errorf("behind s2 %t, s0 %t, s9 %t", may(h[1], h[:1]), may(h[0], h[1:2]), may(h[0], h[2:]))
	}
	if s.ratesOf(next) != rates || len(rates.rates) != 3 {
		t.Error("it is made anew each time, or holds hooks that are gone")
	}
	back := snapshotOf("s0", "s1")
	if h := back.Hooks(); s.speculate(s.ratesOf(back), "")(h[0], h[1:]) {
		t.Error("a hook that was gone is known")
	}
}

func TestManyReviewsLearnAtTheSameTime(t *testing.T) {
	snapshots := []*match.Snapshot{snapshotOf("s0", "s1"), snapshotOf("s1", "s0")}
	s := &speculator{capacity: capacityFunc(func(*match.Hook, string) bool { return true })}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 1000 {
				snapshot := snapshots[(i+j/100)%2]
				rates, h := s.ratesOf(snapshot), snapshot.Hooks()
				s.speculate(rates, fmt.Sprint(i))(h[1], h[:1])
				rates.learnTimes(h[j%2], chain.Allowed, 1)
			}
		})
	}
	all.Wait()
	for _, h := range snapshots[0].Hooks() {
		if rate := s.ratesOf(snapshots[0]).rateOf(h); rate < 0 || rate > 1 {
			t.Errorf("%s has a share of %v", h.ID.Name, rate)
		}
	}
}

type capacityFunc func(*match.Hook, string) bool

func (f capacityFunc) Spare(h *match.Hook, _ review.Mode, cluster string) bool { return f(h, cluster) }
