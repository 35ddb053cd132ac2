package staged

import (
	"errors"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// spends checks how many writes of a size a cluster makes until it is refused.
func spends(t *testing.T, b *budget, cluster string, bytes, want int) {
	t.Helper()
	for n := range want + 1 {
		err := b.spend(cluster, bytes)
		var full *FullError
		switch {
		case n < want && err != nil:
			t.Errorf("write %d of cluster %s: %v", n, cluster, err)
		case n == want && (!errors.As(err, &full) || full.Bound != Written || full.Cluster != cluster):
			t.Errorf("write %d of cluster %s: %v, want the bound %q", n, cluster, err, Written)
		}
	}
}

func TestAClusterWritesAsMuchAsItLeavesFreeWithinTheRetention(t *testing.T) {
	now := time.Unix(1000, 0)
	b, err := newBudget(24<<20, time.Minute, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
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
	b, err := newBudget(80<<10, time.Minute, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	spends(t, b, "flood", 1, 10)
}

func TestNothingIsStagedAboveHalfOfTheQuota(t *testing.T) {
	b, err := newBudget(1<<30, time.Minute, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		inUse int64
		full  bool
	}{{500, false}, {501, true}, {1000, true}, {500, false}} {
		b.usage.Store(&etcdstore.Usage{InUse: tt.inUse, Quota: 1000})
		err := b.spend("c", 1)
		var full *FullError
		if errors.As(err, &full) != tt.full || tt.full && (full.Bound != Half || full.Limit != 500 || full.InUse != tt.inUse) {
			t.Errorf("%d of 1000 bytes in use: %v", tt.inUse, err)
		}
	}
}
