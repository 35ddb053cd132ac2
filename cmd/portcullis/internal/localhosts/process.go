package localhosts

import (
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// endTimeout is the time that a host has between SIGTERM and SIGKILL.
	endTimeout = 5 * time.Second
	// maxOutput bounds the output of a host that is kept: its end.
	maxOutput = 8 << 10
)

// process is a host, in a process group of its own.
type process struct {
	name    string
	command *exec.Cmd
	output  tail
	ended   chan struct{} // closed when the process has ended
	err     error         // of its end; read after ended
}

// newProcess is a process that has not been started.
func newProcess(name string, command []string, dir string) *process {
	p := &process{name: name, command: exec.Command(command[0], command[1:]...), ended: make(chan struct{})} //nolint:noctx // end ends it
	p.command.Dir = dir
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	p.command.WaitDelay = endTimeout // of other processes that write into the output of a host which has ended
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return p
}

func (p *process) start() error {
	if err := p.command.Start(); err != nil {
		return fmt.Errorf("start the host %s: %w", p.name, err)
	}
	go func() { // it ends with the process, for which end waits
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return nil
}

// status is how the process ended, which it has.
func (p *process) status() string {
	if p.err != nil {
		return p.err.Error()
	}
	return "exit status 0"
}

// end ends the process group.
func (p *process) end() {
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
	}
	p.signal(syscall.SIGKILL) // whatever the host has left behind
	<-p.ended
}

// signal sends a signal to all processes of the group. The group may be gone.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.command.Process.Pid, s) }

// tail keeps the end of an output.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if more := len(t.kept) - maxOutput; more > 0 {
		t.kept = append(t.kept[:0], t.kept[more:]...)
	}
	return len(p), nil
}

// String is the output that is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
