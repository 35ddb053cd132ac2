package stream

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/wire"
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
		hello := &hostv1.Hello{MaxOutstanding: uint32(number("outstanding")), MaxFrameBytes: uint32(number("frame"))}
		for _, a := range d.CmdArgs {
			if a.Key == "capabilities" {
				hello.Capabilities = a.Vals
			}
		}
		w.state = newState(w.now, hello)
	case "submit-many":
		for i := range number("count") {
			w.submit([]datadriven.CmdArg{{Key: fmt.Sprint("n", i)}}, 0, 0)
		}
		w.out.Reset()
	case "submit-each": // a frame for each name
		for _, a := range d.CmdArgs {
			if len(a.Vals) == 0 {
				w.submit([]datadriven.CmdArg{a}, int(number("bytes")), int(number("seconds")))
			}
		}
	case "submit":
		w.submit(d.CmdArgs, int(number("bytes")), int(number("seconds")))
	case "next":
		for range max(1, number("times")) {
			w.next(t)
		}
	case "cancel":
		name := d.CmdArgs[0].Key
		w.calls[name].ended.Store(true)
		w.state.cancel(number("id"), w.calls[name])
	case "verdict":
		v := &hostv1.Verdict{CallId: number("id"), HookIndex: uint32(number("hook")), HandleUs: 1000}
		w.outcome(t, v, d.CmdArgs[len(d.CmdArgs)-1].Key)
		if n := number("bytes"); n > 0 {
			v.GetResponse().Patch = make([]byte, n)
		}
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: v}})
	case "verdicts": // call/hook for each
		batch := &hostv1.Verdicts{}
		for _, a := range d.CmdArgs {
			v := &hostv1.Verdict{}
			if _, err := fmt.Sscanf(a.Key, "%d/%d", &v.CallId, &v.HookIndex); err != nil {
				t.Fatal(err)
			}
			w.outcome(t, v, "allow")
			batch.Verdicts = append(batch.Verdicts, v)
		}
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdicts{Verdicts: batch}})
	case "credit":
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{
			Credit: &hostv1.Credit{MaxOutstanding: uint32(number("outstanding"))},
		}})
	case "host-drain":
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{
			Drain: &hostv1.HostDrain{LastStartedCallId: number("last")},
		}})
	case "pong":
		for range max(1, number("times")) {
			w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: number("seq")}}})
		}
	case "replaced":
		if err := w.state.replaced(w.now); err != nil {
			fmt.Fprintf(&w.out, "end: %v\n", err)
		}
	case "probe-result": // for seq, of a hook that is ready or not
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_ProbeResult{ProbeResult: &hostv1.ProbeResult{
			Seq: number("seq"), Ready: d.HasArg("ready"), Message: strings.Repeat("x", int(number("bytes"))),
		}}})
	case "pend": // the hooks of these names, and no others
		var names []string
		for i := range number("count") {
			names = append(names, fmt.Sprintf("h%02d", i))
		}
		for _, a := range d.CmdArgs {
			if len(a.Vals) == 0 {
				names = append(names, a.Key)
			}
		}
		w.state.pend(w.now, names)
	case "unknown-frames":
		for range number("count") {
			w.frame(&hostv1.ConnectRequest{})
		}
	case "hello":
		w.frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: &hostv1.Hello{}}})
	case "drain":
		w.state.drain(w.now.Add(time.Duration(number("grace"))*time.Second), w.now, ErrStopping)
	case "time":
		var to string
		d.ScanArgs(t, "to", &to)
		after, err := time.ParseDuration(to)
		if err != nil {
			t.Fatal(err)
		}
		w.now = epoch.Add(after)
		if missed := "0s"; d.MaybeScanArgs(t, "missed", &missed) {
			span, err := time.ParseDuration(missed)
			if err != nil {
				t.Fatal(err)
			}
			w.state.discountStall(w.now, span)
		}
		if err := w.state.tick(w.now, LostAfter); err != nil {
			fmt.Fprintf(&w.out, "end: %v\n", err)
		}
	case "carried": // by the connection, in all
		w.state.carried(w.now, number("in"), number("out"))
	case "end":
		w.state.endCalls(errSilent, w.now)
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	w.finished(w.state.results(nil))
	for _, a := range w.state.answers(nil) {
		fmt.Fprintf(&w.out, "answered %s ready=%t %d bytes\n", a.Hook, a.Ready, len(a.Message))
	}
	fmt.Fprintf(&w.out, "room %d taken %d%s\n", w.state.freeSlots(), w.state.usedSlots, w.flags())
	return w.out.String()
}

func (w *stateWorld) flags() string {
	var flags string
	if w.now.Sub(w.state.heard) > SuspectAfter {
		flags += " suspect"
	}
	if n := w.state.violations.add(w.now, 0); n > 0 {
		flags += fmt.Sprintf(" strays %d", n)
	}
	return flags
}

// submit puts calls with the given names into one frame, about an object of so many bytes.
func (w *stateWorld) submit(args []datadriven.CmdArg, bytes, seconds int) {
	request := &admissionv1.AdmissionRequest{Object: &admissionv1.Object{Raw: make([]byte, bytes)}}
	batch := &review.CallSet{Request: request, Body: wire.EncodeBody(request, trace.SpanContext{})}
	var tickets []*ticket
	for _, name := range args {
		if len(name.Vals) > 0 {
			continue
		}
		batch.Calls = append(batch.Calls, review.Call{
			Hook: &match.Hook{
				ID:          match.HookID{Name: name.Key, Stage: admissionv1.Stage_STAGE_VALIDATE},
				SideEffects: admissionregistrationv1.SideEffectClassNone,
			},
			Deadline: w.now.Add(time.Duration(cmp.Or(seconds, 5)) * time.Second),
		})
		k := &ticket{batch: batch, index: len(tickets), begun: w.now}
		w.calls[name.Key], w.names[k] = k, name.Key
		tickets = append(tickets, k)
	}
	f := submit(w.state, tickets...)
	fmt.Fprintf(&w.out, "frame %d\n", f.id)
}

// next shows the frames that the writer takes.
func (w *stateWorld) next(t *testing.T) {
	t.Helper()
	out := w.state.next(w.now)
	if out == nil {
		fmt.Fprintln(&w.out, "nothing to write")
		return
	}
	switch x := decode(t, out).GetFrame().(type) {
	case *hostv1.ConnectResponse_Review:
		fmt.Fprintf(&w.out, "write review %s\n", brief(x.Review))
	case *hostv1.ConnectResponse_Reviews:
		var all []string
		for _, r := range x.Reviews.GetReviews() {
			all = append(all, brief(r))
		}
		fmt.Fprintf(&w.out, "write reviews %s\n", strings.Join(all, "; "))
	case *hostv1.ConnectResponse_Chunk:
		fmt.Fprintf(&w.out, "write chunk of review %d for %d hooks: %d of %d bytes\n",
			x.Chunk.GetCallId(), x.Chunk.GetHooks(), len(x.Chunk.GetData()), x.Chunk.GetTotalBytes())
	default:
		fmt.Fprintf(&w.out, "write %v\n", strings.Join(strings.Fields(out.Message.String()), " "))
	}
}

// brief is the question of a review to a host.
func brief(r *hostv1.Review) string {
	out := fmt.Sprintf("%d:", r.GetCallId())
	for _, h := range r.GetHooks() {
		out += fmt.Sprintf(" %s(%dms)", h.GetName(), h.GetRemainingMs())
	}
	return out
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
	if err := w.state.received(w.now, incoming(in)); err != nil {
		fmt.Fprintf(&w.out, "end: %v\n", err)
	}
}

func (w *stateWorld) finished(done []finished) {
	lines := make([]string, 0, len(done))
	for _, f := range done {
		line := w.names[f.ticket.(*ticket)] + ": verdict"
		if x := f.result.Failure; x != nil {
			line = fmt.Sprintf("%s: %s not-started=%t %v", w.names[f.ticket.(*ticket)], x.Kind, x.NotStarted, x.Err)
		}
		lines = append(lines, line+fmt.Sprintf(" queued=%s wire=%s host=%s\n",
			f.result.Timing.Queued, f.result.Timing.Wire, f.result.Timing.Host))
	}
	slices.Sort(lines)
	w.out.WriteString(strings.Join(lines, ""))
}

// TestAReviewThatIsOverIsNotWritten has a review answered before the writer comes to it, and while it is on its way.
func TestAReviewThatIsOverIsNotWritten(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 2 * MaxWholeBytes} {
		_, reservation := reserved(t, size)
		request := &admissionv1.AdmissionRequest{Object: &admissionv1.Object{Raw: make([]byte, size)}}
		k := &ticket{batch: &review.CallSet{
			Request: request, Body: wire.EncodeBody(request, trace.SpanContext{}), Reservation: reservation,
			Calls: []review.Call{{Hook: &match.Hook{}, Deadline: epoch.Add(time.Second)}},
		}}
		s := newState(epoch, &hostv1.Hello{Capabilities: []string{CapabilityChunks}})
		submit(s, k)
		if size > MaxWholeBytes {
			s.next(epoch).release()
		}
		reservation.Release()
		for out := s.next(epoch); out != nil; out = s.next(epoch) {
			if out.Message.GetCancel() == nil {
				t.Errorf("%v was written", out)
			}
		}
		if done := s.results(nil); len(done) != 1 || done[0].result.Failure.Kind != review.FailureCancelled {
			t.Errorf("the call ended as %+v", done)
		}
	}
}

func TestAQueueKeepsItsOrderAndLittleMemory(t *testing.T) {
	t.Parallel()
	var q fifo[int]
	in, out := 0, 0
	for _, n := range []int{3, -2, 500, -400, 300, -401, 70, -70} {
		for ; n > 0; n-- {
			q.push(in)
			in++
		}
		for ; n < 0; n++ {
			x, ok := q.pop()
			if !ok || x != out {
				t.Fatalf("got %d, %t, want %d", x, ok, out)
			}
			out++
		}
		if q.len() != in-out || cap(q.items) > 1024 {
			t.Fatalf("%d in the queue, want %d; room for %d", q.len(), in-out, cap(q.items))
		}
	}
	if _, ok := q.pop(); ok || cap(q.items) > keptInQueue {
		t.Errorf("an empty queue has room for %d", cap(q.items))
	}
}

// decode reads a frame as the other end of a wire does.
func decode(t *testing.T, f *Outgoing) *hostv1.ConnectResponse {
	t.Helper()
	if f.Message != nil {
		return f.Message
	}
	raw, err := Codec().Marshal(f)
	m := new(hostv1.ConnectResponse)
	if err = errors.Join(err, proto.Unmarshal(raw.Materialize(), m)); err != nil {
		t.Fatal(err)
	}
	return m
}

// incoming is a frame of a host as it comes over a wire.
func incoming(f *hostv1.ConnectRequest) *Incoming {
	raw, err := proto.Marshal(f)
	in := new(Incoming)
	if err = errors.Join(err, in.Decode(raw)); err != nil {
		panic(err) // the frames of tests can be read
	}
	return in
}
