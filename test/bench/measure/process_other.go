//go:build !linux

package measure

import (
	"errors"
	"time"
)

// Process is the time of processors that another process has used, where the system says it to everybody.
func Process(int) (time.Duration, error) {
	return 0, errors.New("measure: the processor time of another process is known on Linux only")
}
