package memory

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func newLedger(t *testing.T, total, perCluster int64) *Ledger {
	t.Helper()
	l, err := New(Options{Total: total, PerCluster: perCluster})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// reserve makes a reservation that must succeed.
func reserve(t *testing.T, l *Ledger, cluster string, n int64) *Reservation {
	t.Helper()
	reservation, err := l.Reserve(cluster, n)
	if err != nil {
		t.Fatalf("%d bytes for %s: %v", n, cluster, err)
	}
	return reservation
}

// empty fails the test unless nothing is held and nobody remembered.
func empty(t *testing.T, l *Ledger) {
	t.Helper()
	if n := l.InUse(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
	if left := maps.Collect(l.Clusters()); len(left) != 0 {
		t.Errorf("clusters leave %v behind", left)
	}
}

func TestBudgetsThatMakeNoSense(t *testing.T) {
	for name, o := range map[string]Options{
		"none":                           {},
		"below zero":                     {Total: -1},
		"a share below zero":             {Total: 10, PerCluster: -1},
		"a share larger than everything": {Total: 10, PerCluster: 11},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: a ledger was made", name)
		}
	}
}

// Each step reserves bytes for a cluster. The limit of one cluster follows from the use of the others.
func TestWhatAClusterMayHold(t *testing.T) {
	type step struct {
		cluster string
		bytes   int64
		refused Bound
	}
	for name, test := range map[string]struct {
		perCluster int64
		steps      []step
	}{
		"one alone gets half, to the byte": {steps: []step{
			{"a", 450, ""}, {"a", 51, Cluster}, {"a", 50, ""}, {"a", 1, Cluster},
		}},
		"two that take what they can leave a third for the next": {steps: []step{
			{"a", 333, ""}, {"b", 333, ""}, {"b", 1, Cluster}, {"a", 1, Cluster}, {"c", 167, ""}, {"c", 1, Cluster},
		}},
		"who came first keeps what it has and gets no more": {steps: []step{
			{"a", 500, ""}, {"b", 250, ""}, {"a", 1, Cluster}, {"b", 1, Cluster}, {"c", 125, ""}, {"d", 62, ""},
		}},
		"a share that is set bounds further": {perCluster: 100, steps: []step{
			{"a", 100, ""}, {"a", 1, Cluster}, {"b", 100, ""}, {"b", 1, Cluster},
		}},
		"more than there is": {steps: []step{{"a", 1001, Total}, {"a", math.MaxInt64, Total}, {"a", 500, ""}}},
		"more than is left":  {steps: []step{{"a", 500, ""}, {"b", 501, Total}, {"b", 250, ""}}},
		"nothing":            {steps: []step{{"a", 500, ""}, {"a", 0, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t, 1000, test.perCluster)
			var reservations []*Reservation
			for i, s := range test.steps {
				reservation, err := l.Reserve(s.cluster, s.bytes)
				var full *FullError
				switch {
				case err == nil && s.refused == "":
					reservations = append(reservations, reservation)
				case err == nil:
					t.Errorf("step %d: %v was granted", i, s)
				case !errors.As(err, &full) || full.Bound != s.refused:
					t.Errorf("step %d: %v: error %v, want one of bound %q", i, s, err, s.refused)
				}
			}
			for _, reservation := range reservations {
				reservation.Release()
			}
			empty(t, l)
		})
	}
}

func TestAnErrorSaysWhatWasWantedAndWhatThereWas(t *testing.T) {
	l := newLedger(t, 1000, 0)
	reserve(t, l, "b", 200)
	reserve(t, l, "a", 300)
	for _, test := range []struct {
		bytes int64
		want  FullError
		text  string
	}{
		{101, FullError{Bound: Cluster, Cluster: "a", Wanted: 101, InUse: 300, Limit: 400}, `no memory for 101 bytes of a review: cluster "a" holds 300 of 400 bytes`},
		{501, FullError{Bound: Total, Cluster: "a", Wanted: 501, InUse: 500, Limit: 1000, Hopeless: true}, `no memory for 501 bytes of a review: all clusters together hold 500 of 1000 bytes`},
	} {
		_, err := l.Reserve("a", test.bytes)
		var full *FullError
		if !errors.As(err, &full) {
			t.Fatalf("error %v", err)
		}
		if diff := cmp.Diff(test.want, *full); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if err.Error() != test.text {
			t.Errorf("%q, want %q", err, test.text)
		}
	}
	if c, n := l.Refused(Cluster), l.Refused(Total); c != 1 || n != 1 {
		t.Errorf("counted %d and %d refusals", c, n)
	}
}

func TestTheLastHolderGivesTheBytesBack(t *testing.T) {
	l := newLedger(t, 1000, 0)
	reservation := reserve(t, l, "a", 100)
	if err := reservation.Grow(50); err != nil {
		t.Fatal(err)
	}
	if err := reservation.Grow(601); err == nil || reservation.Bytes() != 150 || l.InUse() != 150 {
		t.Errorf("growth past the share: %v, the reservation has %d bytes of %d", err, reservation.Bytes(), l.InUse())
	}
	for range 2 {
		if !reservation.Retain() {
			t.Error("a live reservation was not retained")
		}
	}
	for i := range 3 {
		if l.InUse() != 150 {
			t.Errorf("%d bytes are held after %d releases", l.InUse(), i)
		}
		reservation.Release()
	}
	empty(t, l)
	if reservation.Retain() {
		t.Error("a reservation that had ended was retained")
	}
	empty(t, l)
}

// A charge is booked past every bound, and leaves others less until it is given back.
func TestWhatIsThereAlreadyIsCharged(t *testing.T) {
	l := newLedger(t, 1000, 0)
	reservation := reserve(t, l, "a", 500)
	reservation.Charge(600)
	reservation.Charge(-1)
	if reservation.Bytes() != 1100 || l.InUse() != 1100 {
		t.Errorf("the reservation has %d bytes of %d, want 1100", reservation.Bytes(), l.InUse())
	}
	if _, err := l.Reserve("b", 1); err == nil {
		t.Error("another cluster found room")
	}
	reservation.Release()
	empty(t, l)
	reserve(t, l, "b", 500).Release()
}

// A cluster at the limit of its arrivals can still end its reviews: alone it grows to three quarters of the whole.
func TestReviewsThatAreInGrowWhenNoneComesIn(t *testing.T) {
	l := newLedger(t, 1000, 0)
	reservation := reserve(t, l, "a", 500)
	if _, err := l.Reserve("a", 1); err == nil {
		t.Error("another one came in")
	}
	if err := reservation.Grow(250); err != nil {
		t.Error(err)
	}
	var full *FullError
	if err := reservation.Grow(1); !errors.As(err, &full) || full.Bound != Cluster || full.Limit != 750 {
		t.Errorf("growth past three quarters: %v", err)
	}
	reserve(t, l, "b", 125).Release()
	reservation.Release()
	empty(t, l)
}

func TestAReviewThatNobodyAccountsFor(t *testing.T) {
	var reservation *Reservation
	if err := reservation.Grow(math.MaxInt64); err != nil || !reservation.Retain() || reservation.Bytes() != 0 {
		t.Errorf("a nil reservation refused: %v", err)
	}
	reservation.Charge(1)
	reservation.Release()
}

func TestAThousandClustersLeaveNothingBehind(t *testing.T) {
	l := newLedger(t, 1<<20, 0)
	var reservations []*Reservation
	for i := range 1000 {
		reservations = append(reservations, reserve(t, l, fmt.Sprint("cluster-", i), 1))
	}
	if n := len(maps.Collect(l.Clusters())); n != 1000 {
		t.Errorf("%d clusters are known", n)
	}
	for _, reservation := range reservations {
		reservation.Release()
	}
	empty(t, l)
}

// The ledger agrees with a naive ledger that keeps a list of reservations.
func TestRandomLeases(t *testing.T) {
	const total = 1000
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		l := newLedger(t, total, []int64{0, 150}[seed%2])
		type naive struct {
			*Reservation
			cluster string
			bytes   int64
			holders int
		}
		var all []*naive
		held := func(cluster string) (n int64) {
			for _, x := range all {
				if cluster == "" || x.cluster == cluster {
					n += x.bytes
				}
			}
			return n
		}
		fits := func(cluster string, n, parts int64) bool {
			free := total - held("") - n
			return free >= 0 && held(cluster)+n <= parts*free && held(cluster)+n <= l.perCluster
		}
		for step := range 300 {
			n, cluster := random.Int64N(200), fmt.Sprint("c", random.IntN(4))
			if len(all) == 0 || random.IntN(3) == 0 {
				want := fits(cluster, n, 1) || n == 0
				reservation, err := l.Reserve(cluster, n)
				if (err == nil) != want {
					t.Fatalf("seed %d step %d: %d for %s: %v, want granted %t", seed, step, n, cluster, err, want)
				}
				if err == nil {
					all = append(all, &naive{reservation, cluster, n, 1})
				}
				continue
			}
			i := random.IntN(len(all))
			switch x := all[i]; random.IntN(3) {
			case 0:
				want := fits(x.cluster, n, 3) || n == 0
				if err := x.Grow(n); (err == nil) != want {
					t.Fatalf("seed %d step %d: %d more for %s: %v, want granted %t", seed, step, n, x.cluster, err, want)
				} else if err == nil {
					x.bytes += n
				}
			case 1:
				x.Retain()
				x.holders++
			default:
				x.Release()
				if x.holders--; x.holders == 0 {
					all = append(all[:i], all[i+1:]...)
				}
			}
			for c, got := range maps.Collect(l.Clusters()) {
				if want := held(c); got != want {
					t.Fatalf("seed %d step %d: %s holds %d, want %d", seed, step, c, got, want)
				}
			}
			if got, want := l.InUse(), held(""); got != want {
				t.Fatalf("seed %d step %d: %d are held, want %d", seed, step, got, want)
			}
		}
		for _, x := range all {
			for range x.holders {
				x.Release()
			}
		}
		empty(t, l)
	}
}

// Whoever comes at the same time as many others: no bound is passed for a moment, and at the end nothing is left.
func TestLeasesFromManyGoroutines(t *testing.T) {
	const total, size = 1000, 10
	l := newLedger(t, total, 0)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			cluster := fmt.Sprint("c", i%3)
			for range 2000 {
				reservation, err := l.Reserve(cluster, size)
				if err != nil {
					continue
				}
				if used := l.InUse(); used > total || used < size {
					t.Errorf("%d of %d bytes are held", used, total)
				}
				var holders sync.WaitGroup
				for range 2 {
					reservation.Retain()
					holders.Go(reservation.Release)
				}
				_ = reservation.Grow(size)
				reservation.Release()
				holders.Wait()
			}
		})
	}
	all.Wait()
	empty(t, l)
}

// Of many that ask at once, none gets past the half that a cluster alone may hold; a later reservation gets the rest of that half, to the byte.
func TestAFloodGetsItsShareAndNoMore(t *testing.T) {
	l := newLedger(t, 1000, 0)
	granted := make(chan *Reservation, 500)
	var all sync.WaitGroup
	for range 400 {
		all.Go(func() {
			if reservation, err := l.Reserve("flood", 10); err == nil {
				granted <- reservation
			}
		})
	}
	all.Wait()
	for reservation, err := l.Reserve("flood", 1); err == nil; reservation, err = l.Reserve("flood", 1) {
		granted <- reservation
	}
	if n := l.InUse(); n != 500 {
		t.Errorf("a flood holds %d of 1000 bytes, want half", n)
	}
	reserve(t, l, "other", 250).Release()
	close(granted)
	for reservation := range granted {
		reservation.Release()
	}
	empty(t, l)
}

func TestMetrics(t *testing.T) {
	l := newLedger(t, 1000, 0)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(l.Collector()); err != nil {
		t.Fatal(err)
	}
	reservation := reserve(t, l, "prod-1", 300)
	if _, err := l.Reserve("prod-1", 300); err == nil {
		t.Fatal("past the share")
	}
	if _, err := l.Reserve("prod-2", 800); err == nil {
		t.Fatal("past the total")
	}
	want := []string{
		"portcullis_memory_budget_bytes = 1000", "portcullis_memory_cluster_used_bytes{prod-1} = 300",
		"portcullis_memory_refused_total{cluster} = 1", "portcullis_memory_refused_total{total} = 1",
		"portcullis_memory_used_bytes = 300",
	}
	if diff := cmp.Diff(want, read(t, registry)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	reservation.Release()
	for _, line := range read(t, registry) {
		if strings.Contains(line, "prod-1") {
			t.Errorf("a cluster without reviews still has the series %s", line)
		}
	}
}

// read lists the metrics of a registry, a line per series.
func read(t *testing.T, registry *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, pair := range m.GetLabel() {
				labels = "{" + pair.GetValue() + "}"
			}
			lines = append(lines, fmt.Sprint(f.GetName(), labels, " = ", m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return lines
}

func BenchmarkLease(b *testing.B) {
	for name, clusters := range map[string]int{"one cluster": 1, "a hundred": 100} {
		b.Run(name, func(b *testing.B) {
			l, err := New(Options{Total: 1 << 40})
			if err != nil {
				b.Fatal(err)
			}
			names := make([]string, clusters)
			for i := range names {
				names[i] = fmt.Sprint("cluster-", i)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					reservation, err := l.Reserve(names[i%clusters], 2048)
					if err != nil {
						b.Error(err)
						return
					}
					reservation.Release()
				}
			})
		})
	}
}

func TestALeaseGivesBackWhatItNeedsNoMore(t *testing.T) {
	l := newLedger(t, 1000, 0)
	reservation := reserve(t, l, "a", 100)
	if err := reservation.Grow(500); err != nil {
		t.Fatal(err)
	}
	reservation.Shrink(400)
	if held := reservation.Bytes(); held != 200 || l.InUse() != 200 {
		t.Errorf("the reservation holds %d bytes, all together %d, want 200", held, l.InUse())
	}
	reservation.Shrink(0)
	(*Reservation)(nil).Shrink(1)
	reservation.Release()
	empty(t, l)
}

// A review that wants more than there would be without all others is told so, once it asks for it.
func TestHopelessReservations(t *testing.T) {
	for name, test := range map[string]struct {
		perCluster, others, first, grow int64
		hopeless                        bool
	}{
		"more than three quarters":               {0, 0, 100, 651, true},
		"three quarters, of which some are lent": {0, 100, 100, 650, false},
		"more than the share of the cluster":     {500, 0, 100, 401, true},
		"the share of the cluster":               {500, 0, 100, 400, false},
	} {
		l := newLedger(t, 1000, test.perCluster)
		if test.others > 0 {
			reserve(t, l, "b", test.others)
		}
		err := reserve(t, l, "a", test.first).Grow(test.grow)
		var full *FullError
		if errors.As(err, &full) && full.Hopeless != test.hopeless || err == nil && test.hopeless {
			t.Errorf("%s: %+v", name, full)
		}
	}
}
