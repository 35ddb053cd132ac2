package dispatcher_test

import (
	"flag"
	"fmt"
	"sync"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// The differential test: random configurations, requests and hooks, once through kube-apiserver's own webhook plugins (internal/oracle) and once
// through the dispatcher, with the same scripts behind both. Every outcome has to be the same, or be explained by a deviation that docs/deviations.md
// lists (differential_deviations_test.go).
//
//	PORTCULLIS_CASES=100000 PORTCULLIS_SEED=7 go test ./dispatcher -run TestDifferential
//
// Each world (a cluster with its configurations) has a seed of its own and sees a number of requests. A failure names the seed of its world, and
// prints the smallest case that still fails. This command repeats a failure of a long run:
//
//	PORTCULLIS_CASES=1 PORTCULLIS_SEED=1234 go test ./dispatcher -run TestDifferential -differential.deadlines

// differentialDeadlines repeats one world of a long run: without it a short run makes other requests of the same seed.
var differentialDeadlines = flag.Bool("differential.deadlines", false,
	fmt.Sprintf("give some requests a deadline, as runs of %d cases or more do", manyCases))

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

// differentialCases is how many requests the differential test makes.
func differentialCases() int { return citest.Cases(enoughCases, 2*enoughCases, 2*enoughCases) }

func TestDifferential(t *testing.T) {
	cases := differentialCases()
	total := &tally{seen: map[string]int{}}
	worlds := (cases + requestsPerWorld - 1) / requestsPerWorld
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
		seeds <- citest.Seed() + uint64(i)
	}
	close(seeds)
	workers.Wait()
	t.Log(total)
	if t.Failed() {
		return
	}
	for _, what := range interesting(cases) {
		if total.seen[what] == 0 {
			t.Errorf("no case of %q: the test does not see enough", what)
		}
	}
}

// visit makes the requests of one world.
func visit(t *testing.T, seed uint64, total *tally) {
	r := newChance(seed)
	w := r.world()
	w.speculate(newChance(^seed))
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
