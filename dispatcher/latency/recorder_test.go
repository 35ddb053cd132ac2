package latency

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func hookNamed(name string) match.HookID {
	return match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Configuration: "c", Name: name}
}

// one is a review of one call that took so long.
func one(cluster, uid, hook string, took time.Duration) *ReviewRecord {
	r := &ReviewRecord{
		UID: uid, Cluster: cluster, Stage: admissionv1.Stage_STAGE_VALIDATE, Outcome: "allowed", Begun: start, Took: took,
		Calls: []CallRecord{{Hook: hookNamed(hook), Ended: took, Outcome: "allowed", Instance: "i", Host: took / 2, Streamed: true}},
	}
	r.AttributeWaiting()
	return r
}

func uids(all []*ReviewRecord) (ids []string) {
	for _, r := range all {
		ids = append(ids, r.UID)
	}
	return ids
}

// sum adds up the series of the hook h.
func sum(all []Series, cluster string) (calls, failed uint32) {
	for i := range all {
		if s := &all[i]; s.Cluster == cluster && s.Hook.Name == "h" {
			calls, failed = calls+s.Calls, failed+s.Failed
		}
	}
	return calls, failed
}

func TestTheSlowestAndTheFailedOfAMinuteAreKept(t *testing.T) {
	r := NewRecorder(0)
	for i := range 1000 {
		r.Add(start, one("a", fmt.Sprint(i), "h", time.Millisecond))
	}
	r.Add(start, one("a", "slow", "h", time.Second))
	failed := one("a", "failed", "h", time.Microsecond)
	failed.Outcome, failed.Calls[0].Outcome = OutcomeFailed, OutcomeFailed
	r.Add(start, failed)
	for i := range 1000 {
		r.Add(start, one("a", fmt.Sprint("later", i), "h", time.Millisecond))
	}
	all := r.Reviews(Query{}, 1000)
	if all[0].UID != "slow" || !slices.Contains(uids(all), "failed") {
		t.Errorf("kept: %v", uids(all))
	}
	if most := shards * (samples + 4*2*20); len(all) > most {
		t.Errorf("%d reviews are kept, want at most %d", len(all), most)
	}
	if calls, failed := sum(r.Series(Query{}), "a"); calls != 2002 || failed != 1 {
		t.Errorf("%d calls, %d failed", calls, failed)
	}
	if got := r.Reviews(Query{Hook: "other"}, 10); len(got) != 0 {
		t.Errorf("reviews of another hook: %v", uids(got))
	}
	if got := r.Reviews(Query{Hook: "h"}, 1); len(got) != 1 || got[0].UID != "slow" {
		t.Errorf("the slowest of the hook: %v", uids(got))
	}
	if got := r.Find("slow"); len(got) != 1 || got[0].Calls[0].Alone != time.Second {
		t.Errorf("found %+v", got)
	}
	if got := r.Find("unknown"); len(got) != 0 {
		t.Errorf("found %v", uids(got))
	}
}

func TestRecordsEndAfterTheRetention(t *testing.T) {
	r := NewRecorder(0)
	r.Add(start, one("a", "u", "h", time.Second))
	r.Add(start.Add(Retention), one("a", "u", "h", time.Second))
	if calls, _ := sum(r.Series(Query{}), "a"); calls != 2 {
		t.Errorf("%d calls at the end of the retention", calls)
	}
	if calls, _ := sum(r.Series(Query{Since: start.Add(time.Minute)}), "a"); calls != 1 {
		t.Errorf("%d calls since the next minute", calls)
	}
	if calls, _ := sum(r.Series(Query{Until: start.Add(time.Minute)}), "a"); calls != 1 {
		t.Errorf("%d calls until then", calls)
	}
	r.Add(start.Add(Retention+time.Minute), one("a", "u", "h", time.Second))
	if calls, _ := sum(r.Series(Query{}), "a"); calls != 2 {
		t.Errorf("%d calls past the retention", calls)
	}
	r.Add(start, one("a", "u", "h", time.Second)) // the clock went back
	if calls, _ := sum(r.Series(Query{}), "a"); calls != 3 {
		t.Errorf("%d calls after the clock went back", calls)
	}
	r.Keep([]string{"b"})
	if left := r.Series(Query{}); len(left) != 0 || r.log.Bytes() != 0 {
		t.Errorf("%d series and %d bytes of a cluster that has gone", len(left), r.log.Bytes())
	}
}

// TestAFloodOfOneClusterShortensItsOwnPast has one cluster fill the memory with ever new hooks and slower reviews.
func TestAFloodOfOneClusterShortensItsOwnPast(t *testing.T) {
	const most = 1 << 20
	r := NewRecorder(most)
	r.Add(start, one("quiet", "q", "h", time.Millisecond))
	for i := range 20000 {
		r.Add(start.Add(time.Duration(i)*100*time.Millisecond), one("loud", fmt.Sprint(i), fmt.Sprint("h", i%2000), time.Duration(i)))
		if n := r.log.Bytes(); n > most {
			t.Fatalf("%d bytes after %d reviews", n, i)
		}
	}
	if calls, _ := sum(r.Series(Query{Cluster: "quiet"}), "quiet"); calls != 1 {
		t.Error("the quiet cluster has lost its records")
	}
	if len(r.Series(Query{Cluster: "loud"})) == 0 {
		t.Error("the loud cluster has no records at all")
	}
}

func TestHooksAndInstancesOfAMinuteAreBounded(t *testing.T) {
	r := NewRecorder(1 << 40)
	for i := range MaxHooks * shards * 3 {
		r.Add(start, one("a", fmt.Sprint(i), fmt.Sprint("h", i), time.Millisecond))
	}
	if n := len(r.Series(Query{})); n > MaxHooks*shards {
		t.Errorf("%d series", n)
	}
	r = NewRecorder(0)
	for i := range (MaxInstances + 3) * 50 {
		v := one("a", fmt.Sprint(i), "h", time.Millisecond)
		v.Calls[0].Instance = fmt.Sprint("i", i%(MaxInstances+3))
		r.Add(start, v)
	}
	var calls uint32
	for _, s := range r.Series(Query{Hook: "h"}) {
		if len(s.Instances) > MaxInstances+1 {
			t.Errorf("%d instances", len(s.Instances))
		}
		for _, i := range s.Instances {
			calls += i.Calls
		}
	}
	if calls != (MaxInstances+3)*50 {
		t.Errorf("%d calls by instances", calls)
	}
}

func TestCallsAboutLargeObjectsAndLateCallsAreCountedApart(t *testing.T) {
	r := NewRecorder(0)
	for i, size := range []int{LargeObject - 1, LargeObject, 2 * LargeObject} {
		v := one("a", "same shard", "h", time.Second)
		v.Size, v.Own = size, time.Millisecond
		v.Calls[0].HostQueued, v.Calls[0].Wire = 2*time.Millisecond, LateWire+time.Duration(i-1)
		r.Add(start.Add(time.Duration(i)*time.Minute/Slots), v)
	}
	over := one("a", "same shard", "h", time.Second)
	over.Calls[0].Streamed, over.Calls[0].Wire = false, time.Second // a webhook's own time
	r.Add(start.Add(time.Minute-1), over)
	for _, s := range r.Series(Query{}) {
		if s.Hook.Name == "" {
			if s.Host != 3*time.Millisecond {
				t.Errorf("own time %v, want 3ms", s.Host)
			}
			continue
		}
		i := s.Instances[0]
		if s.Large != 2 || s.LargeTook != 2*time.Second || s.HostQueued != 6*time.Millisecond {
			t.Errorf("%d calls about large objects took %v, calls waited %v for a handler", s.Large, s.LargeTook, s.HostQueued)
		}
		if i.Late != 2 || i.LateIn != 0b110 || i.Active != 0b111|1<<63 || i.Wire != 3*LateWire+time.Second || i.LateWire != 2*LateWire+1 {
			t.Errorf("%+v", i)
		}
	}
}

func TestThePhasesOfCallsWithoutAVerdictAreCountedApart(t *testing.T) {
	r := NewRecorder(0)
	for _, outcome := range []string{"allowed", OutcomeFailed, OutcomeFailedOpen, OutcomeCancelled} {
		v := one("a", "same shard", "h", 10*time.Second)
		v.Calls[0].Queued, v.Calls[0].Wire, v.Calls[0].Host, v.Calls[0].Outcome = time.Second, 2*time.Second, 3*time.Second, outcome
		r.Add(start, v)
	}
	for _, s := range r.Series(Query{}) {
		got, want := [3]time.Duration{s.FailedQueued, s.FailedWire, s.FailedHost}, [3]time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second}
		if s.Hook.Name == "" {
			want = [3]time.Duration{}
		}
		if got != want {
			t.Errorf("hook %q: failed for %v, want %v", s.Hook.Name, got, want)
		}
	}
}

func TestTheTimeInWhichTheDispatcherDidNotRunIsCountedByMinute(t *testing.T) {
	r := NewRecorder(0)
	r.Add(start, one("a", "u", "h", time.Second))
	for _, since := range []time.Duration{25 * time.Millisecond, MinStall - 1, MinStall, time.Second} {
		r.Beat(start.Add(time.Second), since)
	}
	r.Beat(start.Add(time.Minute), time.Hour)
	for _, s := range r.Series(Query{}) {
		observed, stalled := 25*time.Millisecond+2*MinStall-1+time.Second, MinStall+time.Second
		if s.Hook.Name != "" {
			observed, stalled = 0, 0
		}
		if s.Observed != observed || s.Stalled != stalled {
			t.Errorf("hook %q: stalled for %v of %v", s.Hook.Name, s.Stalled, s.Observed)
		}
	}
	r.Beat(start.Add(Retention+2*time.Minute), time.Second) // in the place of the first minute
	if observed, stalled := r.pulse.of(start); observed != 0 || stalled != 0 {
		t.Errorf("a minute that is over has %v of %v", stalled, observed)
	}
}

func TestWhatIsKeptIsNotWrittenAgain(t *testing.T) {
	r, v := NewRecorder(0), one("a", "first", "h", time.Second)
	r.Add(start, v)
	v.UID, v.Calls[0].Ended = "second", 0
	if got := r.Find("first"); len(got) != 1 || got[0].Calls[0].Ended != time.Second {
		t.Errorf("found %+v", got)
	}
}

func TestReviewsAreRecordedConcurrently(t *testing.T) {
	r := NewRecorder(1 << 20)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 500 {
				now := start.Add(time.Duration(i) * time.Second)
				r.Add(now, one(fmt.Sprint("c", i%3), fmt.Sprint(w, i), fmt.Sprint("h", i%50), time.Duration(i)))
				if i%50 == 0 {
					r.Series(Query{})
					r.Reviews(Query{}, 10)
					r.Find("1 7")
					r.Keep([]string{"c0", "c1"})
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkAdd(b *testing.B) {
	r := NewRecorder(0)
	v := one("a", "u", "h0", time.Millisecond)
	for i := range 7 {
		v.Calls = append(v.Calls, v.Calls[0])
		v.Calls[i+1].Hook = hookNamed(fmt.Sprint("h", i+1))
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Add(start.Add(31*time.Second), v)
	}
}

func TestReviewsAreReadInPages(t *testing.T) {
	r := NewRecorder(0)
	for i := range 3 * samples {
		r.Add(start.Add(time.Duration(i)*time.Minute), one("a", fmt.Sprint(i), "h", time.Duration(i%3)*time.Millisecond))
	}
	all := uids(r.Reviews(Query{}, 100))
	var paged []string
	for q := (Query{}); ; {
		page := r.Reviews(q, 5)
		if len(page) == 0 {
			break
		}
		paged = append(paged, uids(page)...)
		q.Behind = page[len(page)-1].Place()
	}
	if len(all) != 3*samples || !slices.Equal(paged, all) {
		t.Errorf("in pages %v, at once %v", paged, all)
	}
}
