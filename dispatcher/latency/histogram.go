package latency

import (
	"math"
	"math/bits"
	"time"
)

const (
	// Buckets is the number of buckets of a Histogram.
	Buckets = 88
	// shortest is the upper bound of the first bucket, 16 us, as a power of two in nanoseconds.
	shortest = 14
	// steps is the number of buckets between a bound and its double, as a power of two. They are of equal width: a quantile is at most 25 %
	// more than the duration that it stands for.
	steps = 2
)

// Histogram counts durations in buckets. The first ends at 16.384 us; from there on four equal steps lead to the double. The last bucket takes
// all that is longer than 52 s.
type Histogram [Buckets]uint32

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) { h[BucketOf(d)]++ }

// BucketOf is the index of the bucket that counts a duration.
func BucketOf(d time.Duration) int {
	if d <= 1<<shortest {
		return 0
	}
	below := uint64(d - 1) // bounds belong to the bucket that they end
	exponent := bits.Len64(below) - 1
	step := below >> (exponent - steps) & (1<<steps - 1)
	return min(Buckets-1, (exponent-shortest)<<steps+int(step)+1)
}

// Merge adds the counts of another histogram, given as its buckets; those past the last bucket are ignored.
func (h *Histogram) Merge(buckets []uint32) {
	for i, n := range buckets[:min(len(buckets), Buckets)] {
		h[i] += n
	}
}

// Count is the number of durations.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h {
		n += uint64(c)
	}
	return n
}

// Above returns the number of durations in the buckets above the bucket of d.
func (h *Histogram) Above(d time.Duration) (n uint64) {
	for _, c := range h[BucketOf(d)+1:] {
		n += uint64(c)
	}
	return n
}

// Quantile returns a duration that a share q (0 to 1) of all do not exceed, as the upper bound of its bucket; zero without any.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.Count())))
	var n uint64
	for i, c := range h {
		if n += uint64(c); n >= rank && n > 0 {
			return upperBound(i)
		}
	}
	return 0
}

func upperBound(i int) time.Duration {
	if i == 0 {
		return 1 << shortest
	}
	doublings, step := (i-1)>>steps, (i-1)&(1<<steps-1)
	return time.Duration(1<<steps+step+1) << (shortest + doublings - steps)
}
