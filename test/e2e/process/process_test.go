package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// parentOf, when set, makes this test binary a program that starts the shell
// script it holds, prints the child's process id and waits to be killed.
const parentOf = "PROCESS_TEST_PARENT_OF"

func TestMain(m *testing.M) {
	if script := os.Getenv(parentOf); script != "" {
		beParent(script)
		return
	}
	goleak.VerifyTestMain(m)
}

func beParent(script string) {
	child, err := process.Start(process.Command{Path: "/bin/sh", Args: []string{"-c", script}, LogFile: os.DevNull})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintln(os.Stdout, child.Pid())
	<-child.Exited()
}

// shell starts a script, which is killed when the test ends if it still runs.
func shell(t *testing.T, script string) *process.Process {
	t.Helper()
	p, err := process.Start(process.Command{
		Path:    "/bin/sh",
		Args:    []string{"-c", script},
		Env:     []string{"GREETING=hello"},
		LogFile: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func logged(p *process.Process, line string) func(context.Context) error {
	return func(context.Context) error {
		if strings.Contains(p.Tail(5), line) {
			return nil
		}
		return errors.New("not logged yet")
	}
}

func TestErrIsTheExitStatus(t *testing.T) {
	if err := shell(t, "exit 0").Err(); err != nil {
		t.Errorf("status 0: error %v", err)
	}
	var exit *exec.ExitError
	if err := shell(t, "exit 3").Err(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("status 3: error %v", err)
	}
}

func TestBothOutputsAndTheEnvironmentReachTheLog(t *testing.T) {
	p := shell(t, `echo "$GREETING"; echo world >&2`)
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	if tail := p.Tail(2); !strings.Contains(tail, "hello") || !strings.Contains(tail, "world") {
		t.Errorf("tail = %q, want both lines", tail)
	}
	if tail := p.Tail(1); strings.Contains(tail, "hello") {
		t.Errorf("tail of one line = %q, want the last line alone", tail)
	}
}

func TestStartFailsWithoutTheProgram(t *testing.T) {
	_, err := process.Start(process.Command{Path: "/does/not/exist", LogFile: filepath.Join(t.TempDir(), "log")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v, want that the file does not exist", err)
	}
}

func TestStopLetsTheProcessEndByItself(t *testing.T) {
	p := shell(t, `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	if err := p.Await(t.Context(), logged(p, "ready")); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(0); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("end: %v, want status 0", err)
	}
	if tail := p.Tail(1); !strings.Contains(tail, "bye") {
		t.Errorf("tail = %q, want the trap's output", tail)
	}
	if err := p.Stop(0); err != nil {
		t.Errorf("stop a second time: %v", err)
	}
}

func TestStopKillsAProcessThatDoesNotEnd(t *testing.T) {
	p := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	if err := p.Await(t.Context(), logged(p, "ready")); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("stop: %v, want that it was killed", err)
	}
}

func TestAwaitGivesUpWhenTheProcessEnds(t *testing.T) {
	p := shell(t, "echo no such luck; exit 1")
	err := p.Await(t.Context(), func(context.Context) error { return errors.New("not ready") })
	if err == nil || !strings.Contains(err.Error(), "no such luck") || !strings.Contains(err.Error(), "ended before it was ready") {
		t.Errorf("error = %v, want the log of a process that ended", err)
	}
}

func TestAwaitGivesUpWithTheContext(t *testing.T) {
	p := shell(t, "exec sleep 600")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := p.Await(ctx, func(context.Context) error { return errors.New("not ready") })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want the deadline", err)
	}
}

func TestNoProcessSurvivesAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentOf+"=exec sleep 600")
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("read the child's process id: %v", err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(child) {
		t.Fatal("the child does not run")
	}

	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed, as asked

	deadline := time.After(time.Minute)
	for alive(child) {
		select {
		case <-deadline:
			t.Fatalf("process %d still runs", child)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// alive says whether the process runs. A process that has ended is dead, even
// before its parent waits for it.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, ok := strings.Cut(string(stat), ") ")
	return ok && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
