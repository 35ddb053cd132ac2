package mesh

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// costsFile has the costs that were counted last. "go test ./mesh -run Costs -update" in test/bench writes it.
const costsFile = "costs.json"

var update = flag.Bool("update", false, "write "+costsFile)

// costs are counted, and not timed, so that they are nearly the same on each machine. They are of one review at one caller, with both ends: the client, the
// mesh and the hosts.
type costs struct {
	// Allocations are objects of the heap, and Bytes their bytes.
	Allocations float64 `json:"allocations"`
	Bytes       float64 `json:"bytes"`
	// Writes are system calls that write; 0 where the kernel does not count them. A write is a wake of the other end.
	Writes float64 `json:"writes"`
}

// The bounds of a change of costs. Counts of the same code differ by less than 1 %, beside other work, too.
const (
	mostAllocations = 1.03
	mostBytes       = 1.04
	mostWrites      = 1.15
	// leastOf is the part below which the file is out of date: the gain could be lost again without notice.
	leastOf = 0.9
)

// processors is the number for which the file has costs: pools and batches depend on it.
const processors = 2

// road is a way of reviews through the mesh.
type road struct {
	scenario scenario.Scenario
	review   func(*Mesh, context.Context) error
}

func roads() map[string]road {
	validate := func(hooks, hosts int) scenario.Scenario {
		return scenario.Scenario{Stage: scenario.Validate, Hooks: hooks, Hosts: hosts, Bytes: scenario.Small}
	}
	mutate := scenario.Scenario{Stage: scenario.Mutate, Hooks: 8, Hosts: 8, Bytes: scenario.Small, Patching: 8}
	return map[string]road{
		"direct, 1 hook":                {validate(1, 1), (*Mesh).Review},
		"direct, 8 hooks on 8 hosts":    {validate(8, 8), (*Mesh).Review},
		"direct, 8 hooks on 1 host":     {validate(8, 1), (*Mesh).Review},
		"direct, 8 hooks that patch":    {mutate, (*Mesh).Review},
		"HTTP/1.1, 1 hook":              {validate(1, 1), (*Mesh).ReviewJSON},
		"HTTP/1.1, 8 hooks on 8 hosts":  {validate(8, 8), (*Mesh).ReviewJSON},
		"HTTP/1.1, 32 hooks on 8 hosts": {validate(32, 8), (*Mesh).ReviewJSON},
		"HTTP/1.1, 8 hooks that patch":  {mutate, (*Mesh).ReviewJSON},
		"HTTP/2, 1 hook":                {validate(1, 1), (*Mesh).ReviewJSONByHTTP2},
		"HTTP/2, 8 hooks on 8 hosts":    {validate(8, 8), (*Mesh).ReviewJSONByHTTP2},
		"direct, 8 of 10,000 hooks, 1 host": {
			scenario.Scenario{Stage: scenario.Validate, Hooks: 8, Hosts: 1, Bytes: scenario.Small, Configured: 10_000}, (*Mesh).Review,
		},
	}
}

// TestCostsOfReviews fails for a change that makes a review dearer on any road.
func TestCostsOfReviews(t *testing.T) {
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	var wanted map[string]costs
	if !*update {
		data, err := os.ReadFile(costsFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &wanted); err != nil {
			t.Fatal(err)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	counted := map[string]costs{}
	for name, r := range roads() {
		t.Run(name, func(t *testing.T) {
			got := count(t, r, keys)
			counted[name] = got
			if *update {
				return
			}
			of := wanted[name]
			for _, c := range []struct {
				unit             string
				got, want, bound float64
			}{
				{"allocations", got.Allocations, of.Allocations, mostAllocations},
				{"bytes", got.Bytes, of.Bytes, mostBytes},
				{"writes", got.Writes, of.Writes, mostWrites},
			} {
				switch {
				case c.got > c.want*c.bound:
					t.Errorf("%.1f %s a review, and %.1f before: find the cause or, if a feature is worth it, run this test with -update", c.got, c.unit, c.want)
				case c.got < c.want*leastOf && c.unit != "writes":
					t.Errorf("%.1f %s a review, and %.1f before: run this test with -update, so that the gain is kept", c.got, c.unit, c.want)
				}
			}
		})
	}
	if *update {
		data, err := json.MarshalIndent(counted, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(costsFile, append(data, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	warming  = 100 // reviews: connections, pools and caches
	counting = 200
	rounds   = 5
)

// count returns the costs of a road: the least of several rounds, since collections, beats and timers of the process add to some of them.
func count(t *testing.T, r road, keys *pki.PKI) (least costs) {
	t.Helper()
	m, err := Start(t.Context(), Options{Scenario: r.scenario, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	review := func(n int) {
		for range n {
			if err := r.review(m, t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	review(warming)
	for range rounds {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		writes := writesOf(t)
		review(counting)
		writes = writesOf(t) - writes
		runtime.ReadMemStats(&after)
		least = costs{
			Allocations: lesser(least.Allocations, float64(after.Mallocs-before.Mallocs)/counting),
			Bytes:       lesser(least.Bytes, float64(after.TotalAlloc-before.TotalAlloc)/counting),
			Writes:      lesser(least.Writes, writes/counting),
		}
	}
	return least
}

// lesser is the lesser of two counts; zero is none yet.
func lesser(a, b float64) float64 { return min(cmp.Or(a, b), b) }

// writesOf are the writing system calls of this process; 0 where the kernel does not count them.
func writesOf(t *testing.T) float64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", "self", "io"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "syscw: "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(fmt.Errorf("/proc/self/io: %w", err))
			}
			return n
		}
	}
	return 0
}
