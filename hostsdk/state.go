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
	owing     time.Time // since when frames have come while the host has said nothing; zero when it has
	useful    bool      // a frame came after the welcome
	ignored   uint64    // frames of unknown types

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
	hurried    bool // one of the deadlines has moved forward
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
	out := s.received(now, f)
	s.alive(now)
	return out
}

// alive says by itself that the host lives, when frames come and it has had nothing to say to them for a while: a Ping
// may be behind them, on a link that takes seconds for what is on its way. Who hears nothing says nothing: a host that can
// only be heard shall get no calls.
func (s *state) alive(now time.Time) {
	switch {
	case s.out.waiting > 0: // and says so
	case s.owing.IsZero():
		s.owing = now
	case now.Sub(s.owing) >= aliveInterval:
		s.send(pong(unasked))
		s.owing = now
	}
}

// received does what a frame asks for.
func (s *state) received(now time.Time, f *frame) effects {
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
		s.owing = time.Time{}
		s.out.message(m)
	}
}

// toSend says whether there are frames to send, or the host's side of the stream to close.
func (s *state) toSend() bool { return s.out.waiting > 0 || s.finishing && !s.mute }

// mayShare says whether handlers are under way whose verdicts could go in the same frame as what there is to send.
func (s *state) mayShare() bool { return s.out.together && s.outstanding > 0 }

// unwritable says that nothing can be sent any more. The dispatcher may still say why.
func (s *state) unwritable() {
	s.mute = true
	s.out.drop()
}

// end puts a verdict into the outbox, unless the host has said its last word.
func (s *state) end(v *hostv1.Verdict, encoded []byte) {
	s.owing = time.Time{}
	switch {
	case s.finishing || s.mute:
	case len(encoded)+frameOverhead <= s.maxVerdict:
		s.out.verdict(encoded)
	default:
		s.out.verdict(encodeVerdict(nil, fit(v, s.maxVerdict)))
	}
}

// welcome takes the answer to Hello. A later one brings a new list of peers and states.
func (s *state) welcome(w *hostv1.Welcome) effects {
	if w.GetProtocol() != protocolVersion {
		return effects{abort: fmt.Errorf("hostsdk: the dispatcher chose protocol %d, this host speaks %d",
			w.GetProtocol(), protocolVersion)}
	}
	s.welcomed, s.hurried = true, true
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
	s.draining, s.hurried = true, true
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
		s.endUntil, s.hurried = t, true
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

// hurry says whether something has moved the next deadline forward since it was asked last.
func (s *state) hurry() bool {
	hurried := s.hurried
	s.hurried = false
	return hurried
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

// unasked is the seq of a Pong that answers no Ping.
const unasked = 0

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
