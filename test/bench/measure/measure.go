// Package measure puts a load on something that judges reviews, and measures a review: time, processor and memory.
//
// Both ends of every connection run in this process, so that processor and memory count both together. A [Run] measures
// the whole process: one runs at a time, with nothing else beside it.
package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

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

// Sample has the figures of one load.
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
	// Reads and Writes are system calls for a review, of sockets and files; 0 where the kernel does not count them.
	Reads  float64 `json:"reads,omitempty"`
	Writes float64 `json:"writes,omitempty"`
	// Waits is how often a thread slept for a review, until another thread or the kernel woke it. Runs is how often a goroutine did.
	Waits float64 `json:"waits,omitempty"`
	Runs  float64 `json:"runs,omitempty"`
	// ProcessCPU is the processor time of the host's or the webhook's process alone, if it is another one. The runner of the
	// load fills it.
	ProcessCPU float64 `json:"processCPU,omitempty"`
	// Calls is how many calls of hooks a review cost, as the hooks counted them. Whoever runs the load fills it.
	Calls float64 `json:"calls,omitempty"`
}

// load is one load that is ready to run: its memory is there, and its goroutines wait, so that neither is measured.
type load interface {
	// run sends the reviews and returns the time of each. It is called once.
	run() ([]time.Duration, error)
}

// Run puts the load on review. One review that fails ends it: a fast refusal is no result.
func Run(ctx context.Context, review Review, how Load) (Sample, error) {
	if how.Rate > 0 {
		how.Callers = 0
	} else {
		how.Callers = max(how.Callers, 1)
	}
	var ready load
	if how.Rate > 0 {
		ready = newOpen(ctx, review, how)
	} else {
		ready = newClosed(ctx, review, how)
	}
	runtime.GC() // of earlier measurements
	before, err := spent()
	latencies, failed := ready.run()
	after, err2 := spent()
	if err := errors.Join(failed, err, err2); err != nil {
		return Sample{}, err
	}
	return newSample(how, after.since(before), latencies)
}

// newSample folds the figures of a load.
func newSample(how Load, cost usage, all []time.Duration) (Sample, error) {
	slices.Sort(all)
	n := float64(len(all))
	if n == 0 || cost.wall <= 0 {
		return Sample{}, errors.New("measure: there was no review")
	}
	return Sample{
		Reviews: len(all), Rate: how.Rate, Callers: how.Callers, Throughput: n / cost.wall.Seconds(),
		P50: micros(percentile(all, 50)), P99: micros(percentile(all, 99)),
		Allocs: float64(cost.allocs) / n, AllocBytes: float64(cost.bytes) / n, CPU: micros(cost.cpu) / n,
		Reads: float64(cost.reads) / n, Writes: float64(cost.writes) / n, Waits: float64(cost.waits) / n, Runs: float64(cost.runs) / n,
	}, nil
}

// Search finds the number of callers, of 2, 4, 8 and so on up to most, with which the throughput is best, and this
// throughput. It is the least number that comes near the best: with more callers than there is work for, times only
// grow. Each number is tried for the duration; all of them, since one try is too short to end a search.
func Search(ctx context.Context, review Review, most int, duration time.Duration) (callers int, throughput float64, err error) {
	var tried []Sample
	for n := min(leastCallers, most); n <= most; n *= 2 {
		s, err := Run(ctx, review, Load{Callers: n, Duration: duration, Least: 1})
		if err != nil {
			return 0, 0, fmt.Errorf("with %d callers: %w", n, err)
		}
		tried = append(tried, s)
		throughput = max(throughput, s.Throughput)
	}
	near := slices.IndexFunc(tried, func(s Sample) bool { return s.Throughput*(1+worth) >= throughput })
	return tried[near].Callers, tried[near].Throughput, nil
}

const (
	// leastCallers is the number of callers that a search begins with.
	leastCallers = 2
	// worth is the part by which more callers have to raise the throughput.
	worth = 0.03
)
