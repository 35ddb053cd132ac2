package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
)

// Counts are of all reviews of a cluster and stage, kept or not.
type Counts struct {
	// Took counts them by their time, and Failed is how many had no answer by verdicts.
	Took   latency.Histogram
	Failed uint64
}

// weights returns how many of all reviews each kept one stands for. Mostly the slowest and the failed ones are kept. So each that failed stands
// for an equal part of all that failed, and each other one for the reviews that took about as long. Each stands for itself at least.
func (c Counts) weights(kept []*latency.ReviewRecord) []float64 {
	out := make([]float64, len(kept))
	var buckets [latency.Buckets]float64 // reviews with an answer, by their time
	for b, n := range c.Took {
		buckets[b] = float64(n)
	}
	failed := 0
	for _, v := range kept {
		if v.Failed() {
			failed++
		}
	}
	var in [latency.Buckets][]int // kept reviews with an answer
	for i, v := range kept {
		b := latency.BucketOf(whole(v))
		if !v.Failed() {
			in[b] = append(in[b], i)
			continue
		}
		out[i] = float64(c.Failed) / float64(failed)
		buckets[b] -= out[i]
	}
	for b, n := range buckets {
		near := nearest(&in, b)
		for _, i := range near {
			out[i] += max(0, n) / float64(len(near))
		}
	}
	for i := range out {
		out[i] = max(1, out[i])
	}
	return out
}

// nearest returns the content of the bucket nearest to b that is not empty; nil without one.
func nearest(in *[latency.Buckets][]int, b int) []int {
	for d := range latency.Buckets {
		for _, at := range []int{b - d, b + d} {
			if at >= 0 && at < latency.Buckets && len(in[at]) > 0 {
				return in[at]
			}
		}
	}
	return nil
}

// weighted is a time with how many reviews took so long.
type weighted struct {
	took   time.Duration
	weight float64
}

// quantile returns the time that a share q (0 to 1) of all do not exceed; zero without any. It sorts them.
func quantile(q float64, all []weighted) time.Duration {
	slices.SortFunc(all, func(a, b weighted) int { return cmp.Compare(a.took, b.took) })
	var sum, n float64
	for _, w := range all {
		sum += w.weight
	}
	for _, w := range all {
		if n += w.weight; n >= q*sum-rounding {
			return w.took
		}
	}
	return 0
}

// whole is the time of a review from the request to the answer.
func whole(v *latency.ReviewRecord) time.Duration { return v.Edge + v.Took }
