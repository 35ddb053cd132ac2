package measure

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// longestWait bounds how late the end of a context is noticed.
const longestWait = 10 * time.Millisecond

// alarm wakes one goroutine at moments. An idle Go program wakes its own timers a millisecond late, which would make bursts of a hundred reviews out
// of a fast rate. A thread that sleeps in the kernel is in time, but the runtime watches it from another thread and then polls: at 200
// reviews a second that was a third of their processor time. So a timer of the kernel wakes the goroutine, as a request that comes from the network does.
type alarm struct {
	file *os.File
	raw  syscall.RawConn
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("measure: timerfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timer")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	return &alarm{file, raw}, nil
}

func (a *alarm) close() { _ = a.file.Close() }

// wait waits for a moment, or the end of ctx.
func (a *alarm) wait(ctx context.Context, due time.Time) error {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.sleep(min(left, longestWait)); err != nil {
			return fmt.Errorf("measure: timerfd: %w", err)
		}
	}
	return ctx.Err()
}

// sleep sets the timer, and waits until it can be read. It is not read: it is set anew each time.
func (a *alarm) sleep(d time.Duration) error {
	var failed error
	set := false
	err := a.raw.Read(func(fd uintptr) (done bool) {
		if set {
			return true
		}
		set = true
		failed = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}, nil)
		return failed != nil
	})
	if failed != nil {
		return failed
	}
	return err
}
