package measure

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Process is the time of processors that another process has used, system and user, with all its threads that were and are. It is the
// scheduler's own account, in nanoseconds: /proc counts in hundredths of a second.
func Process(pid int) (time.Duration, error) {
	const scheduled = 2 // of the clocks of a process, the scheduler's
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &used); err != nil {
		return 0, fmt.Errorf("measure: the processor time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}
