package memory

import "sync/atomic"

// Reservation is the part of a ledger that one review holds. It counts its holders: the caller of [Ledger.Reserve], and everyone who called Retain. A
// holder may use the bytes of the review, and calls Release once. The last Release returns all bytes.
//
// A review without accounting has a nil reservation: its methods succeed and do nothing.
type Reservation struct {
	ledger  *Ledger
	account *account
	bytes   atomic.Int64
	holders atomic.Int64
}

// Grow reserves n more bytes, or fails like [Ledger.Reserve], but at a higher limit; the reservation is then unchanged. Only
// a holder may call it.
func (r *Reservation) Grow(n int64) error {
	if r == nil {
		return nil
	}
	return r.grow(n, growthParts)
}

// Extend is Grow at the limit of [Ledger.Reserve]: for bytes that are kept after a review.
func (r *Reservation) Extend(n int64) error {
	if r == nil {
		return nil
	}
	return r.grow(n, arrivalParts)
}

func (r *Reservation) grow(n, parts int64) error {
	if n <= 0 {
		return nil
	}
	if full := r.ledger.take(r.account, n, parts); full != nil {
		full.Hopeless = r.bytes.Load()+n > r.ledger.largestShare(parts)
		return full
	}
	r.bytes.Add(n)
	return nil
}

// Charge adds n bytes even if the ledger is full, for memory that is already in use. Others then have less. Only a holder may
// call it.
func (r *Reservation) Charge(n int64) {
	if r == nil || n <= 0 {
		return
	}
	r.ledger.add(r.account, n)
	r.bytes.Add(n)
}

// Shrink returns n bytes of Grow or Charge before the end of the reservation. Only a holder may call it.
func (r *Reservation) Shrink(n int64) {
	if r == nil || n <= 0 {
		return
	}
	r.bytes.Add(-n)
	r.ledger.add(r.account, -n)
}

// Retain makes the caller a holder. It returns false if the reservation has ended, since its last holder released it: the
// caller may not use the bytes of the review then.
func (r *Reservation) Retain() bool {
	if r == nil {
		return true
	}
	for n := r.holders.Load(); n > 0; n = r.holders.Load() {
		if r.holders.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// Release is called once by each holder, which does not use the reservation afterwards.
func (r *Reservation) Release() {
	if r == nil || r.holders.Add(-1) != 0 {
		return
	}
	r.ledger.add(r.account, -r.bytes.Load())
	r.ledger.removeReservation(r.account)
}

// Bytes returns the size of the reservation.
func (r *Reservation) Bytes() int64 {
	if r == nil {
		return 0
	}
	return r.bytes.Load()
}
