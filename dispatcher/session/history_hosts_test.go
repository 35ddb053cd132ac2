package session

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// host is a program that serves hooks, badly, until the history is over.
func (h *history) host(number int) {
	r := h.rand(1000 + uint64(number))
	for i := 0; ; i++ {
		x := &actor{history: h, rand: r, credit: 1 + r.Uint32N(6)}
		x.host = h.dial("host", 1+r.IntN(8))
		x.serve(fmt.Sprintf("%d-%d", number, i/2)) // some come twice as the same instance
		<-x.ended
		select {
		case <-h.finished:
			return
		default:
			elapse(time.Duration(1+r.IntN(1500)) * time.Millisecond)
		}
	}
}

// actor is one session of a host. Its choices are made by one goroutine; handlers only wait and answer.
type actor struct {
	*host

	history  *history
	rand     *rand.Rand
	handlers sync.WaitGroup
	parting  sync.WaitGroup
	credit   uint32
	leaving  bool
	silent   bool
	last     uint64        // call that was started
	coming   *hostv1.Chunk // a large review, as far as it came
}

// serve answers until the session ends. After a number of frames something goes wrong.
func (x *actor) serve(instance string) {
	first := hello(instance)
	for _, name := range historyHooks {
		if x.history.quiet.Load() || x.rand.IntN(5) > 0 {
			stage := admissionv1.Stage_STAGE_VALIDATE
			if name[0] == 'm' {
				stage = admissionv1.Stage_STAGE_MUTATE
			}
			first.GetHello().Hooks = append(first.GetHello().GetHooks(), &hostv1.HookOffer{
				Name: name, Stage: stage, Speculate: x.rand.IntN(4) > 0,
			})
		}
	}
	first.GetHello().MaxOutstanding = x.credit
	if x.rand.IntN(2) == 0 {
		first.GetHello().Capabilities = append(first.GetHello().Capabilities, stream.CapabilityChunks)
	}
	if x.rand.IntN(2) == 0 {
		first.GetHello().Capabilities = append(first.GetHello().Capabilities, stream.CapabilityBatches)
	}
	if x.rand.IntN(4) == 0 && !x.history.quiet.Load() {
		first.GetHello().Clusters = []string{"east"}
	}
	x.tell(first)
	over := x.history.calm
	if x.history.quiet.Load() {
		over = x.history.finished
	}
	trouble, fault := 1+x.rand.IntN(60), x.fault()
	for frames := 0; ; frames++ {
		if frames >= trouble && !x.leaving && !x.history.quiet.Load() {
			trouble = frames + 1 + x.rand.IntN(60)
			fault()
			fault = x.fault()
		}
		select {
		case f := <-x.out:
			if !x.silent {
				x.take(decode(x.t, f))
			}
		case <-x.ctx.Done():
			x.handlers.Wait()
			x.parting.Wait()
			return
		case <-over:
			x.cancel()
		}
	}
}

// fault is something that a host may do wrong.
func (x *actor) fault() func() {
	pause := time.Duration(1+x.rand.IntN(6000)) * time.Millisecond
	return []func(){
		x.cancel,                   // the stream breaks
		x.drain,                    // it leaves as it should
		func() { x.silent = true }, // it reads, and says nothing
		func() { elapse(pause) },   // it does not even read
		func() { x.setCredit(0) },  // it pauses, and goes on with another frame
		func() { x.setCredit(1) },
		func() { x.tell(&hostv1.ConnectRequest{}) },
		func() { x.tell(verdict(&hostv1.Review{CallId: x.last}, x.rand.Uint32N(3), &hostv1.Verdict{})) },
		x.flood,
	}[x.rand.IntN(9)]
}

// flood says nothing, many times: verdicts of calls that nobody has made, that others have, and of nothing.
func (x *actor) flood() {
	yes := &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true}}
	for i := range uint64(100) {
		x.tell(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdicts{Verdicts: &hostv1.Verdicts{Verdicts: []*hostv1.Verdict{
			{CallId: x.last + 1000 + i, Outcome: yes}, {CallId: x.last, HookIndex: 99, Outcome: yes}, {}, nil,
		}}}})
	}
}

// setCredit changes the credit for a while.
func (x *actor) setCredit(n uint32) {
	credit := func(n uint32) *hostv1.ConnectRequest {
		return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: &hostv1.Credit{MaxOutstanding: n}}}
	}
	x.tell(credit(n))
	x.later(time.Duration(x.rand.IntN(2000))*time.Millisecond, func() { x.tell(credit(x.credit)) })
}

// drain leaves: started calls end, and no others start.
func (x *actor) drain() {
	x.leaving = true
	x.tell(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{
		Drain: &hostv1.HostDrain{LastStartedCallId: x.last},
	}})
	x.parting.Go(func() {
		x.handlers.Wait()
		x.tell(nil)
	})
}

// take takes a frame of the dispatcher.
func (x *actor) take(f *hostv1.ConnectResponse) {
	if p := f.GetPing(); p != nil {
		x.tell(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: p.GetSeq()}}})
	}
	for _, r := range f.GetReviews().GetReviews() {
		x.take(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Review{Review: r}})
	}
	r := f.GetReview()
	if c := f.GetChunk(); c != nil {
		r = x.assemble(c)
	}
	if c := f.GetCancel(); c != nil && x.coming != nil && x.coming.GetCallId() == c.GetCallId() {
		for i := range x.coming.GetHooks() {
			x.tell(verdict(&hostv1.Review{CallId: c.GetCallId()}, i, &hostv1.Verdict{
				Outcome: &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}},
			}))
		}
		x.coming = nil
	}
	if r == nil {
		return
	}
	for i, c := range r.GetHooks() {
		if x.leaving {
			x.tell(verdict(r, uint32(i), &hostv1.Verdict{Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{}}}))
			continue
		}
		outcome := x.outcome(r, c)
		_, refused := outcome.GetOutcome().(*hostv1.Verdict_Refused)
		if !refused {
			x.last = max(x.last, r.GetCallId()) // a large one may be whole after a later one
			x.history.begin(fmt.Sprintf("%s/%s/%d", r.GetRequest().GetUid(), c.GetName(), c.GetRound()))
		}
		var takes time.Duration
		switch {
		case x.history.quiet.Load():
			takes = time.Duration(x.rand.IntN(3)) * time.Millisecond
		case !refused && x.rand.IntN(2) == 0:
			takes = time.Duration(x.rand.IntN(100)) * time.Millisecond * time.Duration(x.rand.IntN(20))
		}
		answer, twice := verdict(r, uint32(i), outcome), x.rand.IntN(30) == 0
		x.later(takes, func() {
			if twice {
				v := answer.GetVerdict()
				answer = &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdicts{
					Verdicts: &hostv1.Verdicts{Verdicts: []*hostv1.Verdict{v, v}},
				}}
			}
			x.tell(answer)
		})
	}
}

// assemble takes a chunk. It returns the review that it completes.
func (x *actor) assemble(c *hostv1.Chunk) *hostv1.Review {
	if x.coming == nil {
		x.coming = &hostv1.Chunk{CallId: c.GetCallId(), TotalBytes: c.GetTotalBytes(), Hooks: c.GetHooks()}
	}
	if x.coming.GetCallId() != c.GetCallId() {
		x.t.Errorf("a chunk of %d while %d is not whole", c.GetCallId(), x.coming.GetCallId())
	}
	x.coming.Data = append(x.coming.Data, c.GetData()...)
	if uint64(len(x.coming.GetData())) < c.GetTotalBytes() {
		return nil
	}
	r := new(hostv1.Review)
	if err := proto.Unmarshal(x.coming.GetData(), r); err != nil || len(r.GetHooks()) != int(c.GetHooks()) {
		x.t.Errorf("%d hooks, said to be %d: %v", len(r.GetHooks()), c.GetHooks(), err)
	}
	x.coming = nil
	return r
}

// outcome is how a call ends.
func (x *actor) outcome(r *hostv1.Review, c *hostv1.HookCall) *hostv1.Verdict {
	n := x.rand.IntN(30)
	if x.history.quiet.Load() {
		n = -1
	}
	switch n {
	case 0:
		return &hostv1.Verdict{}
	case 1:
		return &hostv1.Verdict{Outcome: &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Panicked: true}}}
	case 2, 3, 4:
		return &hostv1.Verdict{Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{}}}
	case 5:
		return &hostv1.Verdict{Outcome: &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}}}
	}
	return &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{Response: decides(r.GetRequest().GetUid(), c.GetName())}}
}

// later does something after a while, unless the session ends first.
func (x *actor) later(after time.Duration, do func()) {
	x.handlers.Go(func() {
		if after == 0 { // timers of a bubble that are due at once crash the race detector (go1.26)
			do()
			return
		}
		select {
		case <-time.After(after):
			do()
		case <-x.ctx.Done():
		}
	})
}

// tell sends a frame, unless the session has ended.
func (x *actor) tell(f *hostv1.ConnectRequest) {
	select {
	case x.in <- f:
	case <-x.ctx.Done():
	}
}
