// Package peers compares Portcullis with a webhook in Go, with ValidatingAdmissionPolicies in kube-apiserver, and with OPA, Gatekeeper and
// Kyverno, as far as PORTCULLIS_PEERS has them: all run the same four checks on Deployments. docs/peers.md says how to build them, and has the
// results.
package peers

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/test/bench/measure"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

const (
	// peersVariable is the environment variable with the directory of the peers' programs. Without it nothing is measured for long.
	peersVariable = "PORTCULLIS_PEERS"
	// callers is how many callers a full load has.
	callers = 16
	// part is the ratio between a full load and the one in which times are taken.
	part = 10
	// least is how many reviews times are taken of.
	least = 20
	// startTimeout bounds the time until a side judges as it should.
	startTimeout = 1 * time.Minute
)

// side is a contender in the comparison, running.
type side struct {
	name, namespace string
	// processes are all of the side's own, without kube-apiserver.
	processes []*process.Process
	// webhook takes AdmissionReviews; nil without.
	webhook *target
	// writes are creations of Deployments, in a namespace that the side alone judges.
	writes *target
	// compute judges without a server; nil where nothing of the side does.
	compute compute

	alone              []float64 // of each round, in µs
	asWebhook, asWrite []figures // of each round
}

// figures are the figures of one round.
type figures struct{ cpu, p50, p99 float64 } // in µs; cpu of all processes of the side, for a review

// comparison is shared by all sides.
type comparison struct {
	cluster *kube.Cluster
	tree    build.Tree
	peers   string // the directory of the peers' programs
	cases   []testCase
}

// TestPeers prints the comparison. Without [peersVariable] it makes sure that the sides without a peer work.
func TestPeers(t *testing.T) {
	citest.Gate(t, "starts a cluster of its own: 20 s")
	c := newComparison(t)
	rounds, duration := 1, 50*time.Millisecond
	if c.peers != "" {
		rounds, duration = 5, 2*time.Second
	}
	t.Logf("load average at the start: %.2f", measure.LoadAverage())
	var sides []*side
	var absent []string
	for _, begin := range []func(*testing.T) *side{
		c.noCheck, c.native, c.portcullisHost, c.portcullisPolicies, c.apiServerPolicies, c.opa, c.gatekeeperRego, c.gatekeeperCEL, c.kyverno,
	} {
		s := begin(t)
		if s.writes == nil {
			absent = append(absent, s.name)
			continue
		}
		if err := c.verdicts(t.Context(), s); err != nil {
			t.Errorf("%s is not compared: %v", s.name, err)
			continue
		}
		sides = append(sides, s)
	}
	for range rounds {
		for _, s := range sides {
			if err := c.measure(t.Context(), s, duration); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
	}
	t.Log("\n" + table(t, sides, absent))
}

func newComparison(t *testing.T) *comparison {
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kube.Start(t.Context(), kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
		if err := cluster.Remove(); err != nil {
			t.Error(err)
		}
	})
	return &comparison{cluster: cluster, tree: tree, peers: os.Getenv(peersVariable), cases: testCases(t)}
}

// verdicts is an error unless the side gives each case its verdict, by each road. Sides may begin with other verdicts: it waits.
func (c *comparison) verdicts(ctx context.Context, s *side) error {
	for _, road := range []*target{s.webhook, s.writes} {
		if road == nil {
			continue
		}
		var last error
		err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
			last = c.verdictsBy(ctx, s, road)
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", road.url, last)
		}
	}
	return nil
}

func (c *comparison) verdictsBy(ctx context.Context, s *side, road *target) error {
	for _, asked := range c.cases {
		allowed, err := road.judge(ctx, asked)
		if err != nil {
			return fmt.Errorf("%s: %w", asked.name, err)
		}
		if s.name != noCheck && allowed != asked.allowed {
			return fmt.Errorf("%s: allowed: %t", asked.name, allowed)
		}
	}
	return nil
}

// measure adds the figures of a round.
func (c *comparison) measure(ctx context.Context, s *side, duration time.Duration) error {
	if s.compute != nil {
		alone, err := s.compute(ctx, duration)
		if err != nil {
			return err
		}
		s.alone = append(s.alone, alone)
	}
	if s.webhook != nil {
		f, err := c.load(ctx, s.webhook, s.processes, duration)
		if err != nil {
			return err
		}
		s.asWebhook = append(s.asWebhook, f)
	}
	f, err := c.load(ctx, s.writes, append(slices.Clone(s.processes), c.cluster.APIServer()), duration)
	s.asWrite = append(s.asWrite, f)
	return err
}

// load takes processor time at a full load, and times at a tenth of it.
func (c *comparison) load(ctx context.Context, road *target, processes []*process.Process, duration time.Duration) (figures, error) {
	review := func(ctx context.Context) error {
		allowed, err := road.judge(ctx, c.cases[0])
		if err == nil && !allowed {
			err = fmt.Errorf("%s denied it", road.url)
		}
		return err
	}
	if _, err := measure.Run(ctx, review, measure.Load{Callers: callers, Duration: duration / part}); err != nil { // warms up
		return figures{}, err
	}
	before, err := used(processes)
	if err != nil {
		return figures{}, err
	}
	full, err := measure.Run(ctx, review, measure.Load{Callers: callers, Duration: duration})
	if err != nil {
		return figures{}, err
	}
	after, err := used(processes)
	if err != nil {
		return figures{}, err
	}
	low, err := measure.Run(ctx, review, measure.Load{Rate: full.Throughput / part, Duration: duration, Least: least})
	cpu := float64((after - before).Nanoseconds()) / float64(time.Microsecond.Nanoseconds()) / float64(full.Reviews)
	return figures{cpu: cpu, p50: low.P50, p99: low.P99}, err
}

// used is the processor time of processes so far.
func used(processes []*process.Process) (time.Duration, error) {
	var all time.Duration
	for _, p := range processes {
		one, err := measure.Process(p.Pid())
		if err != nil {
			return 0, err
		}
		all += one
	}
	return all, nil
}

// table is the result, in Markdown.
func table(t *testing.T, sides []*side, absent []string) string {
	var b strings.Builder
	const head = "| | µs of processor | reviews/s for a processor | p50, µs | p99, µs |%s\n|---|---|---|---|---|%s\n"
	fmt.Fprintf(&b, "As a webhook:\n\n"+head, " MB |", "---|")
	for _, s := range sides {
		if s.webhook != nil {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", s.name, cells(s.asWebhook), memory(t, s))
		}
	}
	fmt.Fprintf(&b, "\nThrough kube-apiserver:\n\n"+head, "", "")
	for _, s := range sides {
		fmt.Fprintf(&b, "| %s | %s |\n", s.name, cells(s.asWrite))
	}
	b.WriteString("\nCompute alone:\n\n| | µs |\n|---|---|\n")
	for _, s := range sides {
		if len(s.alone) > 0 {
			alone, _ := spread(s.alone, func(micros float64) float64 { return micros })
			fmt.Fprintf(&b, "| %s | %s |\n", s.name, alone)
		}
	}
	fmt.Fprintf(&b, "\nNot built: %s\n", strings.Join(absent, ", "))
	return b.String()
}

// cells are the four cells of a road.
func cells(rounds []figures) string {
	cpu, all := spread(rounds, func(f figures) float64 { return f.cpu })
	p50, _ := spread(rounds, func(f figures) float64 { return f.p50 })
	p99, _ := spread(rounds, func(f figures) float64 { return f.p99 })
	const second = 1e6 // in µs
	return fmt.Sprintf("%s | %.0f | %s | %s", cpu, second/all[len(all)/2], p50, p99)
}

// spread is the median of all rounds, with the least and the most.
func spread[T any](rounds []T, of func(T) float64) (string, []float64) {
	var all []float64
	for _, f := range rounds {
		all = append(all, of(f))
	}
	slices.Sort(all)
	return fmt.Sprintf("%.0f (%.0f to %.0f)", all[len(all)/2], all[0], all[len(all)-1]), all
}

// memory is the resident memory of a side's processes.
func memory(t *testing.T, s *side) string {
	var all int64
	for _, p := range s.processes {
		one, err := p.Memory()
		if err != nil {
			t.Error(err)
		}
		all += one
	}
	return fmt.Sprintf("%.0f", float64(all)/1e6)
}
