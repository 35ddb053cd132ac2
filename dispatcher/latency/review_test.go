package latency

import (
	"math/rand/v2"
	"testing"
	"time"
)

// spans makes a review of calls that begin and end at these milliseconds.
func spans(of ...[2]int) *ReviewRecord {
	r := &ReviewRecord{}
	for _, s := range of {
		r.Calls = append(r.Calls, CallRecord{Begun: time.Duration(s[0]) * time.Millisecond, Ended: time.Duration(s[1]) * time.Millisecond})
	}
	return r
}

func TestTimeBelongsToTheCallThatIsOutstandingAlone(t *testing.T) {
	for name, test := range map[string]struct {
		calls [][2]int
		alone []int
	}{
		"one":                            {[][2]int{{0, 5}}, []int{5}},
		"in series":                      {[][2]int{{0, 5}, {5, 7}, {8, 9}}, []int{5, 2, 1}},
		"at the same time":               {[][2]int{{0, 5}, {0, 9}, {0, 3}}, []int{0, 4, 0}},
		"at the same time, equally long": {[][2]int{{0, 5}, {0, 5}}, []int{0, 0}},
		"one within another":             {[][2]int{{0, 10}, {2, 4}}, []int{8, 0}},
		"two within another":             {[][2]int{{0, 10}, {2, 4}, {6, 7}}, []int{7, 0, 0}},
		"overlapping":                    {[][2]int{{0, 6}, {4, 10}}, []int{4, 4}},
		"two, then one":                  {[][2]int{{0, 2}, {0, 3}, {5, 6}}, []int{0, 1, 1}},
	} {
		r := spans(test.calls...)
		r.AttributeWaiting()
		for i, want := range test.alone {
			if got := r.Calls[i].Alone; got != time.Duration(want)*time.Millisecond {
				t.Errorf("%s: call %d alone for %v, want %d ms", name, i, got, want)
			}
		}
	}
}

// TestAttributionIsThatOfEveryMoment compares with a count of every millisecond.
func TestAttributionIsThatOfEveryMoment(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var calls [][2]int
		for range 1 + random.IntN(6) {
			begun := random.IntN(12)
			calls = append(calls, [2]int{begun, begun + random.IntN(8)})
		}
		r := spans(calls...)
		r.Took = 20 * time.Millisecond
		r.AttributeWaiting()
		want, own := make([]time.Duration, len(r.Calls)), time.Duration(0)
		for ms := range 20 {
			at, out := time.Duration(ms)*time.Millisecond, []int{}
			for i, c := range r.Calls {
				if c.Begun <= at && at < c.Ended {
					out = append(out, i)
				}
			}
			switch len(out) {
			case 0:
				own += time.Millisecond
			case 1:
				want[out[0]] += time.Millisecond
			}
		}
		if r.Own != own {
			t.Fatalf("%v: %v belong to no call, want %v", calls, r.Own, own)
		}
		for i := range want {
			if r.Calls[i].Alone != want[i] {
				t.Fatalf("%v: call %d alone for %v, want %v", calls, i, r.Calls[i].Alone, want[i])
			}
		}
	}
}

func TestTimeInWhichAReviewIsHeldIsNotThatOfTheDispatcher(t *testing.T) {
	r := spans([2]int{5, 9})
	r.Took, r.Held = 10*time.Millisecond, 4*time.Millisecond
	if r.AttributeWaiting(); r.Own != 2*time.Millisecond {
		t.Errorf("own time %v, want 2ms", r.Own)
	}
	r.Held = time.Second // as much as clocks say
	if r.AttributeWaiting(); r.Own != 0 {
		t.Errorf("own time %v, want none", r.Own)
	}
}

func TestQuantilesOfAHistogram(t *testing.T) {
	var h Histogram
	if h.Quantile(.5) != 0 {
		t.Error("a quantile of nothing")
	}
	for i := 1; i <= 1000; i++ {
		h.Observe(time.Duration(i) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{.5: 500 * time.Millisecond, .99: 990 * time.Millisecond, 1: time.Second, 0: time.Millisecond} {
		if got := h.Quantile(q); got < want || float64(got) > 1.25*float64(want) {
			t.Errorf("quantile %v is %v, want %v to 25 %% more", q, got, want)
		}
	}
	for d, want := range map[time.Duration]int{0: 0, 1 << 14: 0, 1<<14 + 1: 1, 5 << 12: 1, 5<<12 + 1: 2, 1 << 15: 4, 1<<15 + 1: 5, time.Hour: Buckets - 1} {
		if got := BucketOf(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
	for i := range Buckets {
		if end := upperBound(i); BucketOf(end) != i || i < Buckets-1 && BucketOf(end+1) != i+1 {
			t.Errorf("bucket %d does not end at %v", i, end)
		}
	}
	other := h
	h.Merge(append(other[:], 7, 7))
	if h.Count() != 2000 {
		t.Errorf("%d after a merge", h.Count())
	}
}
