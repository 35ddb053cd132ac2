package measure

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage has the times, the memory and the events that the process has used.
type usage struct {
	at            time.Time
	wall, cpu     time.Duration
	allocs, bytes uint64
	reads, writes uint64 // system calls
	waits         uint64 // of threads
	runs          uint64 // of goroutines
}

// spent reads the accounts of the process.
func spent() (usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, fmt.Errorf("measure: getrusage: %w", err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	cpu := time.Duration(r.Utime.Nano() + r.Stime.Nano())
	reads, writes := systemCalls()
	return usage{
		at: time.Now(), cpu: cpu, allocs: m.Mallocs, bytes: m.TotalAlloc,
		reads: reads, writes: writes, waits: uint64(r.Nvcsw), runs: goroutineRuns(),
	}, nil
}

// systemCalls are the calls of this process that read and write; 0 where the system does not say.
func systemCalls() (reads, writes uint64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil:
		case name == "syscr":
			reads = n
		case name == "syscw":
			writes = n
		}
	}
	return reads, writes
}

// runsSampled is gTrackingPeriod of the runtime: it measures one in so many runs of goroutines.
const runsSampled = 8

// goroutineRuns is how often a goroutine that was ready has begun to run.
func goroutineRuns() (n uint64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += count
	}
	return n * runsSampled
}

// since returns the use between two readings.
func (u usage) since(before usage) usage {
	return usage{
		wall: u.at.Sub(before.at), cpu: u.cpu - before.cpu,
		allocs: u.allocs - before.allocs, bytes: u.bytes - before.bytes,
		reads: u.reads - before.reads, writes: u.writes - before.writes, waits: u.waits - before.waits, runs: u.runs - before.runs,
	}
}

// percentile is the smallest of the sorted values that p percent of them do not exceed; zero without values.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100 // rounded up
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// micros is a duration in microseconds.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
