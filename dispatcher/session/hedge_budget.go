package session

import "sync/atomic"

// hedgeBudget holds the extra calls of a hook to a share of its calls: every call earns a part of one, up to
// [HedgeBurst] of them. It starts empty, so that the share holds from the first call on. It knows no time: what no call
// earned nobody spends. All methods may be called concurrently.
type hedgeBudget struct {
	hundredths atomic.Int64 // of an extra call
}

// hedgeCost is an extra call.
const hedgeCost = 100

// earn takes note of a call, of which percent may be made twice.
func (b *hedgeBudget) earn(percent int) {
	b.addHundredths(int64(min(max(0, percent), hedgeCost)))
}

// refund gives back what was spent on a call that was not made.
func (b *hedgeBudget) refund() { b.addHundredths(hedgeCost) }

// addHundredths puts in what fits.
func (b *hedgeBudget) addHundredths(n int64) {
	for {
		have := b.hundredths.Load()
		want := min(have+n, HedgeBurst*hedgeCost)
		if want == have || b.hundredths.CompareAndSwap(have, want) {
			return
		}
	}
}

// spend takes an extra call out; false means that there is none.
func (b *hedgeBudget) spend() bool {
	for {
		have := b.hundredths.Load()
		if have < hedgeCost {
			return false
		}
		if b.hundredths.CompareAndSwap(have, have-hedgeCost) {
			return true
		}
	}
}
