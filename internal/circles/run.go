package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// result is how a step has ended.
type result struct {
	step step
	// err is why the command failed; a test that failed is in digest too.
	err  error
	took time.Duration
	// digest is empty for a command that is no run of go test.
	digest *digest
	// tail are the last lines of a command.
	tail []string
}

const (
	// silence is how long a step may print nothing before another line is printed for it.
	silence = 30 * time.Second
	// mostNamed is how many running tests that line names.
	mostNamed = 3
	// stopTime is how long a command may take to end after an interrupt.
	stopTime = 20 * time.Second
	// tailLines are kept of a command that is no run of go test.
	tailLines = 60
	// lineBytes bounds a line of output.
	lineBytes = 8 << 20
)

var (
	// summary is a line of testing or of the go command about a package.
	summary = regexp.MustCompile(`^(PASS|FAIL|ok  |\?   |exit status|coverage:|testing:|===)`)
	// testFunction begins a test. TestMain is none.
	testFunction = regexp.MustCompile(`(?m)^func Test\w+\(t \*testing\.T\)`)
)

// runner runs steps and prints their progress. Its methods may be called concurrently.
type runner struct {
	dir    string // of logs
	circle string

	mu   sync.Mutex
	out  io.Writer
	last time.Time // of a line
}

// stage runs the steps side by side and waits for all of them.
func (r *runner) stage(ctx context.Context, steps stage) []*result {
	results := make([]*result, len(steps))
	var group sync.WaitGroup
	for i, s := range steps {
		group.Go(func() { results[i] = r.step(ctx, s) })
	}
	group.Wait()
	return results
}

// step runs one step to its end.
func (r *runner) step(ctx context.Context, s step) *result {
	res := &result{step: s, digest: newDigest()}
	r.printf("==> %s: %s\n", s.Name, s.title())
	begun := time.Now()
	res.err = r.command(ctx, s, res)
	res.took = time.Since(begun)
	outcome := "ok"
	if res.err != nil {
		outcome = "FAILED"
	}
	r.printf("<== %-18s %-6s %5.0f s   %s\n", s.Name, outcome, res.took.Seconds(), res.counts())
	return res
}

// command runs the step's command and reads its output.
func (r *runner) command(ctx context.Context, s step, res *result) error {
	log, err := os.Create(filepath.Join(r.dir, s.Name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	args := s.Command
	if s.Tests != nil {
		args = append([]string{"go", "test", "-json", "-timeout=30m"}, s.Tests...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.Dir, append(os.Environ(), s.Env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopTime
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close()
	cmd.Stdout, cmd.Stderr = writer, writer
	err = cmd.Start()
	writer.Close()
	if err != nil {
		return err
	}
	stop := r.heartbeat(s.Name, time.Now(), res.digest)
	err = r.read(reader, log, s, res)
	stop()
	if waited := cmd.Wait(); waited != nil {
		return waited
	}
	return err
}

// read digests the output of a command until its end.
func (r *runner) read(from io.Reader, log io.Writer, s step, res *result) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, lineBytes)
	all := s.size()
	for lines.Scan() {
		e, ended, isEvent := res.digest.read(lines.Bytes())
		switch {
		case !isEvent:
			fmt.Fprintln(log, lines.Text())
			r.plain(s, res, lines.Text())
		case ended != nil:
			r.ended(s, res.digest, ended, all)
		default:
			fmt.Fprint(log, e.Output)
			r.progress(s, &e)
		}
	}
	if err := lines.Err(); err != nil { // a line that is too long: the command must not wait for a reader
		_, _ = io.Copy(io.Discard, from)
		return fmt.Errorf("reading the output: %w", err)
	}
	return nil
}

// plain handles a line that is no event: of a command, or of the go command itself.
func (r *runner) plain(s step, res *result, line string) {
	if res.tail = append(res.tail, line); len(res.tail) > tailLines {
		res.tail = res.tail[1:]
	}
	if s.Tests == nil || !strings.HasPrefix(line, "go: downloading ") {
		r.printf("    %s: %s\n", s.Name, line)
	}
}

// progress prints a line of a test binary that stands outside of its tests, about its start or end.
func (r *runner) progress(s step, e *event) {
	own := e.Action == "output" && e.Test == "" && !summary.MatchString(e.Output)
	if s.EachTest && own {
		r.printf("    %s: %s", s.Name, e.Output)
	}
}

// ended prints a package or test that has ended.
func (r *runner) ended(s step, d *digest, t *test, all int) {
	switch {
	case t.outcome == "fail" && t.name == "" && d.failed[t.pkg]: // its tests are printed
	case t.outcome == "fail":
		r.printf("--- %s: %s FAILED after %.1f s\n%s", s.Name, t.title(), t.took.Seconds(), strings.Join(t.output, ""))
	case s.EachTest && t.name != "" && t.outcome == "pass":
		r.printf("    %s: ok %3d of %d  %-70s %5.1f s\n", s.Name, len(d.ended), all, t.name, t.took.Seconds())
	case s.EachTest && t.name != "" && !strings.HasPrefix(t.why, "left to the "):
		r.printf("    %s: skipped  %s: %s\n", s.Name, t.name, t.why)
	case !s.EachTest && t.name == "":
		r.printf("    %s: ok %3d of %d  %-40s %5.1f s\n", s.Name, d.total, all, short(t.pkg), t.took.Seconds())
	}
}

// size is how many packages a step tests, or how many tests if it prints each; 0 if the go command fails.
func (s step) size() int {
	if s.Tests == nil {
		return 0
	}
	args := []string{"list"}
	if s.EachTest {
		args = append(args, "-f", "{{range .TestGoFiles}}{{$.Dir}}/{{.}}\n{{end}}{{range .XTestGoFiles}}{{$.Dir}}/{{.}}\n{{end}}")
	}
	for _, arg := range s.Tests {
		if !strings.HasPrefix(arg, "-") {
			args = append(args, arg)
		}
	}
	cmd := exec.Command("go", args...) //nolint:noctx // it ends in a moment
	cmd.Dir = s.Dir
	out, err := cmd.Output()
	if err != nil {
		return 0
	}
	if s.EachTest {
		return testsIn(strings.Fields(string(out)))
	}
	return strings.Count(string(out), "\n")
}

// testsIn counts the tests of files.
func testsIn(files []string) int {
	count := 0
	for _, file := range files {
		if source, err := os.ReadFile(file); err == nil { // a hint for people
			count += len(testFunction.FindAll(source, -1))
		}
	}
	return count
}

// heartbeat prints a line now and then while a step is silent, until stop is called.
func (r *runner) heartbeat(name string, begun time.Time, d *digest) (stop func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(silence)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				r.still(name, time.Since(begun), d.unfinished())
			}
		}
	})
	return func() { close(done); group.Wait() }
}

// still prints that a step goes on, and which tests run, if no line was printed for a while.
func (r *runner) still(name string, took time.Duration, tests []string) {
	r.mu.Lock()
	quiet := time.Since(r.last) >= silence
	r.mu.Unlock()
	if !quiet {
		return
	}
	doing := "the first time it compiles Kubernetes and etcd, which takes minutes"
	if len(tests) > 0 {
		doing = strings.Join(tests[:min(len(tests), mostNamed)], ", ")
	}
	if more := len(tests) - mostNamed; more > 0 {
		doing += fmt.Sprintf(" and %d more", more)
	}
	r.printf("    %s: goes on, %.0f s (%s)\n", name, took.Seconds(), doing)
}

func (r *runner) printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
	fmt.Fprintf(r.out, format, args...)
}

// title is the command as a person would type it.
func (s step) title() string {
	command := s.Command
	if s.Tests != nil {
		command = append([]string{"go", "test", "-C", s.Dir}, s.Tests...)
		if s.Dir == "." {
			command = append([]string{"go", "test"}, s.Tests...)
		}
	}
	text := strings.Join(append(append([]string{}, s.Env...), command...), " ")
	if len(text) > 200 {
		text = text[:200] + " ..."
	}
	return text
}

func (t *test) title() string { return strings.TrimSpace(short(t.pkg) + " " + t.name) }

// short is the path of a package without the module's.
func short(path string) string {
	if _, rel, found := strings.Cut(path, "/portcullis/"); found {
		return rel
	}
	return path
}
