package pool

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

func TestMembersAreThoseThatCameAndDidNotGo(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	var m members
	there, all := map[*Member]bool{}, []*Member(nil)
	for step := range 5000 {
		if grow := step/500%2 == 0; len(all) == 0 || random.IntN(10) < 3 == !grow {
			x := &Member{}
			m.insert(x)
			there[x], all = true, append(all, x)
		} else {
			i := random.IntN(len(all))
			m.delete(all[i])
			delete(there, all[i])
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
		}
		seen := map[*Member]bool{}
		for i := range m.len() {
			x := m.at(i)
			if !there[x] || seen[x] || x.place != i {
				t.Fatalf("step %d: place %d of %d is wrong", step, i, m.len())
			}
			seen[x] = true
		}
		if len(seen) != len(there) {
			t.Fatalf("step %d: %d members, want %d", step, len(seen), len(there))
		}
		if slots := len(*m.slots.Load()); slots > max(4, 4*len(there)) {
			t.Fatalf("step %d: %d slots for %d members", step, slots, len(there))
		}
	}
	if m.at(1<<20) != nil {
		t.Error("somebody is where nobody can be")
	}
}

// TestMembersAreReadWhileTheyChange is for the race detector, and for readers that must find who is there all the time.
func TestMembersAreReadWhileTheyChange(t *testing.T) {
	var m members
	stays := &Member{}
	m.insert(stays)
	var over atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !over.Load() {
				if m.at(0) != stays {
					t.Error("who stays has gone")
					return
				}
				for i := range m.len() {
					m.at(i)
				}
			}
		})
	}
	for range 200 {
		var others []*Member
		for range 20 {
			others = append(others, &Member{})
			m.insert(others[len(others)-1])
		}
		for _, x := range others {
			m.delete(x)
		}
	}
	over.Store(true)
	readers.Wait()
}

func TestThePaceOfAReplica(t *testing.T) {
	var p pace
	at := time.Now().Add
	want := func(now time.Time, d time.Duration) {
		t.Helper()
		if got := time.Duration(p.estimate(now)); got != d {
			t.Errorf("%s, want %s", got, d)
		}
	}
	want(at(0), 0)
	p.record(8*time.Millisecond, at(0))
	want(at(0), 8*time.Millisecond)
	p.record(16*time.Millisecond, at(0))
	want(at(0), 10*time.Millisecond)
	p.recordOvertaken(2*time.Millisecond, at(0)) // that is known
	want(at(0), 10*time.Millisecond)
	p.recordOvertaken(50*time.Millisecond/overtakenFactor, at(0))
	want(at(0), 20*time.Millisecond)
	want(at(PaceHalfLife-1), 20*time.Millisecond)
	want(at(PaceHalfLife), 10*time.Millisecond)
	want(at(3*PaceHalfLife), 2500*time.Microsecond)
	want(at(1000*PaceHalfLife), 0) // nothing is known any more
	want(at(-time.Hour), 20*time.Millisecond)
	p.record(-1, at(1000*PaceHalfLife))
	want(at(1000*PaceHalfLife), 1)
}

func TestAReplicaThatRefusesIsPassedOverForAWhile(t *testing.T) {
	var r refusals
	now := time.Now()
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 20, 20} {
		pause *= RefusalPause
		r.refused(now)
		if !r.pauses(now.Add(pause-1)) || r.pauses(now.Add(pause)) {
			t.Errorf("a pause other than %s", pause)
		}
		now = now.Add(pause)
	}
	r.started()
	if r.pauses(now) {
		t.Error("it pauses although it has started a call")
	}
	r.refused(now)
	if r.pauses(now.Add(RefusalPause)) {
		t.Error("what it refused before it started a call still counts")
	}
	for range 1000 {
		r.refused(now)
	}
	if !r.pauses(now.Add(MaxRefusalPause-1)) || r.pauses(now.Add(MaxRefusalPause)) {
		t.Errorf("a pause other than %s", MaxRefusalPause)
	}
	if r.pauses(now.Add(-time.Hour)) {
		t.Error("it pauses for an hour, since the clock was set back")
	}
}

// deaf is a sink that takes nothing.
type deaf struct{ stream.Sink }

func (deaf) SlotsFreed() {}

// replicaWith is a replica with so many calls and so many free slots, at least one call or slot, whose host spoke last at a time.
func replicaWith(instance string, load, room int, heard time.Time) *Replica {
	if load+room == 0 {
		load = 1
	}
	s := &Replica{}
	hello := &hostv1.Hello{Instance: instance, MaxOutstanding: uint32(load + room)}
	s.InitReplica(hello, identity.Named("host"), NewDigests(), nil, stream.Options{Sink: deaf{}})
	fill(s, "east", load)
	s.DiscountStall(heard, time.Until(heard)+time.Second)
	return s
}

// fill submits calls of a cluster to a replica.
func fill(s *Replica, cluster string, calls int) {
	for range calls {
		stream.Submit(&s.Session, []*ticket{waitingTicket(cluster)})
	}
}

func TestWhoIsPicked(t *testing.T) {
	type replica struct {
		instance   string
		load, room int
		pace       time.Duration
		silent     bool
		pauses     bool
	}
	healthy := func(name string, load int) replica { return replica{instance: name, load: load, room: 1} }
	for _, test := range []struct {
		name     string
		replicas []replica
		want     string
	}{
		{"nobody", nil, ""},
		{"the less loaded of two", []replica{healthy("a", 3), healthy("b", 2)}, "b"},
		{"whoever has room", []replica{{instance: "a"}, healthy("b", 9)}, "b"},
		{"nobody has room", []replica{{instance: "a"}, {instance: "b"}}, ""},
		{"who has not had the call", []replica{healthy("had", 0), healthy("b", 9)}, "b"},
		{"who has had it rather than nobody", []replica{healthy("had", 0), {instance: "b"}}, "had"},
		{"who is not silent", []replica{{instance: "a", room: 1, silent: true}, healthy("b", 9)}, "b"},
		{"who is silent is not picked while most speak", []replica{{instance: "a", room: 1, silent: true}, {instance: "b"}}, ""},
		{"who is silent is picked when most are", []replica{{instance: "a", room: 1, silent: true}}, "a"},
		{"who does not refuse", []replica{{instance: "a", room: 1, pauses: true}, healthy("b", 9)}, "b"},
		{"who refuses rather than nobody", []replica{{instance: "a", room: 1, pauses: true}, {instance: "b"}}, "a"},
		{"who refuses rather than who has had it", []replica{{instance: "a", room: 1, pauses: true}, healthy("had", 0)}, "a"},
		{"who is much quicker, though more loaded", []replica{
			{instance: "a", room: 1, load: 0, pace: 50 * time.Millisecond}, {instance: "b", room: 1, load: 8, pace: 5 * time.Millisecond},
		}, "b"},
		{"not at any load", []replica{
			{instance: "a", room: 1, load: 0, pace: 50 * time.Millisecond}, {instance: "b", room: 1, load: 11, pace: 5 * time.Millisecond},
		}, "a"},
		{"a little quicker does not count", []replica{
			{instance: "a", room: 1, load: 1, pace: 9 * time.Millisecond}, {instance: "b", room: 1, load: 2, pace: 5 * time.Millisecond},
		}, "a"},
		{"of many, whoever is left", []replica{
			{instance: "a"}, {instance: "b"}, {instance: "c"}, healthy("d", 70), {instance: "e"},
		}, "d"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m members
			now := time.Now().Add(time.Hour)
			for _, r := range test.replicas {
				heard := now
				if r.silent {
					heard = now.Add(-2 * stream.SuspectAfter)
				}
				x := &Member{replica: replicaWith(r.instance, r.load, r.room, heard)}
				if r.pace > 0 {
					x.pace.record(r.pace, now)
				}
				if r.pauses {
					x.refuses.refused(now)
				}
				m.insert(x)
			}
			k := waitingTicket("east")
			k.attempts, k.had[0] = 1, "had"
			var got string
			if x := m.pick(k, now, rand.IntN); x != nil {
				got = x.replica.Instance()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestASlowReplicaIsSentLess counts the calls of a replica that takes ten times as long as two others. Callers make one call
// after the other.
func TestASlowReplicaIsSentLess(t *testing.T) {
	const calls = 30_000
	for _, test := range []struct {
		name    string
		callers int
		learns  bool // the times of calls
		atMost  float64
	}{
		{"by load alone, one caller", 1, false, 0.36},
		{"by load alone, thirty callers", 30, false, 0.08},
		{"by pace, one caller", 1, true, 0.005},
		{"by pace, thirty callers", 30, true, 0.005},
		{"by pace, three hundred callers", 300, true, 0.02},
	} {
		t.Run(test.name, func(t *testing.T) {
			random, now := rand.New(rand.NewPCG(9, 10)), time.Now()
			var m members
			takes, got := map[*Member]time.Duration{}, map[*Member]int{}
			var slow *Member
			for i := range 3 {
				x := &Member{replica: replicaWith(string('a'+rune(i)), 0, 1<<15, now.Add(time.Hour))}
				takes[x] = 5 * time.Millisecond
				if i == 0 {
					slow, takes[x] = x, 50*time.Millisecond
				}
				m.insert(x)
			}
			type call struct {
				at  *Member
				k   *ticket
				end time.Time
			}
			busy := make([]call, test.callers)
			for range calls {
				next := &busy[0] // the caller that is free first
				for i := range busy {
					if busy[i].end.Before(next.end) {
						next = &busy[i]
					}
				}
				if next.at != nil {
					now = next.end
					next.k.cancel()
					if test.learns {
						next.at.pace.record(takes[next.at], now)
					}
				}
				k := waitingTicket("")
				x := m.pick(k, now, random.IntN)
				stream.Submit(&x.replica.Session, []*ticket{k})
				got[x]++
				*next = call{x, k, now.Add(takes[x] + time.Duration(random.Int64N(int64(time.Millisecond))))}
			}
			share := float64(got[slow]) / calls
			t.Logf("%.2f %% of the calls went to the slow replica", 100*share)
			if share > test.atMost {
				t.Errorf("%.2f %% of the calls went to the slow replica, at most %.2f %% should", 100*share, 100*test.atMost)
			}
		})
	}
}

func TestWhatAMemberLearns(t *testing.T) {
	for _, test := range []struct {
		name          string
		result        review.Result
		paced, pauses bool
	}{
		{"a verdict", review.Result{Timing: review.Timing{Host: time.Second}}, true, false},
		{"a refusal", review.Result{Failure: review.NotStarted(review.FailureRefused, "busy")}, false, true},
		{"a failure of the handler", review.Fail(review.FailureHandler, "no database"), false, false},
		{"it was never handed over", review.Result{Failure: review.NotStarted(review.FailureLost, "gone")}, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := &Member{}
			x.refuses.refused(time.Now())
			x.learn(test.result, time.Now())
			if got := x.pace.estimate(time.Now()) > 0; got != test.paced {
				t.Errorf("knows how long a call takes: %t", got)
			}
			if got := x.refuses.pauses(time.Now()); got != test.pauses {
				t.Errorf("is passed over: %t", got)
			}
		})
	}
}
