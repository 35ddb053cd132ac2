package fairqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func always() bool { return true }

// served is the order in which a queue is served when everything is taken.
func served(q *Queue[string]) string {
	var got []string
	q.Serve(always, func(value string) bool {
		got = append(got, value)
		return true
	})
	return strings.Join(got, " ")
}

// queueOf has the values, each of the tenant of its first letter.
func queueOf(values ...string) (*Queue[string], map[string]*Entry[string]) {
	q, entries := new(Queue[string]), make(map[string]*Entry[string])
	for _, v := range values {
		entries[v] = q.Push(v[:1], v)
	}
	return q, entries
}

func TestLinesAreServedInTurnAndEachInItsOrder(t *testing.T) {
	q, _ := queueOf("a1", "a2", "a3", "b1", "c1", "c2")
	if got, want := served(q), "a1 b1 c1 a2 c2 a3"; got != want {
		t.Errorf("served %s, want %s", got, want)
	}
	if q.Len() != 0 || len(q.lines) != 0 || q.turns.Len() != 0 {
		t.Errorf("left: %d entries, %d lines, %d turns", q.Len(), len(q.lines), q.turns.Len())
	}
}

func TestATenantWhoseValueIsNotTakenKeepsItsTurn(t *testing.T) {
	q, _ := queueOf("a1", "b1", "b2")
	q.Serve(always, func(value string) bool { return value == "b1" })
	if got, want := served(q), "a1 b2"; got != want {
		t.Errorf("served %s, want %s", got, want)
	}
}

func TestServingEndsWhereThereIsNoRoom(t *testing.T) {
	q, _ := queueOf("a1", "a2", "b1")
	room := 2
	var got []string
	q.Serve(func() bool { return room > 0 }, func(value string) bool {
		room--
		got = append(got, value)
		return true
	})
	if want := []string{"a1", "b1"}; !slices.Equal(got, want) || q.Len() != 1 || q.LenOf("a") != 1 || q.LenOf("b") != 0 {
		t.Errorf("served %v, want %v; %d left", got, want, q.Len())
	}
}

func TestOneTenantIsServedInItsOrderUntilOneIsNotTaken(t *testing.T) {
	q, entries := queueOf("a1", "b1", "a2", "a3")
	var got []string
	q.ServeTenant("a", func(value string) bool {
		got = append(got, value)
		return value != "a2"
	})
	if want := []string{"a1", "a2"}; !slices.Equal(got, want) || q.Len() != 3 || q.Remove(entries["a1"]) || q.Remove(nil) || !q.Remove(entries["a2"]) {
		t.Errorf("offered %v, want %v; %d left", got, want, q.Len())
	}
	q.ServeTenant("c", func(value string) bool { t.Errorf("offered %s", value); return true })
	q.ServeTenant("a", func(string) bool { return true })
	if got, want := served(q), "b1"; got != want {
		t.Errorf("served %s, want %s", got, want)
	}
}

// It plays random queues: no tenant is served twice while another one waits.
func TestATenantThatWaitsIsServedBeforeAnotherIsTwice(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for round := range 300 {
		var q Queue[string]
		order, since := map[string][]string{}, map[string]map[string]int{} // of each that waits: the places given to others meanwhile
		for step := range 200 {
			tenant := string("abcd"[random.IntN(4)])
			if random.IntN(2) == 0 {
				name := fmt.Sprint(tenant, step)
				q.Push(tenant, name)
				if order[tenant] = append(order[tenant], name); len(order[tenant]) == 1 {
					since[tenant] = map[string]int{}
				}
				continue
			}
			name := ""
			q.Serve(func() bool { return name == "" }, func(value string) bool { name = value; return true })
			if name == "" {
				continue
			}
			tenant = name[:1]
			if order[tenant][0] != name {
				t.Fatalf("round %d: %s is served before %s", round, name, order[tenant][0])
			}
			order[tenant], since[tenant] = order[tenant][1:], map[string]int{}
			for other, waits := range order {
				if len(waits) == 0 || other == tenant {
					continue
				}
				if since[other][tenant]++; since[other][tenant] > 1 {
					t.Fatalf("round %d: %s was served twice while %s waited", round, tenant, other)
				}
			}
		}
	}
}

func TestWhereServingEndedTheNextTenantBegins(t *testing.T) {
	q, _ := queueOf("a1", "a2", "b1", "b2")
	var got []string
	for q.Len() > 0 { // one place becomes free at a time
		room := true
		q.Serve(func() bool { return room }, func(value string) bool {
			room = false
			got = append(got, value)
			return true
		})
	}
	if want := []string{"a1", "b1", "a2", "b2"}; !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
}

func TestAnEntryThatIsRemovedLeavesNothingBehind(t *testing.T) {
	q, entries := queueOf("a1", "a2", "b1")
	q.Remove(entries["b1"])
	q.Remove(entries["b1"]) // does nothing
	q.Remove(entries["a1"])
	if len(q.lines) != 1 || q.turns.Len() != 1 || q.Len() != 1 {
		t.Errorf("%d lines, %d turns, %d entries", len(q.lines), q.turns.Len(), q.Len())
	}
	if got := served(q); got != "a2" {
		t.Errorf("served %s", got)
	}
}

func TestEntriesMayBeRemovedWhileAllAreGoneOver(t *testing.T) {
	q, _ := queueOf("a1", "a2", "b1", "b2")
	n := 0
	for e := range q.All() {
		q.Remove(e)
		n++
	}
	if n != 4 || q.Len() != 0 {
		t.Errorf("%d entries, %d left", n, q.Len())
	}
	q, _ = queueOf("a1", "a2")
	for range q.All() {
		break
	}
	if q.Len() != 2 {
		t.Errorf("%d entries", q.Len())
	}
}

// takeAll has tenants take places in turn up to their limits, and returns how many each holds.
func takeAll(s *Shares, tenants ...string) []int {
	for took := true; took; {
		took = false
		for _, x := range tenants {
			if s.Allows(x) {
				s.Take(x)
				took = true
			}
		}
	}
	var held []int
	for _, x := range tenants {
		held = append(held, s.Held(x))
	}
	return held
}

func TestATenantHoldsNoMoreThanItsPartsOfWhatItLeavesFree(t *testing.T) {
	for _, test := range []struct {
		limit, parts int
		tenants      string
		want         []int
	}{
		{1024, GrowthParts, "a", []int{768}},
		{1024, GrowthParts, "ab", []int{439, 439}},
		{3072, ArrivalParts, "a", []int{1536}},
		{3072, ArrivalParts, "ab", []int{1024, 1024}},
		{16, GrowthParts, "a", []int{12}},
		{1, GrowthParts, "a", []int{1}},
		{1, ArrivalParts, "a", []int{1}},
		{2, ArrivalParts, "a", []int{1}},
		{0, GrowthParts, "a", []int{0}},
		{-1, GrowthParts, "a", []int{0}},
	} {
		t.Run(fmt.Sprint(test.limit, " ", test.parts, " ", test.tenants), func(t *testing.T) {
			s := NewShares(test.limit, test.parts)
			if got := takeAll(&s, strings.Split(test.tenants, "")...); !slices.Equal(got, test.want) {
				t.Errorf("held %v, want %v", got, test.want)
			}
		})
	}
}

func TestATenantThatHoldsNothingGetsWhateverIsFree(t *testing.T) {
	s := NewShares(100, GrowthParts)
	takeAll(&s, "a", "b", "c")
	for i := 0; !s.Full(); i++ {
		tenant := fmt.Sprint("new", i)
		if !s.Allows(tenant) {
			t.Fatalf("%d places are free, and %s gets none", s.Limit()-s.Used(), tenant)
		}
		s.Take(tenant)
	}
	if s.Allows("one more") {
		t.Error("there is a place too many")
	}
}

func TestPlacesPastALowerLimitStayTaken(t *testing.T) {
	s := NewShares(16, GrowthParts)
	takeAll(&s, "a")
	s.Resize(4)
	if !s.Full() || s.Allows("b") || s.Used() != 12 {
		t.Errorf("full %v, used %d", s.Full(), s.Used())
	}
	for range 12 {
		s.Give("a")
	}
	if !s.Allows("b") || s.Used() != 0 || len(s.held) != 0 {
		t.Errorf("used %d, %d tenants are remembered", s.Used(), len(s.held))
	}
}
