package periods

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 23, 12, 30, 0, 0, time.UTC)

type record struct {
	begun time.Time
	n     int
}

func newLog(maxBytes int64) *Log[record] {
	return New(Options{Length: time.Hour, Retention: 3 * time.Hour, MaxBytes: maxBytes, Shards: 2},
		func(begun time.Time) *record { return &record{begun: begun} })
}

// one adds one, which takes so many bytes.
func one(bytes int64) func(*record) int64 {
	return func(r *record) int64 { r.n++; return bytes }
}

// count adds up the records that a query finds.
func count(l *Log[record], q Query) (n int) {
	l.Each(q, func(_ string, r *record) { n += r.n })
	return n
}

func TestRecordsEndAfterTheRetention(t *testing.T) {
	l := newLog(1 << 20)
	l.Update(start, "a", "x", one(10))
	l.Update(start.Add(150*time.Minute), "a", "x", one(10)) // 15:00: the first period began 3 h ago
	if n := count(l, Query{}); n != 2 || l.Bytes() != 20 {
		t.Errorf("%d records of %d bytes at the end of the retention", n, l.Bytes())
	}
	l.Update(start.Add(150*time.Minute+1), "a", "x", one(10))
	if n := count(l, Query{}); n != 2 || l.Bytes() != 20 {
		t.Errorf("%d records of %d bytes past the retention", n, l.Bytes())
	}
	l.Update(start, "a", "x", one(10)) // the clock went back
	if n := count(l, Query{}); n != 3 {
		t.Errorf("%d records after the clock went back", n)
	}
	l.Keep([]string{"b"})
	if n := count(l, Query{}); n != 0 || l.Bytes() != 0 {
		t.Errorf("%d records of %d bytes of a cluster that has gone", n, l.Bytes())
	}
}

func TestQueriesSelectPeriods(t *testing.T) {
	l := newLog(1 << 20)
	for i := range 3 {
		l.Update(start.Add(time.Duration(i)*time.Hour), "a", fmt.Sprint(i), one(1))
	}
	l.Update(start, "b", "x", one(1))
	for name, c := range map[string]struct {
		q    Query
		want int
	}{
		"all":                        {Query{}, 4},
		"one cluster":                {Query{Cluster: "a"}, 3},
		"another":                    {Query{Cluster: "c"}, 0},
		"since within a period":      {Query{Cluster: "a", Since: start.Add(time.Hour)}, 2},
		"since the end of a period":  {Query{Cluster: "a", Since: start.Add(30 * time.Minute)}, 2},
		"until the begin of a later": {Query{Cluster: "a", Until: start.Add(30 * time.Minute)}, 1},
	} {
		if n := count(l, c.q); n != c.want {
			t.Errorf("%s: %d records, want %d", name, n, c.want)
		}
	}
}

func TestAFloodOfOneClusterDropsItsOwnOldestPeriods(t *testing.T) {
	l := newLog(100)
	l.Update(start, "quiet", "x", one(30))
	l.Update(start, "loud", "x", one(35))
	l.Update(start.Add(time.Hour), "loud", "x", one(35))
	if n := count(l, Query{}); n != 3 || len(l.Dropped()) != 0 {
		t.Errorf("%d records at the bound, %v were dropped", n, l.Dropped())
	}
	l.Update(start.Add(time.Hour), "loud", "x", one(1))
	if n := count(l, Query{Cluster: "loud"}); n != 2 || l.Bytes() != 66 {
		t.Errorf("%d records of the loud cluster, %d bytes of all", n, l.Bytes())
	}
	if n := count(l, Query{Cluster: "quiet"}); n != 1 {
		t.Error("the quiet cluster has lost its record")
	}
	if d := l.Dropped(); len(d) != 1 || !d["loud"].Equal(start.Truncate(time.Hour).Add(time.Hour)) {
		t.Errorf("dropped %v", d)
	}
}

func TestUpdatesAreConcurrent(t *testing.T) {
	l := newLog(500)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				l.Update(start.Add(time.Duration(i)*time.Minute), fmt.Sprint("c", i%3), fmt.Sprint(i), one(10))
				if i%100 == 0 {
					count(l, Query{})
					l.Dropped()
					l.Keep([]string{"c0", "c1"})
				}
			}
		})
	}
	all.Wait()
}
