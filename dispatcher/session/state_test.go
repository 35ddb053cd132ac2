package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// TestState plays the stories in testdata on the pure state of a session. Run with -rewrite to write down new behaviour.
func TestState(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		var w stateWorld
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			return w.run(t, d)
		})
	})
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// stateWorld is one session and the calls of its story, by name.
type stateWorld struct {
	state *state
	now   time.Time
	calls map[string]*ticket
	names map[*ticket]string
	out   strings.Builder
}

func (w *stateWorld) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	w.out.Reset()
	number := func(key string) uint64 {
		var n uint64
		d.MaybeScanArgs(t, key, &n)
		return n
	}
	switch d.Cmd {
	case "welcome":
		w.now = epoch
		w.calls, w.names = map[string]*ticket{}, map[*ticket]string{}
		w.state = newState(w.now, &hostv1.Hello{MaxOutstanding: uint32(number("outstanding"))})
	case "submit":
		w.submit(d.CmdArgs)
	case "next":
		w.next()
	case "cancel":
		name := d.CmdArgs[0].Key
		w.calls[name].ended.Store(true)
		w.state.cancel(number("id"), w.calls[name])
	case "verdict":
		v := &hostv1.Verdict{CallId: number("id"), HookIndex: uint32(number("hook")), HandleUs: 1000}
		w.outcome(t, v, d.CmdArgs[len(d.CmdArgs)-1].Key)
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: v}})
	case "credit":
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{
			Credit: &hostv1.Credit{MaxOutstanding: uint32(number("outstanding"))},
		}})
	case "host-drain":
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{
			Drain: &hostv1.HostDrain{LastStartedCallId: number("last")},
		}})
	case "pong":
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{}}})
	case "unknown-frames":
		for range number("count") {
			w.frame(&hostv1.ConnectRequest{})
		}
	case "hello":
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: &hostv1.Hello{}}})
	case "drain":
		w.state.drain(w.now.Add(time.Duration(number("grace"))*time.Second), w.now, nil)
	case "time":
		var to string
		d.ScanArgs(t, "to", &to)
		after, err := time.ParseDuration(to)
		if err != nil {
			t.Fatal(err)
		}
		w.now = epoch.Add(after)
		if err := w.state.tick(w.now, LostAfter); err != nil {
			fmt.Fprintf(&w.out, "end: %v\n", err)
		}
	case "end":
		w.finished(w.state.end(errSilent))
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	fmt.Fprintf(&w.out, "room %d taken %d%s\n", w.state.room(), w.state.taken, w.flags())
	return w.out.String()
}

func (w *stateWorld) flags() string {
	var flags string
	if w.state.suspect(w.now) {
		flags += " suspect"
	}
	if w.state.strays > 0 {
		flags += fmt.Sprintf(" strays %d", w.state.strays)
	}
	return flags
}

// submit puts calls with the given names into one frame.
func (w *stateWorld) submit(names []datadriven.CmdArg) {
	batch := &dispatcher.Batch{Request: &admissionv1.AdmissionRequest{}}
	tickets := make([]*ticket, 0, len(names))
	for i, name := range names {
		batch.Calls = append(batch.Calls, dispatcher.Call{
			Hook: &match.Hook{
				ID:          match.HookID{Name: name.Key, Stage: admissionv1.Stage_STAGE_VALIDATE},
				SideEffects: admissionregistrationv1.SideEffectClassNone,
			},
			Deadline: w.now.Add(5 * time.Second),
		})
		k := &ticket{batch: batch, index: i, begun: w.now, done: func(int, review.Result) {}}
		w.calls[name.Key], w.names[k] = k, name.Key
		tickets = append(tickets, k)
	}
	f := w.state.submit(tickets)
	fmt.Fprintf(&w.out, "frame %d\n", f.id)
}

// next shows what the writer takes.
func (w *stateWorld) next() {
	control, f := w.state.next(w.now)
	switch {
	case control != nil:
		fmt.Fprintf(&w.out, "write %v\n", strings.Join(strings.Fields(control.String()), " "))
	case f != nil:
		fmt.Fprintf(&w.out, "write review %d:", f.id)
		for _, h := range f.head(w.now).GetHooks() {
			fmt.Fprintf(&w.out, " %s(%dms)", h.GetName(), h.GetRemainingMs())
		}
		fmt.Fprintln(&w.out)
	default:
		fmt.Fprintln(&w.out, "nothing to write")
	}
}

func (w *stateWorld) outcome(t *testing.T, v *hostv1.Verdict, how string) {
	t.Helper()
	switch how {
	case "allow":
		v.Outcome = &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true}}
	case "error":
		v.Outcome = &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Message: "no database"}}
	case "panic":
		v.Outcome = &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Panicked: true}}
	case "cancelled":
		v.Outcome = &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}}
	case "refused":
		v.Outcome = &hostv1.Verdict_Refused{Refused: &hostv1.Refused{Reason: "overloaded"}}
	case "nothing":
	default:
		t.Fatalf("unknown outcome %q", how)
	}
}

func (w *stateWorld) frame(in *hostv1.ConnectRequest) {
	done, err := w.state.received(w.now, in)
	w.finished(done)
	if err != nil {
		fmt.Fprintf(&w.out, "end: %v\n", err)
	}
}

func (w *stateWorld) finished(done []finished) {
	lines := make([]string, 0, len(done))
	for _, f := range done {
		line := w.names[f.ticket] + ": verdict"
		if x := f.result.Failure; x != nil {
			line = fmt.Sprintf("%s: %s not-started=%t %v", w.names[f.ticket], x.Kind, x.NotStarted, x.Err)
		}
		lines = append(lines, line+fmt.Sprintf(" queued=%s wire=%s host=%s\n",
			f.result.Timing.Queued, f.result.Timing.Wire, f.result.Timing.Host))
	}
	slices.Sort(lines)
	w.out.WriteString(strings.Join(lines, ""))
}
