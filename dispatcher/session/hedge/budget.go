package hedge

import "sync/atomic"

// budget holds the second attempts of a hook to a percentage of its calls: each call earns a part of an attempt, up to
// [Burst] attempts. It starts empty, so that the percentage holds from the first call on. It depends on calls and not on
// time. All methods may be called concurrently.
type budget struct {
	hundredths atomic.Int64 // of an attempt
}

// cost is one attempt, in hundredths.
const cost = 100

// earn adds one call, of which percent of an attempt may be spent.
func (b *budget) earn(percent int) {
	b.add(int64(min(max(0, percent), cost)))
}

// refund gives back the cost of an attempt that was not sent.
func (b *budget) refund() { b.add(cost) }

func (b *budget) add(n int64) {
	for {
		have := b.hundredths.Load()
		want := min(have+n, Burst*cost)
		if want == have || b.hundredths.CompareAndSwap(have, want) {
			return
		}
	}
}

// spend takes one attempt out. It returns false if there is none.
func (b *budget) spend() bool {
	for {
		have := b.hundredths.Load()
		if have < cost {
			return false
		}
		if b.hundredths.CompareAndSwap(have, have-cost) {
			return true
		}
	}
}
