package hostsdk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// protocolVersion is the one version of the protocol that this SDK speaks.
const protocolVersion = 1

// The reasons of Refused: the handler was never started.
const (
	refusedOverloaded = "overloaded"
	refusedDraining   = "draining"
	refusedUnknown    = "unknown hook"
	refusedNoTime     = "no time left"
	refusedCancelled  = "cancelled before its start"
	refusedEmpty      = "review without a request"
)

// Why a session was given up. The dispatcher fails its calls over, and the host dials again.
var (
	errNoWelcome = errors.New("hostsdk: the dispatcher sent no welcome in time")
	errSilent    = errors.New("hostsdk: the dispatcher fell silent")
	errDrained   = errors.New("hostsdk: calls were still running when the time to drain was over")
	errNotEnded  = errors.New("hostsdk: the dispatcher did not end the stream")
)

// hookID is what a hook is offered under.
type hookID struct {
	name  string
	stage admissionv1.Stage
}

// pair is one call of one hook: what a verdict ends.
type pair struct {
	call uint64
	hook uint32
}

// invocation is a handler to be started.
type invocation struct {
	pair
	id       hookID
	review   *hostv1.Review
	received time.Time
	deadline time.Time
}

// hookCall is the part of the review that is this hook's own.
func (i *invocation) hookCall() *hostv1.HookCall { return i.review.GetHooks()[i.hook] }

// effects are what the session has to do after a step, in the order of the fields.
type effects struct {
	// welcome is set once the dispatcher has accepted the host, and again when it says more.
	welcome *hostv1.Welcome
	// hookState is what became of a hook since the welcome.
	hookState *hostv1.HookState
	// leaving is set when the dispatcher says that it leaves.
	leaving *hostv1.DispatcherDrain
	send    []*hostv1.ConnectRequest
	start   []invocation
	cancel  []pair
	probe   []*hostv1.Probe
	// finish half-closes the stream once everything in send has been written.
	finish bool
	// abort ends the stream at once.
	abort error
}

// state decides what one session does. It is pure: no goroutine, no clock, no I/O; time comes in as a parameter. One
// caller at a time.
type state struct {
	// Set once, by newState.
	hooks        map[hookID]bool
	drainTimeout time.Duration

	// From the welcome.
	welcomed   bool
	silence    time.Duration
	maxVerdict int

	// Life of the session.
	opened    time.Time
	lastFrame time.Time
	useful    bool   // a frame came after the welcome
	ignored   uint64 // frames of unknown types

	// Calls. limit is the highest bound ever announced: a lower one may not have reached the dispatcher.
	calls       map[uint64]*liveCall
	outstanding int
	limit       int
	announced   int    // the bound last told
	highest     uint64 // of all reviews
	lastStarted uint64
	early       []earlyCancel // oldest first
	assembly    assembly      // of a review that comes in chunks
	probing     int           // probes of hooks that have not returned

	// The end.
	draining   bool
	finishing  bool
	over       bool // given up
	drainUntil time.Time
	endUntil   time.Time
}

// liveCall is a call with handlers that have not finished.
type liveCall struct {
	running []bool // by hook index
	left    int
}

// earlyCancel is a cancellation that came before its review.
type earlyCancel struct {
	call  uint64
	hooks []uint32
	at    time.Time
}

// newState starts a session that announced hello.
func newState(now time.Time, hello *hostv1.Hello, drainTimeout time.Duration) *state {
	s := &state{
		hooks:        map[hookID]bool{},
		drainTimeout: drainTimeout,
		silence:      defaultSilence,
		maxVerdict:   defaultVerdictBytes,
		opened:       now,
		lastFrame:    now,
		calls:        map[uint64]*liveCall{},
		limit:        int(hello.GetMaxOutstanding()),
		announced:    int(hello.GetMaxOutstanding()),
		assembly:     assembly{limit: int(cmp.Or(hello.GetMaxFrameBytes(), defaultFrameBytes))},
	}
	for _, offer := range hello.GetHooks() {
		s.hooks[hookID{offer.GetName(), offer.GetStage()}] = true
	}
	return s
}

// frame takes a frame of the dispatcher that arrived at now.
func (s *state) frame(now time.Time, f *hostv1.ConnectResponse) effects {
	s.lastFrame = now
	if f.GetFrame() == nil {
		s.ignored++
		return effects{}
	}
	if w := f.GetWelcome(); w != nil {
		return s.welcome(w)
	}
	if !s.welcomed {
		return broken(fmt.Errorf("%T came before Welcome", f.GetFrame()))
	}
	s.useful = true
	switch frame := f.GetFrame().(type) {
	case *hostv1.ConnectResponse_Review:
		return s.review(now, now, frame.Review)
	case *hostv1.ConnectResponse_Chunk:
		return s.chunk(now, frame.Chunk)
	case *hostv1.ConnectResponse_Cancel:
		return s.cancel(now, frame.Cancel)
	case *hostv1.ConnectResponse_Ping:
		return effects{send: []*hostv1.ConnectRequest{pong(frame.Ping.GetSeq())}}
	case *hostv1.ConnectResponse_Drain:
		return s.left(now, frame.Drain)
	case *hostv1.ConnectResponse_HookState:
		return effects{hookState: frame.HookState}
	case *hostv1.ConnectResponse_Probe:
		return s.probe(frame.Probe)
	default:
		s.ignored++
		return effects{}
	}
}

// welcome takes the answer to Hello. A later one brings a new list of peers and states.
func (s *state) welcome(w *hostv1.Welcome) effects {
	if w.GetProtocol() != protocolVersion {
		return effects{abort: fmt.Errorf("hostsdk: the dispatcher chose protocol %d, this host speaks %d",
			w.GetProtocol(), protocolVersion)}
	}
	s.welcomed = true
	if ms := w.GetSilenceMs(); ms > 0 {
		s.silence = milliseconds(ms)
	}
	if most := w.GetMaxVerdictBytes(); most > 0 {
		s.maxVerdict = int(most)
	}
	return effects{welcome: w}
}

// broken ends a session whose dispatcher does not keep the contract: the books of both sides no longer agree.
func broken(how error) effects {
	return effects{abort: fmt.Errorf("hostsdk: the dispatcher broke the contract: %w", how)}
}

// chunk takes a part of a review, and the review with the last one.
func (s *state) chunk(now time.Time, c *hostv1.Chunk) effects {
	if s.calls[c.GetCallId()] != nil {
		return broken(fmt.Errorf("call %d came twice", c.GetCallId()))
	}
	encoded, err := s.assembly.add(now, c)
	if err != nil {
		return broken(err)
	}
	s.highest = max(s.highest, c.GetCallId())
	if encoded == nil {
		return effects{}
	}
	r := &hostv1.Review{}
	if err := proto.Unmarshal(encoded, r); err != nil {
		return broken(fmt.Errorf("the chunks of call %d are no review: %w", c.GetCallId(), err))
	}
	if r.GetCallId() != c.GetCallId() || len(r.GetHooks()) != int(c.GetHooks()) {
		return broken(fmt.Errorf("the chunks of call %d hold call %d of %d hooks, not %d",
			c.GetCallId(), r.GetCallId(), len(r.GetHooks()), c.GetHooks()))
	}
	return s.review(now, s.assembly.began, r)
}

// review starts the handlers that are asked, and refuses the calls that cannot start. Their time counts from when the
// dispatcher wrote the review, or its first chunk. Ids are never reused: a second review of a live call would leave both
// sides with different books.
func (s *state) review(now, written time.Time, r *hostv1.Review) effects {
	if s.calls[r.GetCallId()] != nil || s.assembly.assembling() && s.assembly.call == r.GetCallId() {
		return broken(fmt.Errorf("call %d came twice", r.GetCallId()))
	}
	if len(r.GetHooks()) > maxReviewHooks {
		return broken(tooManyHooks(r.GetCallId(), len(r.GetHooks())))
	}
	s.highest = max(s.highest, r.GetCallId())
	cancelled := s.takeEarly(now, r.GetCallId())
	live := &liveCall{running: make([]bool, len(r.GetHooks()))}
	var out effects
	for i, hook := range r.GetHooks() {
		p := pair{call: r.GetCallId(), hook: uint32(i)}
		if reason := s.refusal(r, hook, cancelled(p.hook)); reason != "" {
			out.send = append(out.send, refused(p, reason))
			continue
		}
		live.running[i] = true
		live.left++
		s.outstanding++
		out.start = append(out.start, invocation{
			pair:     p,
			id:       hookID{hook.GetName(), hook.GetStage()},
			review:   r,
			received: now,
			deadline: written.Add(milliseconds(hook.GetRemainingMs())),
		})
	}
	if live.left > 0 {
		s.calls[r.GetCallId()] = live
		s.lastStarted = max(s.lastStarted, r.GetCallId())
	}
	return out
}

// refusal says why the handler of a hook is not started; empty if it is.
func (s *state) refusal(r *hostv1.Review, hook *hostv1.HookCall, cancelled bool) string {
	switch {
	case s.draining:
		return refusedDraining
	case !s.hooks[hookID{hook.GetName(), hook.GetStage()}]:
		return refusedUnknown
	case r.GetRequest() == nil:
		return refusedEmpty
	case cancelled:
		return refusedCancelled
	case hook.GetRemainingMs() == 0:
		return refusedNoTime
	case s.outstanding >= s.limit:
		return refusedOverloaded
	default:
		return ""
	}
}

// cancel passes a cancellation to the running handlers. Of a review that has not come it is remembered; of one that is
// over it has lost the race with the verdict.
func (s *state) cancel(now time.Time, c *hostv1.Cancel) effects {
	if s.assembly.assembling() && s.assembly.call == c.GetCallId() {
		return s.cancelChunks(now, c)
	}
	live := s.calls[c.GetCallId()]
	if live == nil {
		if c.GetCallId() > s.highest {
			s.rememberEarly(now, c)
		}
		return effects{}
	}
	var out effects
	for i, running := range live.running {
		hook := uint32(i)
		if running && names(c.GetHookIndexes(), hook) {
			out.cancel = append(out.cancel, pair{call: c.GetCallId(), hook: hook})
		}
	}
	return out
}

// cancelChunks takes a cancellation of a review that has come in part. One of all its hooks stands for the rest of the
// chunks; one of some is remembered, since the others still want the review.
func (s *state) cancelChunks(now time.Time, c *hostv1.Cancel) effects {
	if !s.assembly.covers(c) {
		s.rememberEarly(now, c)
		return effects{}
	}
	var out effects
	for hook := range s.assembly.drop() {
		out.send = append(out.send, verdict(&hostv1.Verdict{
			CallId: c.GetCallId(), HookIndex: hook,
			Outcome: &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}},
		}))
	}
	return out
}

// names says whether a list of hook indexes, of which an empty one means all, names a hook.
func names(indexes []uint32, hook uint32) bool {
	return len(indexes) == 0 || slices.Contains(indexes, hook)
}

func (s *state) rememberEarly(now time.Time, c *hostv1.Cancel) {
	s.forgetEarly(now)
	if len(s.early) >= maxEarlyCancels {
		s.early = slices.Delete(s.early, 0, 1)
	}
	s.early = append(s.early, earlyCancel{call: c.GetCallId(), hooks: c.GetHookIndexes(), at: now})
}

// takeEarly returns which hooks of a call were cancelled before its review.
func (s *state) takeEarly(now time.Time, call uint64) func(hook uint32) bool {
	s.forgetEarly(now)
	var found []earlyCancel
	s.early = slices.DeleteFunc(s.early, func(e earlyCancel) bool {
		if e.call == call {
			found = append(found, e)
		}
		return e.call == call
	})
	return func(hook uint32) bool {
		return slices.ContainsFunc(found, func(e earlyCancel) bool { return names(e.hooks, hook) })
	}
}

func (s *state) forgetEarly(now time.Time) {
	s.early = slices.DeleteFunc(s.early, func(e earlyCancel) bool { return now.Sub(e.at) > s.silence })
}

// probe asks the hook itself, or answers for one that is not offered.
func (s *state) probe(p *hostv1.Probe) effects {
	offered := s.hooks[hookID{p.GetHook(), admissionv1.Stage_STAGE_VALIDATE}] ||
		s.hooks[hookID{p.GetHook(), admissionv1.Stage_STAGE_MUTATE}]
	switch {
	case !offered:
		return effects{send: []*hostv1.ConnectRequest{probeResult(p.GetSeq(), NewError(refusedUnknown, nil))}}
	case s.probing >= maxProbes:
		return effects{send: []*hostv1.ConnectRequest{probeResult(p.GetSeq(), NewError("too many probes at a time", nil))}}
	default:
		s.probing++
		return effects{probe: []*hostv1.Probe{p}}
	}
}

// probed takes what a hook said of its readiness; nil means ready.
func (s *state) probed(seq uint64, notReady error) effects {
	s.probing--
	return effects{send: []*hostv1.ConnectRequest{probeResult(seq, notReady)}}
}

// finished takes the verdict of a handler that has returned. It is sent whether or not the call was cancelled: it alone
// frees the slot.
func (s *state) finished(now time.Time, v *hostv1.Verdict) effects {
	live := s.calls[v.GetCallId()]
	if live == nil || !live.running[v.GetHookIndex()] {
		return effects{}
	}
	live.running[v.GetHookIndex()] = false
	live.left--
	s.outstanding--
	if live.left == 0 {
		delete(s.calls, v.GetCallId())
	}
	out := effects{send: []*hostv1.ConnectRequest{verdict(fit(v, s.maxVerdict))}}
	s.finishWhenDrained(now, &out)
	return out
}

// credit announces a new bound on outstanding calls.
func (s *state) credit(most int) effects {
	if s.draining || most == s.announced {
		return effects{}
	}
	s.announced = most
	s.limit = max(s.limit, most)
	return effects{send: []*hostv1.ConnectRequest{{Frame: &hostv1.ConnectRequest_Credit{
		Credit: &hostv1.Credit{MaxOutstanding: uint32(most)},
	}}}}
}

// drain says good-bye: no new calls from here on, those in flight finish.
func (s *state) drain(now time.Time) effects {
	if s.draining {
		return effects{}
	}
	s.draining = true
	s.drainUntil = now.Add(s.drainTimeout)
	out := effects{send: []*hostv1.ConnectRequest{{Frame: &hostv1.ConnectRequest_Drain{
		Drain: &hostv1.HostDrain{LastStartedCallId: s.lastStarted},
	}}}}
	s.finishWhenDrained(now, &out)
	return out
}

func (s *state) finishWhenDrained(now time.Time, out *effects) {
	if !s.draining || s.finishing || s.outstanding > 0 {
		return
	}
	s.finishing = true
	s.endBy(now.Add(closeTimeout))
	out.finish = true
}

// left takes the dispatcher's good-bye: it ends the stream once the calls in flight have ended.
func (s *state) left(now time.Time, d *hostv1.DispatcherDrain) effects {
	s.endBy(now.Add(milliseconds(d.GetGraceMs()) + closeTimeout))
	return effects{leaving: d}
}

func (s *state) endBy(t time.Time) {
	if s.endUntil.IsZero() || t.Before(s.endUntil) {
		s.endUntil = t
	}
}

// deadline is a time at which the session is given up; a zero time is none.
type deadline struct {
	at  time.Time
	why error
}

func (s *state) deadlines() [3]deadline {
	if s.over {
		return [3]deadline{}
	}
	life := deadline{s.lastFrame.Add(s.silence), errSilent}
	if !s.welcomed {
		life = deadline{s.opened.Add(connectTimeout), errNoWelcome}
	}
	var drain deadline
	if s.draining && !s.finishing {
		drain = deadline{s.drainUntil, errDrained}
	}
	return [...]deadline{life, drain, {s.endUntil, errNotEnded}}
}

// wake is when tick has something to do at the latest; zero when there is nothing more to do.
func (s *state) wake() time.Time {
	var first time.Time
	for _, d := range s.deadlines() {
		if !d.at.IsZero() && (first.IsZero() || d.at.Before(first)) {
			first = d.at
		}
	}
	return first
}

// tick gives the session up when a deadline has passed.
func (s *state) tick(now time.Time) effects {
	for _, d := range s.deadlines() {
		if !d.at.IsZero() && !now.Before(d.at) {
			s.over = true
			return effects{abort: d.why}
		}
	}
	return effects{}
}

func milliseconds(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

func verdict(v *hostv1.Verdict) *hostv1.ConnectRequest {
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: v}}
}

func refused(p pair, reason string) *hostv1.ConnectRequest {
	return verdict(&hostv1.Verdict{
		CallId: p.call, HookIndex: p.hook,
		Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{Reason: reason}},
	})
}

func pong(seq uint64) *hostv1.ConnectRequest {
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: seq}}}
}

// probeResult answers a probe; nil means ready.
func probeResult(seq uint64, notReady error) *hostv1.ConnectRequest {
	result := &hostv1.ProbeResult{Seq: seq, Ready: notReady == nil}
	if notReady != nil {
		result.Message = shorten(valid(publicText(notReady, notReadyYet)), maxErrorBytes)
	}
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_ProbeResult{ProbeResult: result}}
}
