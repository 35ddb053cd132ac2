package memory

import (
	"errors"
	"sync/atomic"
)

// Lease is what one review holds of a ledger. Whoever needs the bytes of the review holds the lease: its maker from the
// start, others from Retain on. Each holder releases it once, and the last one gives everything back.
//
// A nil lease is that of a review that nobody accounts for: everything may be done with it, and nothing happens.
type Lease struct {
	ledger  *Ledger
	account *account
	bytes   atomic.Int64
	holders atomic.Int64
}

// errBelowZero refuses what no caller can mean.
var errBelowZero = errors.New("memory: a lease does not grow by less than nothing")

// Grow takes n bytes more, and fails as Reserve does, though later; the lease then holds what it held before. Only a holder
// may call it.
func (l *Lease) Grow(n int64) error {
	if l == nil {
		return nil
	}
	return l.take(n, growthParts)
}

func (l *Lease) take(n, parts int64) error {
	switch {
	case n == 0:
		return nil
	case n < 0:
		return errBelowZero
	}
	if full := l.ledger.take(l.account, n, parts); full != nil {
		full.Hopeless = l.bytes.Load()+n > l.ledger.most(parts)
		return full
	}
	l.bytes.Add(n)
	return nil
}

// Charge takes n bytes more whether they are to be had or not, for what is there already and cannot be refused. Until they
// are given back others find so much less. Only a holder may call it.
func (l *Lease) Charge(n int64) {
	if l == nil || n <= 0 {
		return
	}
	l.ledger.charge(l.account, n)
	l.bytes.Add(n)
}

// Shrink gives n bytes back that Grow or Charge took, before the lease ends. Only a holder may call it.
func (l *Lease) Shrink(n int64) {
	if l == nil || n <= 0 {
		return
	}
	l.bytes.Add(-n)
	l.ledger.give(l.account, n)
}

// Retain makes the caller a holder. It reports false when the lease has ended, because nobody held it any more: then the
// caller holds nothing, and whatever it was about is over.
func (l *Lease) Retain() bool {
	if l == nil {
		return true
	}
	for n := l.holders.Load(); n > 0; n = l.holders.Load() {
		if l.holders.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// Release is called once by each holder, which does not use the lease afterwards.
func (l *Lease) Release() {
	if l == nil || l.holders.Add(-1) != 0 {
		return
	}
	l.ledger.give(l.account, l.bytes.Load())
	l.ledger.leave(l.account)
}

// Bytes is how much the lease holds.
func (l *Lease) Bytes() int64 {
	if l == nil {
		return 0
	}
	return l.bytes.Load()
}
