// Package process runs the programs of the end-to-end tests: each with its
// output in a log file, each ended by its own process id, and none of them
// alive after the test binary, however that ends.
//
// The last promise is the kernel's parent death signal, which Linux sends
// when the *thread* that started the child ends. Every process is therefore
// started by a goroutine that stays locked to its thread until the process
// has been waited for.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// DefaultGrace is how long Stop waits between SIGTERM and SIGKILL.
const DefaultGrace = time.Minute

// Command is a program to run.
type Command struct {
	// Path is the program's file.
	Path string
	// Args are its arguments, without the program's own name.
	Args []string
	// Env is added to the environment of the test binary, as KEY=value.
	Env []string
	// Dir is the working directory, to which a relative Path refers; the test
	// binary's own when "".
	Dir string
	// Stdin is standard input; nil is an empty one.
	Stdin *os.File
	// LogFile receives standard output and standard error; it is appended to,
	// so that a restarted process keeps the log of the one before.
	LogFile string
}

// Process is one running program. Its methods are safe for concurrent use.
type Process struct {
	name    string
	logFile string
	handle  *os.Process
	exited  chan struct{}
	err     error // written before exited is closed, read after
}

// Start runs c. The caller owns the process, and ends it with Stop or Kill. The
// error is an error of the start alone.
func Start(c Command) (*Process, error) {
	p := &Process{name: filepath.Base(c.Path), logFile: c.LogFile, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(c, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// run owns the process from start to wait, on one thread: see the package
// comment.
func (p *Process) run(c Command, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.exited)

	log, err := os.OpenFile(c.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		started <- err
		return
	}
	defer log.Close()

	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	cmd.Stdout, cmd.Stderr = log, log
	if c.Stdin != nil { // a nil *os.File is no nil io.Reader
		cmd.Stdin = c.Stdin
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.handle = cmd.Process
	started <- nil
	p.err = cmd.Wait()
}

// Pid is the process id. After Exited is closed it names nothing any more.
func (p *Process) Pid() int { return p.handle.Pid }

// Exited is closed when the process has ended and was waited for.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err says how the process ended: nil for status 0, else an *exec.ExitError.
// It waits for the end.
func (p *Process) Err() error {
	<-p.exited
	return p.err
}

// Signal sends s. A process that has already ended is not an error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.handle.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the process at once, as a crash would, and waits for the end.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.exited
	return err
}

// Stop asks the process to end with SIGTERM, kills it when it has not ended
// within grace (0 means DefaultGrace), and waits for the end. That it had to
// be killed is an error; how it ended otherwise is Err's to say.
func (p *Process) Stop(grace time.Duration) error {
	if grace == 0 {
		grace = DefaultGrace
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(grace):
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s did not end within %v of SIGTERM and was killed", p.name, grace)
}

// Await polls ready until it returns nil. It gives up when ctx ends or the
// process does, with the last error of ready and the end of the log.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	const interval = 50 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended before it was ready: %w\n%s", p.name, errors.Join(p.err, err), p.Tail(tailLines))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, errors.Join(ctx.Err(), err), p.Tail(tailLines))
		case <-tick.C:
		}
	}
}

// tailLines is how much of a log an error quotes.
const tailLines = 30

// Tail is the last lines of the log, each indented, under a heading with the
// log's path. It is meant for a failed test's output.
func (p *Process) Tail(lines int) string {
	data, err := os.ReadFile(p.logFile)
	if err != nil {
		return fmt.Sprintf("(no log of %s: %v)", p.name, err)
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return fmt.Sprintf("last lines of %s:\n\t%s", p.logFile, strings.Join(all, "\n\t"))
}
