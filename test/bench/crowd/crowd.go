// Package crowd measures one dispatcher that has many sessions and hooks. The hosts are in a process of their own, so that
// the memory of this one is the dispatcher's.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/mesh"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

const (
	// matching is how many of the hooks match the review.
	matching = 8
	// callers is how many callers a full load of reviews has.
	callers = 32
	// restPeriods is how many pings each session gets while nobody asks anything, at least.
	restPeriods = 3
	// collections is how often garbage is collected before memory is read: pools are emptied by two, and each halves the
	// stacks of goroutines that need less.
	collections = 8
)

// Options are the settings of a measurement.
type Options struct {
	// Sessions is how many hosts there are, each with one hook.
	Sessions int
	// Hooks is the number of configured hooks. Each is served by at least one host if there are as many.
	Hooks int
	// Duration is how long each load of reviews takes, in all its rounds together.
	Duration time.Duration
	// Rounds is how often each load is measured.
	Rounds int
	// HeapProfile gets the heap as it is when all are connected; nil is nobody.
	HeapProfile io.Writer
	// RestProfile gets the CPU profile of an idle mesh; nil writes none.
	RestProfile io.Writer
	// Hosts starts the hosts, and returns once all are in rotation.
	Hosts func(ctx context.Context, o HostOptions) (StopHosts, error)
}

// Measure measures one crowd.
func Measure(ctx context.Context, o Options) (report.Crowd, error) {
	keys, err := pki.New()
	if err != nil {
		return report.Crowd{}, err
	}
	m, err := mesh.Start(ctx, mesh.Options{Keys: keys, Hosts: mesh.Elsewhere, Scenario: scenario.Scenario{
		Stage: scenario.Validate, Hooks: matching, Hosts: matching, Bytes: scenario.Small, Configured: o.Hooks,
	}})
	if err != nil {
		return report.Crowd{}, err
	}
	c := &crowd{options: o, mesh: m, shown: report.Crowd{CrowdSize: report.CrowdSize{Sessions: o.Sessions, Hooks: o.Hooks}}}
	err = c.measure(ctx, keys)
	return c.shown, errors.Join(err, m.Close())
}

// crowd is a crowd under measurement.
type crowd struct {
	options Options
	mesh    *mesh.Mesh
	shown   report.Crowd
}

// measure connects the hosts, and sends reviews.
func (c *crowd) measure(ctx context.Context, keys *pki.PKI) error {
	before, begun := inUse(), time.Now()
	stop, err := c.options.Hosts(ctx, HostOptions{
		Address: c.mesh.Address(), Keys: keys.Files(), Sessions: c.options.Sessions, Hooks: c.options.Hooks,
	})
	if err != nil {
		return fmt.Errorf("crowd: the hosts: %w", err)
	}
	c.shown.Connect = time.Since(begun)
	c.memory(before, inUse())
	err = c.connected(ctx)
	var err2 error
	c.shown.Lost, err2 = stop()
	return errors.Join(err, err2)
}

// connected measures while all hosts are connected.
func (c *crowd) connected(ctx context.Context) error {
	if c.options.HeapProfile != nil {
		if err := pprof.Lookup("heap").WriteTo(c.options.HeapProfile, 0); err != nil {
			return fmt.Errorf("crowd: %w", err)
		}
	}
	var err error
	if c.shown.Rest, err = c.rest(ctx); err != nil {
		return err
	}
	if c.shown.Still, err = c.reviews(ctx); err != nil {
		return err
	}
	return c.updating(ctx)
}

// rest is how many processors this process keeps busy while nobody asks anything.
func (c *crowd) rest(ctx context.Context) (float64, error) {
	if c.options.RestProfile != nil {
		if err := pprof.StartCPUProfile(c.options.RestProfile); err != nil {
			return 0, fmt.Errorf("crowd: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	begun, spent := time.Now(), measure.Own()
	select {
	case <-time.After(max(c.options.Duration, restPeriods*stream.PingInterval)):
		return (measure.Own() - spent).Seconds() / time.Since(begun).Seconds(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// memory divides the added memory by the number of sessions.
func (c *crowd) memory(before, after usage) {
	n := float64(c.options.Sessions)
	c.shown.Heap = (after.heap - before.heap) / n
	c.shown.Live = (after.live - before.live) / n
	c.shown.Stacks = (after.stacks - before.stacks) / n
	c.shown.Goroutines = (after.goroutines - before.goroutines) / n
}

// usage is the memory of a process, in bytes.
type usage struct{ heap, live, stacks, goroutines float64 }

// inUse returns the memory of this process.
func inUse() usage {
	for range collections {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{float64(m.HeapInuse), float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// reviews is the throughput of reviews.
func (c *crowd) reviews(ctx context.Context) (report.Figure, error) {
	var values []float64
	load := measure.Load{Callers: callers, Duration: c.options.Duration / time.Duration(c.options.Rounds), Least: 1}
	for range c.options.Rounds {
		s, err := measure.Run(ctx, c.mesh.Review, load)
		if err != nil {
			return report.Figure{}, fmt.Errorf("crowd: %w", err)
		}
		values = append(values, s.Throughput)
	}
	return report.NewFigure(values), nil
}

// updating is the throughput of reviews while the configuration changes all the time.
func (c *crowd) updating(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var compiling, spreading []time.Duration
	ended := make(chan error, 1)
	go func() {
		for revision := 1; ; revision++ {
			compiled, spread, err := c.mesh.Update(revision)
			compiling, spreading = append(compiling, compiled), append(spreading, spread)
			if err != nil || ctx.Err() != nil {
				ended <- err
				return
			}
		}
	}()
	var err error
	c.shown.Updated, err = c.reviews(ctx)
	cancel()
	err = errors.Join(err, <-ended)
	slices.Sort(compiling)
	slices.Sort(spreading)
	c.shown.Updates = len(compiling)
	c.shown.Compiling, c.shown.Spreading = compiling[len(compiling)/2], spreading[len(spreading)/2]
	return err
}
