package stream

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// The operations of FuzzState; any other byte is the length of a frame of the host, which follows it.
const (
	fuzzSubmit = iota
	fuzzNext
	fuzzCancel
	fuzzTime
	fuzzDrain
	fuzzOperations
)

// FuzzState lets a host say anything at any time. Whatever it says: every call ends at most once, by the host, a cancel
// or the end of the session; a slot is taken for each call that has not ended; and nothing panics.
func FuzzState(f *testing.F) {
	frame := func(x *hostv1.ConnectRequest) []byte {
		raw, err := proto.Marshal(x)
		if err != nil {
			f.Fatal(err)
		}
		return append([]byte{byte(fuzzOperations + len(raw))}, raw...)
	}
	answer := func(v *hostv1.Verdict) []byte {
		return frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: v}})
	}
	allow := &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true}}
	f.Add([]byte{fuzzSubmit, 2, fuzzNext, fuzzCancel, 0, fuzzTime})
	f.Add([]byte{fuzzSubmit, 3, fuzzSubmit, 1, fuzzNext, fuzzCancel, 1, fuzzNext, fuzzNext, fuzzNext, fuzzNext})
	f.Add([]byte{fuzzSubmit, 3, fuzzNext, fuzzTime, fuzzTime, fuzzTime, fuzzNext, fuzzNext})
	f.Add(append([]byte{fuzzSubmit, 2, fuzzNext}, answer(&hostv1.Verdict{CallId: 1, HookIndex: 1, Outcome: allow})...))
	f.Add(append([]byte{fuzzSubmit, 1, fuzzNext, fuzzCancel, 0}, answer(&hostv1.Verdict{CallId: 1})...))
	f.Add(append([]byte{fuzzSubmit, 1, fuzzNext}, answer(&hostv1.Verdict{CallId: 1, QueueUs: 1<<32 - 1, HandleUs: 1<<32 - 1})...))
	f.Add(append([]byte{fuzzSubmit, 1, fuzzSubmit, 1, fuzzNext, fuzzDrain}, frame(&hostv1.ConnectRequest{
		Frame: &hostv1.ConnectRequest_Drain{Drain: &hostv1.HostDrain{}},
	})...))
	f.Add(append(frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: &hostv1.Credit{}}}), fuzzSubmit, 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := fuzzWorld{t: t, state: newState(epoch, &hostv1.Hello{Capabilities: []string{CapabilityChunks, CapabilityBatches}}), now: epoch, ends: map[*ticket]int{}}
		for len(data) > 0 {
			data = w.step(data)
			w.check()
		}
		w.state.endCalls(errSilent, time.Now())
		w.check()
		for k, n := range w.ends {
			if n != 1 {
				t.Errorf("call %d ended %d times", k.index, n)
			}
		}
	})
}

// fuzzWorld is one session and how often its calls have ended.
type fuzzWorld struct {
	t       *testing.T
	state   *state
	now     time.Time
	tickets []*ticket
	ends    map[*ticket]int
}

// step does the event of the first bytes and returns the rest.
func (w *fuzzWorld) step(data []byte) []byte {
	operation, data := data[0], data[1:]
	argument := func() int {
		if len(data) == 0 {
			return 0
		}
		x := int(data[0])
		data = data[1:]
		return x
	}
	switch operation {
	case fuzzSubmit:
		w.submit(argument())
	case fuzzNext:
		w.state.next(w.now)
	case fuzzCancel:
		w.cancel(argument())
	case fuzzTime:
		w.now = w.now.Add(TickInterval)
		_ = w.state.tick(w.now, LostAfter)
	case fuzzDrain:
		w.state.drain(w.now.Add(time.Second), w.now, ErrStopping)
	default:
		n := min(int(operation)-fuzzOperations, len(data))
		in := new(Incoming)
		if in.Decode(data[:n]) == nil {
			_ = w.state.received(w.now, in)
		}
		data = data[n:]
	}
	return data
}

func (w *fuzzWorld) submit(n int) {
	n = min(n, w.state.freeSlots())
	if n == 0 {
		return
	}
	request := &admissionv1.AdmissionRequest{}
	if n%3 == 0 { // too large for one frame
		request.Object = &admissionv1.Object{Raw: make([]byte, MaxWholeBytes)}
	}
	batch := &review.CallSet{Request: request, Body: wire.EncodeBody(request, trace.SpanContext{}), Calls: make([]review.Call, n)}
	tickets := make([]*ticket, n)
	for i := range tickets {
		batch.Calls[i].Hook, batch.Calls[i].Deadline = &match.Hook{}, w.now.Add(time.Duration(n)*TickInterval)
		tickets[i] = &ticket{batch: batch, index: i, begun: w.now}
		w.ends[tickets[i]] = 0
	}
	w.tickets = append(w.tickets, tickets...)
	f := submit(w.state, tickets...)
	f.slot.frame = f.id
	for _, k := range tickets {
		k.Submitted(&f.slot)
	}
}

func (w *fuzzWorld) cancel(i int) {
	if i >= len(w.tickets) {
		return
	}
	k := w.tickets[i]
	if !k.ended.Swap(true) {
		w.ends[k]++
	}
	w.state.cancel(k.slot.Load().frame, k)
}

// finished ends calls as their session does: a cancelled call has ended already.
func (w *fuzzWorld) finished(done []finished) {
	for _, x := range done {
		if (x.result.Verdict == nil) == (x.result.Failure == nil) || x.result.Timing.Host < 0 || x.result.Timing.Wire < 0 {
			w.t.Errorf("no result: %+v", x.result)
		}
		if k := x.ticket.(*ticket); !k.ended.Swap(true) {
			w.ends[k]++
		}
	}
}

// check compares the slots that are counted with those that are there.
func (w *fuzzWorld) check() {
	w.finished(w.state.results(nil))
	taken := 0
	for id, f := range w.state.calls {
		open := 0
		for _, k := range f.tickets {
			if k != nil {
				open++
			}
		}
		if f.id != id || f.open != open || open == 0 {
			w.t.Fatalf("frame %d has %d calls, %d are counted", id, open, f.open)
		}
		taken += open
	}
	if taken != w.state.usedSlots || w.state.freeSlots() < 0 {
		w.t.Fatalf("%d slots are taken, %d are counted; room for %d", taken, w.state.usedSlots, w.state.freeSlots())
	}
}
