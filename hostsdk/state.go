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

// Why a session was aborted. The dispatcher fails its calls over, and the host dials again.
var (
	errNoWelcome = errors.New("hostsdk: the dispatcher sent no welcome in time")
	errSilent    = errors.New("hostsdk: the dispatcher fell silent")
	errDrained   = errors.New("hostsdk: calls were still running when the time to drain was over")
	errNotEnded  = errors.New("hostsdk: the dispatcher did not end the stream")
)

type hookID struct {
	name  string
	stage admissionv1.Stage
}

// effects are the tasks of the session after a step, in the order of the fields. The frames to send are in the outbox.
type effects struct {
	// welcome is set once the dispatcher has accepted the host, and again when it says more.
	welcome *hostv1.Welcome
	// hookState is a change since the welcome.
	hookState *hostv1.HookState
	// leaving is set when the dispatcher drains.
	leaving *hostv1.DispatcherDrain
	start   []invocation
	cancel  []*invocation
	probe   *hostv1.Probe
	// abort ends the stream at once.
	abort error
}

// state decides the actions of one session. It is pure: no goroutine, no clock, no I/O; time comes in as a parameter.
// One caller at a time.
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
	owing     time.Time // time of the first frame since the host's last one; zero if there is none
	useful    bool      // a frame came after the welcome
	ignored   uint64    // frames of unknown types

	// Calls. limit is the highest bound ever announced: the dispatcher may not know a lower one yet.
	calls       map[uint64]*liveCall
	outstanding int
	limit       int
	announced   int    // the bound announced last
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
	finishing  bool // nothing is sent after the frames in the outbox
	mute       bool // nothing can be sent
	over       bool // aborted
	drainUntil time.Time
	endUntil   time.Time
	hurried    bool // a deadline has become earlier since takeHurry
}

// newState starts a session; hello is its first frame.
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

func (s *state) frame(now time.Time, f *frame) effects {
	s.lastFrame = now
	out := s.received(now, f)
	s.alive(now)
	return out
}

// alive sends an unasked Pong when frames have come for a while and the host has sent none: on a slow link a Ping may be stuck
// behind them. Without frames it sends nothing: a host that receives nothing must get no calls.
func (s *state) alive(now time.Time) {
	switch {
	case s.out.waiting > 0: // A frame will be sent anyway.
	case s.owing.IsZero():
		s.owing = now
	case now.Sub(s.owing) >= aliveInterval:
		s.send(pong(unasked))
		s.owing = now
	}
}

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

// send puts a frame into the outbox, unless the host's side of the stream is closed.
func (s *state) send(m *hostv1.ConnectRequest) {
	if !s.finishing && !s.mute {
		s.owing = time.Time{}
		s.out.message(m)
	}
}

// toSend reports whether there are frames to send, or the host's side of the stream to close.
func (s *state) toSend() bool { return s.out.waiting > 0 || s.finishing && !s.mute }

// mayShare reports whether running handlers may soon return verdicts for the next frame.
func (s *state) mayShare() bool { return s.out.batches && s.outstanding > 0 }

// unwritable notes that a write has failed. The reader may still learn why.
func (s *state) unwritable() {
	s.mute = true
	s.out.drop()
}

// sendVerdict puts a verdict into the outbox, likewise.
func (s *state) sendVerdict(v *hostv1.Verdict, encoded []byte) {
	s.owing = time.Time{}
	switch {
	case s.finishing || s.mute:
	case len(encoded)+frameOverhead <= s.maxVerdict:
		s.out.verdict(encoded)
	default:
		s.out.verdict(encodeVerdict(nil, fit(v, s.maxVerdict)))
	}
}

// welcome takes the answer to Hello. A later Welcome has a new list of peers and states.
func (s *state) welcome(w *hostv1.Welcome) effects {
	if w.GetProtocol() != protocolVersion {
		return effects{abort: fmt.Errorf("hostsdk: the dispatcher chose protocol %d, this host speaks %d",
			w.GetProtocol(), protocolVersion)}
	}
	s.welcomed, s.hurried = true, true
	s.silence = cmp.Or(milliseconds(w.GetSilenceMs()), s.silence)
	s.maxVerdict = cmp.Or(int(w.GetMaxVerdictBytes()), s.maxVerdict)
	if slices.Contains(w.GetCapabilities(), capabilityBatches) {
		s.out.allowBatches(s.maxVerdict)
	}
	return effects{welcome: w}
}

func (s *state) probe(p *hostv1.Probe) effects {
	offered := slices.ContainsFunc(stages(), func(stage admissionv1.Stage) bool { return s.hooks[hookID{p.GetHook(), stage}] != nil })
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

// probed sends the result of a probe; nil means ready.
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

// drain announces that the host takes no new calls. Those in flight finish.
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

// finishWhenDrained ends a draining session once all calls have their verdicts. An incomplete review needs one if a call with
// a greater id was started: by HostDrain the dispatcher takes it as started too.
func (s *state) finishWhenDrained(now time.Time) {
	owed := s.outstanding > 0 || s.assembly.assembling() && s.assembly.call < s.lastStarted
	if !s.draining || s.finishing || owed {
		return
	}
	s.finishing = true
	s.endBy(now.Add(closeTimeout))
}

// left bounds the rest of a session whose dispatcher drains: it ends the stream after the calls in flight.
func (s *state) left(now time.Time, d *hostv1.DispatcherDrain) effects {
	s.endBy(now.Add(milliseconds(d.GetGraceMs()) + closeTimeout))
	return effects{leaving: d}
}

func (s *state) endBy(t time.Time) {
	if s.endUntil.IsZero() || t.Before(s.endUntil) {
		s.endUntil, s.hurried = t, true
	}
}

// deadline is a time at which the session is aborted; a zero time is none.
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

// takeHurry reports whether a deadline has become earlier since the last call.
func (s *state) takeHurry() bool {
	hurried := s.hurried
	s.hurried = false
	return hurried
}

// wake returns the time of the next deadline; zero if there is none.
func (s *state) wake() time.Time {
	var first time.Time
	for _, d := range s.deadlines() {
		if !d.at.IsZero() && (first.IsZero() || d.at.Before(first)) {
			first = d.at
		}
	}
	return first
}

// tick aborts the session when a deadline has passed.
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

func probeResult(seq uint64, notReady error) *hostv1.ConnectRequest {
	result := &hostv1.ProbeResult{Seq: seq, Ready: notReady == nil}
	if notReady != nil {
		result.Message = shorten(valid(publicText(notReady, notReadyYet)), maxErrorBytes)
	}
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_ProbeResult{ProbeResult: result}}
}
