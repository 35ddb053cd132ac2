package conformance_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/portcullis-mesh/portcullis/sdk/conformance"
)

type (
	settings = conformance.Settings
	event    = conformance.Event
)

const (
	validating = "a.example.com"
	mutating   = "b.example.com"
)

// filled has a name and a hook of each kind, unless the case has chosen its own.
func filled(o settings) settings {
	o.Name = cmp.Or(o.Name, "conformance")
	if o.Validate == nil && o.Mutate == nil && o.Initialize == nil {
		o.Validate, o.Mutate = []string{validating}, []string{mutating}
	}
	return o
}

// program is a running test host.
type program struct {
	*stage

	cmd    *exec.Cmd
	in     io.WriteCloser
	log    syncBuffer
	events record[event]
	exited chan struct{} // closed behind the last event
}

// start starts a test host, which ends with the case.
func (s *stage) start(o settings) *program {
	s.Helper()
	file := filepath.Join(must[string](s)(os.MkdirTemp(s.dir, "host")), "config.json")
	s.check(os.WriteFile(file, must[[]byte](s)(filled(o).File()), 0o600))
	p := &program{stage: s, exited: make(chan struct{})}
	p.cmd = exec.Command(s.command[0], append(s.command[1:len(s.command):len(s.command)], file)...)
	p.cmd.Dir, p.cmd.Stderr = "../..", &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // It may be a script that starts the host.
	p.in = must[io.WriteCloser](s)(p.cmd.StdinPipe())
	out := must[io.ReadCloser](s)(p.cmd.StdoutPipe())
	s.check(p.cmd.Start())
	go p.listen(out) // Waited for by end.
	s.Cleanup(p.end)
	s.latest = p
	return p
}

// listen notes the events of the host, and then its end.
func (p *program) listen(out io.Reader) {
	defer close(p.exited)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = event{Event: "unreadable: " + lines.Text()}
		}
		p.events.add(e)
	}
	_ = p.cmd.Wait() // Its state has the result.
}

// end ends whatever is left of the host, and shows its log if the case has failed.
func (p *program) end() {
	_ = p.in.Close()
	p.signal(syscall.SIGKILL)
	<-p.exited
	for _, e := range p.events.all() {
		if strings.HasPrefix(e.Event, "unreadable") {
			p.Errorf("standard output has something beside events: %s", e.Event)
		}
	}
	if strings.Contains(p.log.String(), "DATA RACE") {
		p.Error("the race detector has found something in the test host")
	}
	if p.Failed() {
		p.Logf("log of the test host:\n%s", p.log.tail(8<<10))
	}
}

// signal goes to all processes of the test host.
func (p *program) signal(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }

func (p *program) do(line map[string]string) {
	p.Helper()
	if _, err := p.in.Write(append(must[[]byte](p.stage)(json.Marshal(line)), '\n')); err != nil {
		p.Fatalf("the test host takes no commands any more: %v", err)
	}
}

func (p *program) release(name string) {
	p.Helper()
	p.do(map[string]string{"do": "release", "name": name})
}

func (p *program) drain() { p.Helper(); p.do(map[string]string{"do": "drain"}) }

// count is how many events of a kind there were. An empty hook stands for all.
func count(events []event, kind, hook string) (n int) {
	for _, e := range events {
		if e.Event == kind && (hook == "" || e.Hook == hook) {
			n++
		}
	}
	return n
}

// happened waits until an event of a hook has come n times.
func (p *program) happened(kind, hook string, n int) {
	p.Helper()
	p.await(fmt.Sprintf("event %q of %q, %d times", kind, hook, n), func(events []event) bool { return count(events, kind, hook) >= n })
}

// handlersCalled asks that so many handlers have been called so far. It asks one more, of which the event comes behind all others.
func (p *program) handlersCalled(at *session, want int) {
	p.Helper()
	at.works()
	p.await("the event of the last call", func(events []event) bool { return count(events, "called", "") > want })
	equal(p.stage, "number of handlers called", count(p.events.all(), "called", ""), want+1)
}

// await waits until the events are as wanted. The end of the host ends the case.
func (p *program) await(what string, done func(events []event) bool) {
	p.Helper()
	if !p.events.await(p.Context(), p.exited, done) {
		p.Fatalf("waited in vain for %s; the events are %v", what, lastOf(p.events.all(), 10))
	}
}

// returned waits for the first event "returned" of a hook.
func (p *program) returned(hook string) event {
	p.Helper()
	p.happened("returned", hook, 1)
	events := p.events.all()
	return events[slices.IndexFunc(events, func(e event) bool { return e.Event == "returned" && e.Hook == hook })]
}

// left waits for the end of the process, and returns its exit code and the error of its last event.
func (p *program) left() (code int, text string) {
	p.Helper()
	select {
	case <-p.exited:
	case <-time.After(*patience):
		p.Fatalf("the test host does not end; its events are %v", lastOf(p.events.all(), 10))
	}
	events := p.events.all()
	if len(events) == 0 || events[len(events)-1].Event != "ended" {
		p.Fatalf("the last event of the test host is not %q: %v", "ended", lastOf(events, 10))
	}
	return p.cmd.ProcessState.ExitCode(), events[len(events)-1].Error
}

// leftCleanly waits for the end of the process, which has to be a clean one.
func (p *program) leftCleanly() {
	p.Helper()
	if code, text := p.left(); code != 0 || text != "" {
		p.Errorf("the test host ended with code %d and error %q, want 0 and none", code, text)
	}
}

// rss is the memory of the test host's processes, in bytes.
func (p *program) rss() (sum int64) {
	p.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // The process has ended.
		}
		// Behind the name in parentheses: state, parent, group, ..., and 22nd of all fields rss, in pages.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 21 && fields[2] == strconv.Itoa(p.cmd.Process.Pid) {
			pages, _ := strconv.ParseInt(fields[21], 10, 64)
			sum += pages * int64(os.Getpagesize())
		}
	}
	if sum == 0 {
		p.Fatal("/proc has no memory of the test host")
	}
	return sum
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *syncBuffer) tail(n int) string {
	text := b.String()
	return text[max(0, len(text)-n):]
}

func lastOf[T any](items []T, n int) []T { return items[max(0, len(items)-n):] }
