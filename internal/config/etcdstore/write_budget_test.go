package etcdstore

import (
	"errors"
	"testing"
	"time"
)

// budget is a budget of so many bytes within a minute of a clock.
func budget(t *testing.T, total int64, now *time.Time, usage func() *Usage) *WriteBudget {
	t.Helper()
	b, err := NewWriteBudget(WriteBudgetOptions{Total: total, Retention: time.Minute, QuotaPercent: 50, Usage: usage, Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// spends checks how many writes of a size a writer makes until it is refused.
func spends(t *testing.T, b *WriteBudget, writer string, bytes, want int) {
	t.Helper()
	for n := range want + 1 {
		err := b.Spend(writer, bytes)
		var over *WriteError
		switch {
		case n < want && err != nil:
			t.Errorf("write %d of %s: %v", n, writer, err)
		case n == want && (!errors.As(err, &over) || over.Quota || over.Writer != writer):
			t.Errorf("write %d of %s: %v, want an error about the writer", n, writer, err)
		}
	}
}

func TestAWriterWritesAsMuchAsItLeavesFreeWithinTheRetention(t *testing.T) {
	now := time.Unix(1000, 0)
	b := budget(t, 24<<20, &now, nil)
	spends(t, b, "flood", 1<<20, 12)
	spends(t, b, "other", 1<<20, 6)
	now = now.Add(59 * time.Second)
	spends(t, b, "flood", 1<<20, 0)
	now = now.Add(time.Second)
	spends(t, b, "flood", 1<<20, 12)
	if n := len(b.booked); n != 12 {
		t.Errorf("%d bookings are left", n)
	}
}

// A small write takes a page of the database, so that neither their pages nor their bookings are more than the budget.
func TestASmallWriteIsBookedAsAPage(t *testing.T) {
	now := time.Unix(1000, 0)
	spends(t, budget(t, 80<<10, &now, nil), "flood", 1, 10)
}

func TestNothingIsWrittenAboveAPartOfTheQuota(t *testing.T) {
	now := time.Unix(1000, 0)
	var usage *Usage
	b := budget(t, 1<<30, &now, func() *Usage { return usage })
	if err := b.Spend("c", 1); err != nil {
		t.Errorf("before etcd has answered: %v", err)
	}
	for _, tt := range []struct {
		inUse int64
		full  bool
	}{{500, false}, {501, true}, {1000, true}, {500, false}} {
		usage = &Usage{InUse: tt.inUse, Quota: 1000}
		err := b.Spend("c", 1)
		var over *WriteError
		if errors.As(err, &over) != tt.full || tt.full && (!over.Quota || over.Limit != 500 || over.InUse != tt.inUse) {
			t.Errorf("%d of 1000 bytes in use: %v", tt.inUse, err)
		}
	}
}
