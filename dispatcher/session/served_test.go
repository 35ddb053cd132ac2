package session

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// wantHosts compares how hooks are served, each as "name hosts slots", followed by "unserved" if it is.
func (m *mesh) wantHosts(want ...string) {
	m.t.Helper()
	var got, unserved []string
	for _, h := range m.router.HookHosts() {
		if h.Pending != nil || h.Removed {
			continue
		}
		line := fmt.Sprint(h.Hook.ID.Name, " ", h.Hosts, " ", h.Slots)
		if h.Unserved {
			line += " unserved"
			unserved = append(unserved, h.Hook.ID.Name)
		}
		got = append(got, line)
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		m.t.Errorf("hosts %q, want %q", got, want)
	}
	var names []string
	for _, h := range m.router.Unserved() {
		names = append(names, h.ID.Name)
	}
	if strings.Join(names, " ") != strings.Join(unserved, " ") {
		m.t.Errorf("unserved %q, want %q", names, unserved)
	}
}

func TestHookHostsAreThoseThatTakeCalls(t *testing.T) {
	inBubble(t, []string{"b", "a"}, func(t *testing.T, m *mesh) {
		elapse(pool.AbsenceGrace)
		m.wantHosts("b 0 0 unserved", "a 0 0 unserved")
		one := m.connect("one", &hostv1.Hello{MaxOutstanding: 3}, "a", "b")
		m.wantHosts("b 1 3", "a 1 3")
		m.review("a")
		two := m.connect("two", &hostv1.Hello{MaxOutstanding: 5}, "a")
		m.wantHosts("b 1 3", "a 2 8") // slots that are taken are slots
		one.cancel()
		alive(pool.AbsenceGrace-stream.TickInterval, two)
		m.wantHosts("b 0 0", "a 1 5") // its host may come back
		alive(stream.TickInterval, two)
		m.wantHosts("b 0 0 unserved", "a 1 5")
		m.pending = []string{"new"}
		m.configure("a", "new")
		m.wantHosts("a 1 5") // no host is asked for a hook out of rotation, and b is gone
	})
}

func TestTheHostsOfEachHookAreAMetric(t *testing.T) {
	const head = `# HELP portcullis_hook_hosts Hosts that take calls of a hook; of hooks with one name and type, the count of the hook with the fewest.
# TYPE portcullis_hook_hosts gauge
`
	want := func(m *mesh, series string) {
		m.t.Helper()
		if err := testutil.CollectAndCompare(newHookHosts(m.router), strings.NewReader(head+series)); err != nil {
			m.t.Error(err)
		}
	}
	inBubble(t, []string{"a", "b"}, func(t *testing.T, m *mesh) {
		want(m, "portcullis_hook_hosts{name=\"a\",type=\"validating\"} 0\nportcullis_hook_hosts{name=\"b\",type=\"validating\"} 0\n")
		one := m.connect("one", &hostv1.Hello{}, "a")
		want(m, "portcullis_hook_hosts{name=\"a\",type=\"validating\"} 1\nportcullis_hook_hosts{name=\"b\",type=\"validating\"} 0\n")
		m.configure("a")
		want(m, "portcullis_hook_hosts{name=\"a\",type=\"validating\"} 1\n") // reviews that have begun may still call b
		one.cancel()
		elapse(stream.TickInterval)
		want(m, "portcullis_hook_hosts{name=\"a\",type=\"validating\"} 0\n")
	})
}

// logged are the lines of a log about hooks without hosts.
func logged(log *logBuffer) string {
	synctest.Wait() // whoever logs has logged
	var out []string
	for line := range strings.Lines(log.take()) {
		if at := strings.Index(line, "level="); strings.Contains(line, "msg=\"hooks have") {
			out = append(out, line[at:])
		}
	}
	return strings.Join(out, "")
}

// logBuffer is a log that several goroutines write.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

// take returns the text written since the last take.
func (b *logBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

func TestTheLogSaysWhenTheLastHostLeavesAndWhenOneIsBack(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(t *testing.T, m *mesh) {
		log := &logBuffer{}
		m.router.log = slog.New(slog.NewTextHandler(log, nil))
		one := m.connect("one", &hostv1.Hello{}, "a", "b")
		alive(StartGrace, one)
		one.cancel()
		elapse(pool.AbsenceGrace - stream.TickInterval)
		if got := logged(log); got != "" {
			t.Errorf("it says of a host that may come back: %s", got)
		}
		elapse(2 * stream.TickInterval)
		want := `level=WARN msg="hooks have no host: requests that fail-closed ones cover are refused" count=2 fail_closed=2 hooks=c/a,c/b` + "\n"
		if got := logged(log); got != want {
			t.Errorf("logged %s, want %s", got, want)
		}
		two := m.connect("two", &hostv1.Hello{}, "a")
		alive(AbsenceQuiet, two)
		if got, want := logged(log), `level=INFO msg="hooks have a host again" count=1 hooks=c/a`+"\n"; got != want {
			t.Errorf("logged %s, want %s", got, want)
		}
	})
}

func TestAHostThatComesAndGoesDoesNotFloodTheLog(t *testing.T) {
	a := match.HookID{Configuration: "c", Name: "a"}
	hooks, none, inForce := []*match.Hook{{ID: a}}, []*match.Hook(nil), func(match.HookID) bool { return true }
	var x absences
	now, lines := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 0
	x.update(now, none, inForce)
	for begun := now; now.Sub(begun) < StartGrace; now = now.Add(stream.TickInterval) {
		if lost, _ := x.update(now, hooks, inForce); len(lost) != 0 {
			t.Fatal("it says of a hook that its hosts may not have found the dispatcher yet")
		}
	}
	for i := range int(time.Minute / stream.TickInterval) {
		unserved := hooks
		if i%2 == 1 {
			unserved = none
		}
		lost, back := x.update(now, unserved, inForce)
		lines += len(lost) + len(back)
		now = now.Add(stream.TickInterval)
	}
	if most := int(time.Minute/AbsenceQuiet) + 1; lines == 0 || lines > most {
		t.Errorf("%d lines in a minute, want 1 to %d", lines, most)
	}
	now = now.Add(AbsenceQuiet)
	x.update(now, hooks, inForce)
	now = now.Add(AbsenceQuiet)
	if _, back := x.update(now, none, func(match.HookID) bool { return false }); len(back) != 0 {
		t.Error("a hook that is gone has a host again")
	}
	x.update(now.Add(AbsenceQuiet), none, inForce)
	if len(x.told) != 0 || len(x.quiet) != 0 {
		t.Errorf("it remembers %d hooks, and %d to be quiet of", len(x.told), len(x.quiet))
	}
}

func TestALineOfTheLogNamesFewHooks(t *testing.T) {
	var names []string
	for i := range maxAbsencesNamed + 1 {
		names = append(names, fmt.Sprint(i))
	}
	if got := named(names[:maxAbsencesNamed]); got != "0,1,2,3,4,5,6,7" {
		t.Errorf("named %q", got)
	}
	if got := named(names); got != "0,1,2,3,4,5,6,7,..." {
		t.Errorf("named %q", got)
	}
}
