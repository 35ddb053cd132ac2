package dispatcher_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The differential test: random configurations, requests and hooks, once through kube-apiserver's own webhook plugins
// (internal/oracle) and once through the dispatcher, with the same scripts behind both. Every outcome has to be the same,
// or be explained by a deviation that docs/deviations.md lists (differential_deviations_test.go).
//
//	go test ./dispatcher -run TestDifferential -differential.cases=100000 -differential.seed=7
//
// Each world (a cluster with its configurations) has a seed of its own and sees a number of requests. A failure names the
// seed of its world, and prints the smallest case that still fails.
var (
	differentialCases = flag.Int("differential.cases", 2000, "how many requests the differential test makes")
	differentialSeed  = flag.Uint64("differential.seed", 1, "the seed of the differential test's first world; the next one has the next")
)

const (
	// requestsPerWorld shares the cost of starting a world.
	requestsPerWorld = 25
	// worldsAtOnce: most of a world's start is waiting.
	worldsAtOnce = 8
	// enoughCases is from how many cases on every way that a review can go has to have been seen, and manyCases from how
	// many on every deviation.
	enoughCases, manyCases = 2000, 20000
	// maxReports ends a run that has said enough.
	maxReports = 3
)

func TestDifferential(t *testing.T) {
	total := &tally{seen: map[string]int{}}
	worlds := (*differentialCases + requestsPerWorld - 1) / requestsPerWorld
	seeds := make(chan uint64)
	var workers sync.WaitGroup
	for range worldsAtOnce {
		workers.Go(func() {
			for seed := range seeds {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { visit(t, seed, total) })
			}
		})
	}
	for i := range worlds {
		if total.reports() >= maxReports {
			break
		}
		seeds <- *differentialSeed + uint64(i)
	}
	close(seeds)
	workers.Wait()
	t.Log(total)
	if t.Failed() {
		return
	}
	for _, what := range interesting(*differentialCases) {
		if total.seen[what] == 0 {
			t.Errorf("no case of %q: the test does not see enough", what)
		}
	}
}

// interesting is what a run of so many cases has to come across to mean something.
func interesting(cases int) []string {
	if cases < enoughCases {
		return nil
	}
	all := []string{
		"allowed", "patched", "reinvoked", "failed open", "warned", "annotated",
		"in process", "over streams", "over HTTPS", "over HTTPS and in process", "over HTTPS and over streams", "asked in v1", "asked in v1beta1", "asked again",
		"refused with 400", "refused with 403", "refused with 404", "refused with 422", "refused with 500",
		"CREATE", "UPDATE", "DELETE", "CONNECT", "dry run",
	}
	if cases >= manyCases {
		for _, d := range deviations() {
			all = append(all, d.id)
		}
	}
	return all
}

// visit makes the requests of one world.
func visit(t *testing.T, seed uint64, total *tally) {
	r := newChance(seed)
	w := r.world()
	lab := newLaboratory(t, w)
	for range requestsPerWorld {
		e := r.experiment(w)
		j := lab.judge(e)
		if j.difference == "" {
			total.add(e, j)
			continue
		}
		total.report()
		small, found := shrink(t, e, j)
		t.Errorf("seed %d\n%s\ndifference (-kube-apiserver +portcullis):\n%s\nkube-apiserver: %s\nportcullis: %s",
			seed, small, found.difference, found.want, found.got)
		return
	}
}

// tally counts what was seen.
type tally struct {
	mu       sync.Mutex
	seen     map[string]int
	reported int
}

func (y *tally) report() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.reported++
}

func (y *tally) reports() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.reported
}

// add counts a case that went well.
func (y *tally) add(e *experiment, j judgement) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.seen["cases"]++
	y.seen[e.Request.GetOperation()]++
	y.seen[fmt.Sprintf("%d hooks called", min(len(j.got.Calls), 6))]++
	for _, id := range j.deviations {
		y.seen[id]++
	}
	verdict := "allowed"
	if !j.got.Allowed {
		verdict = fmt.Sprintf("refused with %d", j.got.Status.Code)
	}
	for what, is := range map[string]bool{
		verdict: true, "patched": j.got.Object != "" && j.got.Patched, "reinvoked": j.got.reinvoked(),
		"failed open": len(j.got.FailedOpen) > 0, "warned": len(j.got.Warnings) > 0, "annotated": len(j.got.Audit) > 0,
		"dry run": e.Request.GetDryRun(), e.carriers(j.got.Calls): true,
	} {
		if is {
			y.seen[what]++
		}
	}
	for _, what := range spoken(j.got.Calls) {
		y.seen[what]++
	}
}

// carriers are how the calls of a case were carried.
func (e *experiment) carriers(calls []call) string {
	other := "in process"
	if e.world.Streams {
		other = "over streams"
	}
	https := 0
	for _, c := range calls {
		if c.HTTP.Version != "" {
			https++
		}
	}
	switch {
	case len(calls) == 0:
		return "nobody called"
	case https == 0:
		return other
	case https == len(calls):
		return "over HTTPS"
	}
	return "over HTTPS and " + other
}

// spoken are what was special about calls over HTTPS.
func spoken(calls []call) []string {
	var all []string
	for i, c := range calls {
		if c.HTTP.Version != "" {
			all = append(all, "asked in "+path.Base(c.HTTP.Version))
		}
		if i > 0 && c == calls[i-1] && c.HTTP.Version != "" {
			all = append(all, "asked again")
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// String lists the counts, the most frequent first.
func (y *tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var out strings.Builder
	for _, what := range slices.SortedFunc(maps.Keys(y.seen), func(a, b string) int {
		return cmp.Or(cmp.Compare(y.seen[b], y.seen[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&out, "\n%8d %s", y.seen[what], what)
	}
	return out.String()
}
