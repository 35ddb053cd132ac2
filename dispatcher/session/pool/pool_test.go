package pool

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/hedge"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// waitingTicket is a ticket of a cluster.
func waitingTicket(cluster string) *ticket {
	batch := &review.CallSet{
		Request: &admissionv1.AdmissionRequest{Cluster: cluster}, Calls: []review.Call{{Hook: &match.Hook{}}},
	}
	return ticketOf(batch)
}

// ticketOf is a ticket of the first call of a call set, whose result is lost.
func ticketOf(b *review.CallSet) *ticket {
	return &ticket{done: func(int, review.Result) {}, request: b.Request, call: &b.Calls[0], body: stream.NewBody(b)}
}

// newPool is the pool of a hook with replicas.
func newPool(waits *atomic.Int64, all ...*Replica) *Pool {
	p := New(waits, time.Now())
	p.Configure(&match.Hook{})
	for _, x := range all {
		x.SetMemberships(map[*Pool]*Member{p: NewMember(x, false)}, time.Now())
		x.Join()
	}
	return p
}

func TestAQueueIsAsLongAsTheRoomThatIsLeft(t *testing.T) {
	var waits atomic.Int64
	p := newPool(&waits)
	fill := func(cluster string) (n int) {
		for ; ; n++ {
			k := waitingTicket(cluster)
			if first, f := p.enqueue(k, time.Now()); f != nil {
				return n
			} else if first != (n == 0) {
				t.Fatalf("call %d of %s is the first: %t", n, cluster, first)
			}
		}
	}
	p.setAbsentFrom(time.Now().Add(time.Hour))
	if n := fill("a"); n != MaxWaiting/2 {
		t.Errorf("one cluster has %d calls, want half of %d", n, MaxWaiting)
	}
	if n := fill("b"); n != MaxWaiting/4 {
		t.Errorf("the next one has %d", n)
	}
	for i := range MaxWaiting {
		if fill(fmt.Sprint(i)) == 0 {
			break
		}
	}
	if n := p.waiting.Len(); n > MaxWaiting || n < MaxWaiting-1 || waits.Load() != int64(n) {
		t.Errorf("%d calls wait, at most %d may; %d are counted", n, MaxWaiting, waits.Load())
	}
	p.Abandon()
	if n := waits.Load(); n != 0 {
		t.Errorf("%d calls wait for a hook that is gone", n)
	}
}

func TestACallThatComesToAQueueAfterItsHookWasRemovedFailsAtOnce(t *testing.T) {
	var waits atomic.Int64
	p := newPool(&waits, replicaWith("one", 1, 0, time.Now()))
	p.Abandon()
	k, got := waitingTicket("east"), review.Result{}
	k.done = func(_ int, r review.Result) { got = r }
	waitForSlot(p, k)
	if got.Failure == nil || got.Failure.Kind != review.FailureUnavailable {
		t.Errorf("got %+v", got)
	}
}

func TestATicketIsForgottenByTheQueueThatItIsInOnly(t *testing.T) {
	var waits atomic.Int64
	before, now := newPool(&waits), newPool(&waits)
	k := waitingTicket("east")
	if first, f := now.enqueue(k, time.Now()); f != nil || !first {
		t.Fatal(first, f)
	}
	before.dequeue(k)
	if now.waiting.Len() != 1 {
		t.Error("forgotten by a queue that it was in before")
	}
}

// TestATicketThatEndsOnItsWayToASlotHasNone has calls be cancelled between the choice of a replica and the slot there: a cancel
// sees neither.
func TestATicketThatEndsOnItsWayToASlotHasNone(t *testing.T) {
	var waits atomic.Int64
	x := replicaWith("one", 2, 1, time.Now())
	p := newPool(&waits, x)
	ended := func() *ticket {
		k := waitingTicket("east")
		k.pool = p
		k.ended.Store(true)
		return k
	}
	place([]*ticket{ended()}, time.Now())
	if n := x.UsedSlots(); n != 2 {
		t.Errorf("%d slots are taken, want 2", n)
	}
	fill(x, "east", 1) // no slot is left
	place([]*ticket{ended()}, time.Now())
	if n := waits.Load(); n != 0 {
		t.Errorf("%d calls wait", n)
	}
}

func TestTwoSessionsOfOneInstanceAreOneReplicaForARetry(t *testing.T) {
	k := waitingTicket("east")
	k.attempts = 1
	k.failedOn(&replicaWith("one", 0, 1, time.Now()).Session)
	if !k.tried(&replicaWith("one", 0, 1, time.Now()).Session) || k.tried(&replicaWith("two", 0, 1, time.Now()).Session) {
		t.Error("a new session of the same process is not another replica")
	}
}

func TestSpareLooksAtFewReplicasOnly(t *testing.T) {
	var waits atomic.Int64
	var all []*Replica
	for i := range 2 * SpareLooks {
		all = append(all, replicaWith(fmt.Sprint(i), 0, 1, time.Now()))
	}
	p, looks := newPool(&waits, all...), 0
	refuse := func(*Member) bool { looks++; return true }
	if p.spare("east", time.Now(), refuse) != nil || looks != SpareLooks {
		t.Errorf("looked at %d sessions, want %d", looks, SpareLooks)
	}
}

// BenchmarkPick picks a replica of 10,000: idle ones; replicas of which one alone has room; and replicas that
// two clusters share, where the other cluster holds half.
func BenchmarkPick(b *testing.B) {
	for _, kind := range []string{"idle", "busy", "shared"} {
		b.Run(kind, func(b *testing.B) {
			var waits atomic.Int64
			all := make([]*Replica, 10_000)
			for i := range all {
				all[i] = replicaWith(fmt.Sprint(i), 0, stream.DefaultOutstanding, time.Now())
				switch {
				case kind == "busy" && i > 0:
					fill(all[i], "east", stream.DefaultOutstanding)
				case kind == "shared":
					all[i].SetShared(true)
					fill(all[i], "west", stream.DefaultOutstanding/2)
					fill(all[i], "east", stream.DefaultOutstanding/4)
				}
			}
			p, k, now := newPool(&waits, all...), waitingTicket("east"), time.Now()
			b.ReportAllocs()
			for b.Loop() {
				if p.pick(k, now) == nil {
					b.Fatal("no replica is picked")
				}
			}
		})
	}
}

func TestOnlyCallsThatDecideAndHaveNoSideEffectsAreMadeTwice(t *testing.T) {
	yes := true
	for _, test := range []struct {
		name    string
		effects admissionregistrationv1.SideEffectClass
		dry     *bool
		mode    review.Mode
		want    bool
	}{
		{"none", admissionregistrationv1.SideEffectClassNone, nil, review.Decide, true},
		{"none, speculative", admissionregistrationv1.SideEffectClassNone, nil, review.Speculative, false},
		{"none, in shadow", admissionregistrationv1.SideEffectClassNone, nil, review.Shadow, false},
		{"none in dry runs, in a dry run", admissionregistrationv1.SideEffectClassNoneOnDryRun, &yes, review.Decide, true},
		{"none in dry runs, in no dry run", admissionregistrationv1.SideEffectClassNoneOnDryRun, nil, review.Decide, false},
		{"some", admissionregistrationv1.SideEffectClassSome, &yes, review.Decide, false},
		{"unknown", admissionregistrationv1.SideEffectClassUnknown, &yes, review.Decide, false},
		{"not said", "", &yes, review.Decide, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &Pool{}
			hook := &match.Hook{SideEffects: test.effects, Route: match.Route{Hedge: match.Hedge{Enabled: true, After: 1}}}
			p.Configure(hook)
			k := &ticket{pool: p, request: &admissionv1.AdmissionRequest{DryRun: test.dry}, call: &review.Call{Hook: hook, Mode: test.mode}}
			if got := hedgeCall(nil, k, hedge.NewMetrics()) != nil; got != test.want {
				t.Errorf("may be made twice: %t", got)
			}
		})
	}
}
