package kubernetes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// admitted offers parts, and returns the names that count, and the refusals.
func admitted(limit size, before map[string]size, parts []part) (names []string, next map[string]size, refused []refusal) {
	a := admit(limit, before)
	counts := map[string]bool{}
	for _, p := range parts {
		counts[p.name] = true
		for _, name := range a.offer(p) {
			delete(counts, name)
		}
	}
	next, refused = a.end()
	return slices.Sorted(maps.Keys(counts)), next, refused
}

func one(name string, created int64, bytes int64) part {
	return part{name: name, created: time.Unix(created, 0), size: size{1, bytes}}
}

// TestAFloodOfOneAuthorLeavesTheOthersTheirs: the objects that were there change and go, and of 20,001 new ones as many count as fit.
func TestAFloodOfOneAuthorLeavesTheOthersTheirs(t *testing.T) {
	limit := size{MaxObjects, MaxBytes}
	_, before, _ := admitted(limit, nil, []part{one("changed", 1, 10), one("grown", 2, 10), one("gone", 3, 10), one("same", 4, 10)})
	flood := []part{one("changed", 1, 9), one("grown", 2, 20), one("same", 4, 10)}
	for i := range MaxObjects + 1 {
		flood = append(flood, one(fmt.Sprintf("a%05d", i), 5, 1))
	}
	names, next, refused := admitted(limit, before, flood)
	if !slices.Contains(names, "changed") || !slices.Contains(names, "grown") || !slices.Contains(names, "same") || slices.Contains(names, "gone") {
		t.Error("objects that were there do not count, or one that is gone does")
	}
	if len(names) != MaxObjects-1 || len(refused) != 5 || refused[0].name != "a19996" || refused[0].grown { // "gone" leaves its place in the next listing
		t.Errorf("%d count, refused %v", len(names), refused)
	}
	again, _, refused := admitted(limit, next, flood)
	if len(again) != MaxObjects || len(refused) != 4 {
		t.Errorf("%d count the next time, refused %v", len(again), refused)
	}
}

func TestAdmissions(t *testing.T) {
	limit := size{3, 100}
	for name, test := range map[string]struct {
		before  map[string]size
		parts   []part
		want    string
		refused string // "+" marks those that have grown
		next    map[string]size
	}{
		"all fit":                             {nil, []part{one("a", 1, 50), one("b", 1, 50)}, "a b", "", map[string]size{"a": {1, 50}, "b": {1, 50}}},
		"without others before, the oldest":   {nil, []part{one("a", 3, 1), one("b", 2, 1), one("c", 1, 1), one("d", 0, 1)}, "b c d", "a", nil},
		"of one time, by name":                {nil, []part{one("d", 1, 1), one("c", 1, 1), one("b", 1, 1), one("a", 1, 1)}, "a b c", "d", nil},
		"none behind one that does not fit":   {nil, []part{one("a", 1, 60), one("b", 2, 60), one("c", 3, 1)}, "a", "b c", nil},
		"one that was there, before older":    {map[string]size{"z": {1, 60}}, []part{one("a", 1, 60), one("z", 9, 60)}, "z", "a", map[string]size{"z": {1, 60}}},
		"it shrinks, and others come":         {map[string]size{"z": {1, 60}}, []part{one("z", 9, 10), one("a", 10, 60)}, "a z", "", nil},
		"it grows, before new ones":           {map[string]size{"z": {1, 60}}, []part{one("a", 1, 20), one("z", 9, 90)}, "z", "a", nil},
		"it grows too much, and has its size": {map[string]size{"z": {1, 60}}, []part{one("z", 9, 110)}, "", "z+", map[string]size{"z": {1, 60}}},
		"one that grows takes nothing from one that was there": {
			map[string]size{"y": {1, 40}, "z": {1, 40}}, []part{one("y", 1, 110), one("z", 2, 40)}, "z", "y+", map[string]size{"y": {1, 40}, "z": {1, 40}},
		},
		"more objects in one part": {map[string]size{"a": {1, 1}}, []part{{"a", time.Time{}, size{4, 1}}, one("b", 1, 1)}, "", "a+ b", map[string]size{"a": {1, 1}}},
	} {
		for range 10 {
			rand.Shuffle(len(test.parts), func(i, j int) { test.parts[i], test.parts[j] = test.parts[j], test.parts[i] })
			if strings.Contains(name, "shrinks") { // room is found when it is read
				slices.SortFunc(test.parts, func(a, b part) int { return strings.Compare(b.name, a.name) })
			}
			names, next, refused := admitted(limit, test.before, test.parts)
			var marked []string
			for _, r := range refused {
				mark := r.name
				if r.grown {
					mark += "+"
				}
				marked = append(marked, mark)
			}
			if got := strings.Join(names, " "); got != test.want || strings.Join(marked, " ") != test.refused || test.next != nil && !maps.Equal(next, test.next) {
				t.Fatalf("%s: %v: %s count, %v refused, next %v; want %s, %s", name, test.parts, got, marked, next, test.want, test.refused)
			}
		}
	}
}

// TestAdmissionsStayWithinTheirLimit, whatever is offered in listings one after another.
func TestAdmissionsStayWithinTheirLimit(t *testing.T) {
	limit := size{8, 100}
	var before map[string]size
	for range 2000 {
		var parts []part
		for i := range rand.IntN(16) {
			p := one(fmt.Sprint("p", i), rand.Int64N(3), rand.Int64N(60))
			p.size.objects = rand.IntN(4)
			parts = append(parts, p)
		}
		names, next, refused := admitted(limit, before, parts)
		if len(names)+len(refused) != len(parts) {
			t.Fatalf("%d count and %d are refused of %d", len(names), len(refused), len(parts))
		}
		total := size{}
		for _, p := range parts {
			if old, known := before[p.name]; known && !p.size.over(old) && !slices.Contains(names, p.name) {
				t.Fatalf("%s was there, has not grown, and does not count", p.name)
			}
			if slices.Contains(names, p.name) {
				total = total.plus(p.size)
			}
		}
		reserved := size{}
		for _, s := range next {
			reserved = reserved.plus(s)
		}
		if total.over(limit) || reserved.over(limit) {
			t.Fatalf("%v count, %v have a place: more than %v", total, reserved, limit)
		}
		before = next
	}
}
