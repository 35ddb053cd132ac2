package measure

import (
	"fmt"
	"runtime"
	"syscall"
	"time"
)

// usage has the times and the memory that the process has used.
type usage struct {
	at            time.Time
	wall, cpu     time.Duration
	allocs, bytes uint64
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
	return usage{at: time.Now(), cpu: cpu, allocs: m.Mallocs, bytes: m.TotalAlloc}, nil
}

// since returns the use between two readings.
func (u usage) since(before usage) usage {
	return usage{
		wall: u.at.Sub(before.at), cpu: u.cpu - before.cpu,
		allocs: u.allocs - before.allocs, bytes: u.bytes - before.bytes,
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
