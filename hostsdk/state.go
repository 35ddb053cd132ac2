package hostsdk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

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
	id    uint64 // of the call
	index uint32 // of the hook
}

// invocation is one handler that is asked for one verdict. The state makes it, and the session runs it.
type invocation struct {
	pair
	hook     *hook
	review   *review
	received time.Time // when the review was whole
	deadline time.Time

	// Of the session: one piece of memory for a call.
	session *session
	ctx     callContext
	request Request
	verdict hostv1.Verdict
	scratch [64]byte // for the encoded verdict, if it fits
}

// call is the part of the review that is this hook's own.
func (i *invocation) call() *hookCall { return &i.review.hooks[i.index] }

// effects are what the session has to do after a step, in the order of the fields. What it has to send is in the outbox.
type effects struct {
	// welcome is set once the dispatcher has accepted the host, and again when it says more.
	welcome *hostv1.Welcome
	// hookState is what became of a hook since the welcome.
	hookState *hostv1.HookState
	// leaving is set when the dispatcher says that it leaves.
	leaving *hostv1.DispatcherDrain
	start   []invocation
	cancel  []*invocation
	probe   *hostv1.Probe
	// abort ends the stream at once.
	abort error
}

// state decides what one session does. It is pure: no goroutine, no clock, no I/O; time comes in as a parameter. One
// caller at a time.
type state struct {
	// Set once, by newState.
	hooks        map[hookID]*hook
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
	lastWhole   uint64 // of those that came whole, if anyWhole
	anyWhole    bool
	lastStarted uint64
	early       earlyCancels
	assembly    assembly // of a review that comes in chunks
	probing     int      // probes of hooks that have not returned

	out outbox

	// The end.
	draining   bool
	finishing  bool // nothing is sent after what is in the outbox
	mute       bool // nothing can be sent
	over       bool // given up
	drainUntil time.Time
	endUntil   time.Time
}

// liveCall is a call with handlers that have not finished.
type liveCall struct {
	running []*invocation // by hook index; nil when there is none, or no more
	left    int

	one [1]*invocation // running, as long as there is one
}

// newState starts a session that announces hello, and hooks in it. Hello is the first frame.
func newState(now time.Time, hello *hostv1.Hello, hooks map[hookID]*hook, drainTimeout time.Duration) *state {
	s := &state{
		hooks:        hooks,
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
	s.out.message(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: hello}})
	return s
}

// frame takes a frame of the dispatcher that arrived at now.
func (s *state) frame(now time.Time, f *frame) effects {
	s.lastFrame = now
	if w := f.message.GetWelcome(); w != nil {
		return s.welcome(w)
	}
	if f.unknown() {
		s.ignored++
		return effects{}
	}
	if !s.welcomed {
		return broken(fmt.Errorf("%s came before Welcome", f.name()))
	}
	s.useful = true
	switch {
	case f.chunk != nil:
		return s.chunk(now, f.chunk)
	case f.message == nil:
		return s.whole(now, f.reviews)
	}
	switch message := f.message.GetFrame().(type) {
	case *hostv1.ConnectResponse_Cancel:
		return s.cancel(now, message.Cancel)
	case *hostv1.ConnectResponse_Ping:
		s.send(pong(message.Ping.GetSeq()))
		return effects{}
	case *hostv1.ConnectResponse_Drain:
		return s.left(now, message.Drain)
	case *hostv1.ConnectResponse_HookState:
		return effects{hookState: message.HookState}
	case *hostv1.ConnectResponse_Probe:
		return s.probe(message.Probe)
	default:
		s.ignored++
		return effects{}
	}
}

// send puts a frame into the outbox, unless the host has said its last word.
func (s *state) send(m *hostv1.ConnectRequest) {
	if !s.finishing && !s.mute {
		s.out.message(m)
	}
}

// toSend says whether there are frames to send, or the host's side of the stream to close.
func (s *state) toSend() bool { return s.out.waiting > 0 || s.finishing && !s.mute }

// unwritable says that nothing can be sent any more. The dispatcher may still say why.
func (s *state) unwritable() {
	s.mute = true
	s.out.drop()
}

// end puts a verdict into the outbox, unless the host has said its last word.
func (s *state) end(v *hostv1.Verdict, encoded []byte) {
	switch {
	case s.finishing || s.mute:
	case len(encoded)+frameOverhead <= s.maxVerdict:
		s.out.verdict(encoded)
	default:
		s.out.verdict(encodeVerdict(nil, fit(v, s.maxVerdict)))
	}
}

func (s *state) refuse(p pair, reason string) {
	v := &hostv1.Verdict{
		CallId: p.id, HookIndex: p.index, Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{Reason: reason}},
	}
	s.end(v, encodeVerdict(nil, v))
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
	if slices.Contains(w.GetCapabilities(), takesBatches) {
		s.out.takesTogether(s.maxVerdict)
	}
	return effects{welcome: w}
}

// broken ends a session whose dispatcher does not keep the contract: the books of both sides no longer agree.
func broken(how error) effects {
	return effects{abort: fmt.Errorf("hostsdk: the dispatcher broke the contract: %w", how)}
}

// chunk takes a part of a review, and the review with the last one.
func (s *state) chunk(now time.Time, c *chunk) effects {
	if s.calls[c.call] != nil {
		return broken(fmt.Errorf("call %d came twice", c.call))
	}
	encoded, err := s.assembly.add(now, c)
	if err != nil {
		return broken(err)
	}
	s.highest = max(s.highest, c.call)
	if encoded == nil {
		return effects{}
	}
	reviews, err := decodeReview(encoded)
	if err != nil {
		return broken(fmt.Errorf("the chunks of call %d are no review: %w", c.call, err))
	}
	if r := &reviews[0]; r.call != c.call || len(r.hooks) != int(c.hooks) {
		return broken(fmt.Errorf("the chunks of call %d hold call %d of %d hooks, not %d", c.call, r.call, len(r.hooks), c.hooks))
	}
	return s.reviews(now, s.assembly.began, reviews)
}

// whole takes reviews that come in one piece. Ids are never reused and increase from one to the next, but for those of
// reviews in chunks, which keep an order of their own: that a call comes again is seen also when it is long over.
func (s *state) whole(now time.Time, reviews []review) effects {
	for i := range reviews {
		call := reviews[i].call
		if call <= s.lastWhole && s.anyWhole {
			return broken(fmt.Errorf("call %d came after call %d: each comes once, in the order of their ids", call, s.lastWhole))
		}
		s.lastWhole, s.anyWhole = call, true
	}
	return s.reviews(now, now, reviews)
}

// reviews starts the handlers that are asked, and refuses the calls that cannot start. Their time counts from when the
// dispatcher wrote the reviews, or the first chunk.
func (s *state) reviews(now, written time.Time, reviews []review) effects {
	asked := 0
	for i := range reviews {
		asked += len(reviews[i].hooks)
	}
	// Pointers into it are kept: it never grows.
	start := make([]invocation, 0, min(asked, max(0, s.limit-s.outstanding)))
	for i := range reviews {
		var err error
		if start, err = s.review(now, written, &reviews[i], start); err != nil {
			return broken(err)
		}
	}
	s.finishWhenDrained(now)
	return effects{start: start}
}

// review appends the handlers of one review to start. Ids are never reused: a second review of a live call would leave
// both sides with different books.
func (s *state) review(now, written time.Time, r *review, start []invocation) ([]invocation, error) {
	if s.calls[r.call] != nil || s.assembly.assembling() && s.assembly.call == r.call {
		return nil, fmt.Errorf("call %d came twice", r.call)
	}
	if len(r.hooks) > maxReviewHooks {
		return nil, tooManyHooks(r.call, len(r.hooks))
	}
	s.highest = max(s.highest, r.call)
	early := s.takeEarly(now, r.call)
	live := &r.live
	if live.running = live.one[:]; len(r.hooks) != 1 {
		live.running = make([]*invocation, len(r.hooks))
	}
	for i := range r.hooks {
		h, p := &r.hooks[i], pair{r.call, uint32(i)}
		asked := s.hooks[hookID{string(h.name), h.stage}]
		if reason := s.refusal(r, h, asked, cancelled(early, p.index)); reason != "" {
			s.refuse(p, reason)
			continue
		}
		start = start[:len(start)+1]
		inv := &start[len(start)-1]
		inv.pair, inv.hook, inv.review = p, asked, r
		inv.received, inv.deadline = now, written.Add(milliseconds(h.remaining))
		live.running[i] = inv
		live.left++
		s.outstanding++
	}
	if live.left > 0 {
		s.calls[r.call] = live
		s.lastStarted = max(s.lastStarted, r.call)
	}
	return start, nil
}

// refusal says why the handler of a hook is not started; empty if it is.
func (s *state) refusal(r *review, call *hookCall, asked *hook, cancelled bool) string {
	switch {
	case s.draining:
		return refusedDraining
	case asked == nil:
		return refusedUnknown
	case !r.request.present:
		return refusedEmpty
	case cancelled:
		return refusedCancelled
	case call.remaining == 0:
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
	return effects{cancel: live.named(c.GetHookIndexes())}
}

// named are the running handlers of a list of hook indexes, of which an empty one means all.
func (l *liveCall) named(indexes []uint32) (out []*invocation) {
	if len(indexes) == 0 {
		return slices.DeleteFunc(slices.Clone(l.running), func(i *invocation) bool { return i == nil })
	}
	for _, hook := range indexes {
		if int(hook) < len(l.running) && l.running[hook] != nil {
			out = append(out, l.running[hook])
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
	for hook := range s.assembly.drop() {
		v := &hostv1.Verdict{
			CallId: c.GetCallId(), HookIndex: hook, Outcome: &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}},
		}
		s.end(v, encodeVerdict(nil, v))
	}
	s.finishWhenDrained(now)
	return effects{}
}

// rememberEarly keeps a cancellation for as long as a silent session is kept.
func (s *state) rememberEarly(now time.Time, c *hostv1.Cancel) {
	s.early.forget(now.Add(-s.silence))
	s.early.remember(now, c)
}

func (s *state) takeEarly(now time.Time, call uint64) []earlyCancel {
	s.early.forget(now.Add(-s.silence))
	return s.early.take(call)
}

// probe asks the hook itself, or answers for one that is not offered.
func (s *state) probe(p *hostv1.Probe) effects {
	offered := s.hooks[hookID{p.GetHook(), admissionv1.Stage_STAGE_VALIDATE}] != nil ||
		s.hooks[hookID{p.GetHook(), admissionv1.Stage_STAGE_MUTATE}] != nil
	switch {
	case !offered:
		s.send(probeResult(p.GetSeq(), NewError(refusedUnknown, nil)))
		return effects{}
	case s.probing >= maxProbes:
		s.send(probeResult(p.GetSeq(), NewError("too many probes at a time", nil)))
		return effects{}
	default:
		s.probing++
		return effects{probe: p}
	}
}

// probed takes what a hook said of its readiness; nil means ready.
func (s *state) probed(seq uint64, notReady error) {
	s.probing--
	s.send(probeResult(seq, notReady))
}

// finished takes the verdict of a handler that has returned, and its encoding. It is sent whether or not the call was
// cancelled: it alone frees the slot.
func (s *state) finished(now time.Time, p pair, v *hostv1.Verdict, encoded []byte) {
	live := s.calls[p.id]
	if live == nil || live.running[p.index] == nil {
		return
	}
	live.running[p.index] = nil
	live.left--
	s.outstanding--
	if live.left == 0 {
		delete(s.calls, p.id)
	}
	s.end(v, encoded)
	s.finishWhenDrained(now)
}

// credit announces a new bound on outstanding calls.
func (s *state) credit(most int) {
	if s.draining || most == s.announced {
		return
	}
	s.announced = most
	s.limit = max(s.limit, most)
	s.send(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{
		Credit: &hostv1.Credit{MaxOutstanding: uint32(most)},
	}})
}

// drain says good-bye: no new calls from here on, those in flight finish.
func (s *state) drain(now time.Time) {
	if s.draining {
		return
	}
	s.draining = true
	s.drainUntil = now.Add(s.drainTimeout)
	s.send(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{
		Drain: &hostv1.HostDrain{LastStartedCallId: s.lastStarted},
	}})
	s.finishWhenDrained(now)
}

// finishWhenDrained lets the session end once no call is owed a verdict. A review that comes in chunks is owed one if a
// call with a greater id was started: the dispatcher cannot tell from HostDrain that this one was not.
func (s *state) finishWhenDrained(now time.Time) {
	owed := s.outstanding > 0 || s.assembly.assembling() && s.assembly.call < s.lastStarted
	if !s.draining || s.finishing || owed {
		return
	}
	s.finishing = true
	s.endBy(now.Add(closeTimeout))
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
