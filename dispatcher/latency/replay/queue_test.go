package replay

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
)

const ms = time.Millisecond

// queue is a queue in which calls wait for a free slot, first come, first served: a count of each millisecond.
func queue(begins, served []int, slots int) []time.Duration {
	waited := make([]time.Duration, len(begins))
	busy := make([]int, slots) // until when
	var line []int
	for now := range 100_000 {
		for i, b := range begins {
			if b == now {
				line = append(line, i)
			}
		}
		for s := range busy {
			if len(line) > 0 && busy[s] <= now {
				first := line[0]
				line = line[1:]
				waited[first] = time.Duration(now-begins[first]) * ms
				busy[s] = now + served[first]
			}
		}
		if len(line) == 0 && now > begins[len(begins)-1] {
			break
		}
	}
	return waited
}

// recorded are calls as a record has them.
func recorded(begins, served []int, waited []time.Duration) (calls []arrival) {
	for i := range begins {
		calls = append(calls, arrival{
			recording: &recording{}, index: i, at: time.UnixMilli(int64(begins[i])), queued: waited[i], served: time.Duration(served[i]) * ms,
		})
	}
	return calls
}

// predictedWaits are the waits of calls with more replicas.
func predictedWaits(calls []arrival, slots Slots, more int) []time.Duration {
	addReplicas(calls, slots, more)
	slices.SortFunc(calls, func(a, b arrival) int { return a.index - b.index })
	var out []time.Duration
	for _, c := range calls {
		out = append(out, c.recording.queued[c.index])
	}
	return out
}

// TestCallsThatAreAllKeptWaitAsInAQueueWithMoreSlots compares with a queue that counts each millisecond.
func TestCallsThatAreAllKeptWaitAsInAQueueWithMoreSlots(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var was, becomes time.Duration
	for range 200 {
		var begins, served []int
		for range 40 {
			begins, served = append(begins, random.IntN(300)), append(served, 1+random.IntN(30))
		}
		slices.Sort(begins)
		slots := Slots{Replicas: 1 + random.IntN(3)}
		slots.Slots = slots.Replicas * (1 + random.IntN(2))
		more := 1 + random.IntN(2)
		now, then := queue(begins, served, slots.Slots), queue(begins, served, slots.Slots+more*slots.Slots/slots.Replicas)
		for i, got := range predictedWaits(recorded(begins, served, now), slots, more) {
			if limit := time.Duration(float64(now[i]) * float64(slots.Slots) / float64(slots.Slots+more*slots.Slots/slots.Replicas)); got > limit {
				t.Fatalf("a call that waited %s is predicted to wait %s, more than its share %s", now[i], got, limit)
			} else if got > then[i] || got < min(then[i], limit)-1 {
				t.Fatalf("call %d of %v (%v) waits %s, predicted %s (it waited %s)", i, begins, served, then[i], got, now[i])
			}
			was, becomes = was+now[i], becomes+got
		}
	}
	if becomes >= was/2 || becomes == 0 {
		t.Errorf("all waited %s, and are predicted to wait %s: little was tested", was, becomes)
	}
}

// TestOfCallsThatAreNotKeptTheLeastIsPredicted keeps every tenth call: the predicted wait lies between the true wait and the recorded wait.
func TestOfCallsThatAreNotKeptTheLeastIsPredicted(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var was, is, predicted time.Duration
	for range 100 {
		var begins, served []int
		for range 100 {
			begins, served = append(begins, random.IntN(600)), append(served, 1+random.IntN(20))
		}
		slices.Sort(begins)
		slots := Slots{Replicas: 1, Slots: 1}
		now, then := queue(begins, served, 1), queue(begins, served, 2)
		all := recorded(begins, served, now)
		var kept []arrival
		var index []int
		for i := range all {
			if i%10 == 0 {
				index = append(index, i)
				all[i].index = len(kept)
				kept = append(kept, all[i])
			}
		}
		for k, got := range predictedWaits(kept, slots, 1) {
			i := index[k]
			if got > now[i]/2 {
				t.Fatalf("a call that waited %s is predicted to wait %s", now[i], got)
			}
			was, is, predicted = was+now[i], is+then[i], predicted+got
		}
	}
	t.Logf("waits of kept calls: recorded %s, with one more slot %s, predicted %s", was, is, predicted)
	if predicted < is {
		t.Error("more is promised than becomes true")
	}
}

func TestWithoutSlotsNothingIsPredicted(t *testing.T) {
	calls := recorded([]int{0}, []int{1}, []time.Duration{5 * ms})
	addReplicas(calls, Slots{}, 1)
	if calls[0].recording.queued != nil {
		t.Error("a webhook over HTTPS has a queue")
	}
}

func TestReviewsStandForThoseThatAreNotKept(t *testing.T) {
	reviews := func(failed bool, took ...time.Duration) (all []*latency.ReviewRecord) {
		for _, d := range took {
			v := &latency.ReviewRecord{Took: d, Outcome: outcomeAllowed}
			if failed {
				v.Outcome = latency.OutcomeFailed
			}
			all = append(all, v)
		}
		return all
	}
	counts := func(failed uint64, took ...time.Duration) (c Counts) {
		c.Failed = failed
		for _, d := range took {
			c.Took.Observe(d)
		}
		return c
	}
	const quick, slow = ms, 900 * ms
	for name, test := range map[string]struct {
		counts Counts
		kept   []*latency.ReviewRecord
		want   []float64
	}{
		"all are kept":                        {counts(0, quick, slow), reviews(false, quick, slow), []float64{1, 1}},
		"quick ones stand for others":         {counts(0, quick, quick, quick, quick, quick, quick, slow), reviews(false, quick, quick, slow), []float64{3, 3, 1}},
		"none that took as long is kept":      {counts(0, quick, 2*quick, 3*quick, slow), reviews(false, quick, slow), []float64{3, 1}},
		"failed ones stand for failed ones":   {counts(4, quick, quick, slow, slow, slow, slow), append(reviews(false, quick), reviews(true, slow, slow)...), []float64{2, 2, 2}},
		"nothing is counted":                  {Counts{}, reviews(false, quick), []float64{1}},
		"nothing is kept":                     {counts(0, quick), nil, []float64{}},
		"failed ones and others took as long": {counts(2, slow, slow, slow), append(reviews(false, slow), reviews(true, slow)...), []float64{1, 2}},
	} {
		got := test.counts.weights(test.kept)
		if !slices.EqualFunc(got, test.want, func(a, b float64) bool { return math.Abs(a-b) < rounding }) {
			t.Errorf("%s: weights %v, want %v", name, got, test.want)
		}
	}
}

func TestWeightedQuantiles(t *testing.T) {
	all := []weighted{{900 * ms, 1}, {ms, 98}, {2 * ms, 1}}
	for q, want := range map[float64]time.Duration{.5: ms, .98: ms, .99: 2 * ms, .995: 900 * ms, 1: 900 * ms, 0: ms} {
		if got := quantile(q, all); got != want {
			t.Errorf("quantile %v is %s, want %s", q, got, want)
		}
	}
	if quantile(.5, nil) != 0 {
		t.Error("a quantile of nothing")
	}
}
