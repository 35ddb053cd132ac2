// Package measure puts a load on something that judges reviews, and says what a review took: time, processor and memory.
//
// Both ends of every connection run in this process, so that processor and memory are those of both together. A [Run]
// measures the whole process: one runs at a time, with nothing else beside it.
package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// maxInFlight bounds the reviews of an open load that run at a time, and those that wait for it. Past that the rate is
	// too high.
	maxInFlight = 256
	// firstLatencies is how many latencies a caller has room for before its memory grows.
	firstLatencies = 1 << 15
)

// errOverrun ends an open load whose reviews take longer than they come.
var errOverrun = errors.New("measure: reviews come faster than they are judged")

// Review judges one review and checks the answer. It is called from many goroutines at once.
type Review func(ctx context.Context) error

// Load is how reviews are sent.
type Load struct {
	// Rate is how many are sent in a second, whether or not the ones before are answered; 0 is a closed load: each caller
	// sends the next one when the last is answered.
	Rate float64
	// Callers is how many callers a closed load has; 0 is one.
	Callers int
	// Duration is how long the load lasts at least.
	Duration time.Duration
	// Least is how many reviews it has at least, however long they take; of each caller in a closed load.
	Least int
}

// Sample is what one load showed.
type Sample struct {
	// Reviews is how many were judged.
	Reviews int `json:"reviews"`
	// Rate is how many were sent in a second by an open load; 0 after a closed one.
	Rate float64 `json:"rate,omitempty"`
	// Callers is how many callers a closed load had; 0 after an open one.
	Callers int `json:"callers,omitempty"`
	// Throughput is how many were judged in a second.
	Throughput float64 `json:"throughput"`
	// P50 and P99 are the median of the time that a review took and its 99th percentile, in microseconds.
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	// Allocs and AllocBytes are the allocations on the heap for a review, and their size.
	Allocs     float64 `json:"allocs"`
	AllocBytes float64 `json:"allocBytes"`
	// CPU is the time of processors for a review, system and user, in microseconds.
	CPU float64 `json:"cpu"`
}

// Run puts the load on review. One review that fails ends it: a fast refusal is no result.
func Run(ctx context.Context, review Review, load Load) (Sample, error) {
	if load.Rate > 0 {
		load.Callers = 0
	} else {
		load.Callers = max(load.Callers, 1)
	}
	runtime.GC() // of what was measured before
	before, err := spent()
	if err != nil {
		return Sample{}, err
	}
	var latencies []time.Duration
	if load.Rate > 0 {
		latencies, err = open(ctx, review, load)
	} else {
		latencies, err = closed(ctx, review, load)
	}
	if err != nil {
		return Sample{}, err
	}
	after, err := spent()
	if err != nil {
		return Sample{}, err
	}
	return newSample(load, after.since(before), latencies)
}

// newSample folds what a load showed.
func newSample(load Load, cost usage, all []time.Duration) (Sample, error) {
	slices.Sort(all)
	n := float64(len(all))
	if n == 0 || cost.wall <= 0 {
		return Sample{}, errors.New("measure: there was no review")
	}
	return Sample{
		Reviews: len(all), Rate: load.Rate, Callers: load.Callers, Throughput: n / cost.wall.Seconds(),
		P50: micros(percentile(all, 50)), P99: micros(percentile(all, 99)),
		Allocs: float64(cost.allocs) / n, AllocBytes: float64(cost.bytes) / n, CPU: micros(cost.cpu) / n,
	}, nil
}

// closed runs a closed load and returns the latencies.
func closed(ctx context.Context, review Review, load Load) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end := time.Now().Add(load.Duration)
	latencies := make([][]time.Duration, load.Callers)
	var callers sync.WaitGroup
	for i := range latencies {
		callers.Go(func() {
			mine := make([]time.Duration, 0, firstLatencies)
			for begun := time.Now(); begun.Before(end) || len(mine) < load.Least; {
				if err := review(ctx); err != nil {
					cancel(fmt.Errorf("a review failed: %w", err))
					return
				}
				now := time.Now()
				mine = append(mine, now.Sub(begun))
				begun = now
			}
			latencies[i] = mine
		})
	}
	callers.Wait()
	return slices.Concat(latencies...), context.Cause(ctx)
}

// sending is a review of an open load on its way.
type sending struct {
	number int
	at     time.Time
}

// open runs an open load and returns the latencies. A latency counts from the moment when the review was sent out, not
// from when a worker took it up.
func open(ctx context.Context, review Review, load Load) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sent := make(chan sending, maxInFlight)
	latencies := make([]time.Duration, max(load.Least, int(load.Rate*load.Duration.Seconds())))
	var workers sync.WaitGroup
	for range maxInFlight {
		workers.Go(func() {
			for s := range sent {
				if err := review(ctx); err != nil {
					cancel(fmt.Errorf("a review failed: %w", err))
					continue // the sender stops
				}
				latencies[s.number] = time.Since(s.at)
			}
		})
	}
	if err := send(ctx, sent, load.Rate, len(latencies)); err != nil {
		cancel(err)
	}
	close(sent)
	workers.Wait()
	return latencies, context.Cause(ctx)
}

// send sends n reviews out at their times. One that is late goes at once, so that the rate holds.
func send(ctx context.Context, to chan<- sending, rate float64, n int) error {
	begun := time.Now()
	for i := range n {
		due := begun.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if waitUntil(ctx, due) != nil {
			return context.Cause(ctx)
		}
		select {
		case to <- sending{i, time.Now()}:
		default:
			return errOverrun
		}
	}
	return nil
}
