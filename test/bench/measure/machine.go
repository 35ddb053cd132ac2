package measure

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticksPerSecond is the unit of /proc/stat, which is the same on every Linux that Go runs on.
const ticksPerSecond = 100

// Machine reads the load of this machine's processors beside this process.
type Machine struct {
	at         time.Time
	busy, mine time.Duration
}

// NewMachine begins to look; earlier load does not count. A system without /proc shows nothing.
func NewMachine() *Machine {
	m := &Machine{at: time.Now()}
	m.busy, m.mine = busyTime(), ownTime()
	return m
}

// Others is how many processors other programs kept busy since the beginning, on average. Programs that this one started
// and that have ended are no others.
func (m *Machine) Others() float64 {
	wall := time.Since(m.at)
	if m.busy == 0 || wall <= 0 {
		return 0
	}
	others := busyTime() - m.busy - (ownTime() - m.mine)
	return max(0, others.Seconds()/wall.Seconds())
}

// LoadAverage is the average number of runnable tasks of the last minute; 0 where the system does not say.
func LoadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var one float64
	if _, err := fmt.Fscan(bytes.NewReader(text), &one); err != nil {
		return 0
	}
	return one
}

// busyTime is the time that all processors have worked since the machine started; 0 where the system does not say.
func busyTime() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return busy(strings.Fields(first))
}

// busy adds up the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq and steal. Guests are in user.
func busy(fields []string) time.Duration {
	const idle, waiting, steal = 4, 5, 8
	var ticks int64
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err == nil && i > 0 && i <= steal && i != idle && i != waiting {
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// Own is the time of processors that this process has used.
func Own() time.Duration { return used(syscall.RUSAGE_SELF) }

// ownTime is the processor time of this process and of its children that it waited for.
func ownTime() time.Duration { return Own() + used(syscall.RUSAGE_CHILDREN) }

// used is the processor time of some processes.
func used(who int) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(who, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
