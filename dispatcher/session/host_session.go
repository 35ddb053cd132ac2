package session

import (
	"slices"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/identity"
)

// hostSession is a session in a registry. It is the sink of its own session: it hands what happens there to the pools.
type hostSession struct {
	replica

	registry *Registry
	tenant   *tenant   // set when it is added to the index
	joined   time.Time // likewise
	shard    int       // by which it is maintained; likewise
}

var _ stream.Sink = (*hostSession)(nil)

// newSession makes the session of a host that has said Hello. o lacks what the registry knows.
func newSession(r *Registry, peer identity.Peer, hello *hostv1.Hello, o stream.Options) *hostSession {
	s := &hostSession{registry: r}
	s.peer, s.hello = peer, r.digests.ofHello(hello)
	o.Sink, o.Frames = s, r.metrics.frames
	s.Init(hello, o)
	s.pools.Store(&map[*pool]*poolMember{})
	return s
}

func (s *hostSession) tick(now time.Time) {
	s.Session.Tick(now, s.silenceLimit(now), s.overstays(now))
}

// overstays reports whether a session has had its time without any grant to its identity.
func (s *hostSession) overstays(now time.Time) bool {
	since := s.tenant.ungranted.Load()
	return since != 0 && now.UnixNano()-max(since, s.joined.UnixNano()) >= int64(UngrantedTimeout)
}

// share bounds what a cluster takes of the slots, if several may use the session.
func (s *hostSession) share(v *hookTable) { s.SetShared(v.severalClusters(&s.replica)) }

// OpenChanged implements [stream.Sink].
func (s *hostSession) OpenChanged() {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.absentFrom(time.Now())
	for p, x := range *s.pools.Load() {
		p.noteOpen(x, s.Open(), from)
	}
}

// SlotsFreed implements [stream.Sink]. The slots of a silent session go to waiting calls when there is nothing better: see
// [Registry.maintainQueues].
func (s *hostSession) SlotsFreed() {
	if s.registry.queued.Load() == 0 || s.Unresponsive(time.Now()) {
		return
	}
	for p := range *s.pools.Load() {
		if s.FreeSlots() == 0 {
			return
		}
		p.drainTo(&s.replica)
	}
}

// CallEnded implements [stream.Sink]: the call gets its result, or goes to another replica.
func (s *hostSession) CallEnded(ended stream.Ticket, result review.Result) {
	t := given(ended)
	result.Timing.Instance = s.Instance()
	if x := (*s.pools.Load())[t.pool]; x != nil {
		x.learn(result, s.LastHeard())
	}
	if result.Failure == nil {
		t.finish(result)
		return
	}
	now := time.Now()
	if !t.mayRetry(result.Failure, now) {
		t.finish(result)
		return
	}
	t.failedOn(&s.Session)
	s.registry.metrics.retries.Inc()
	place([]*ticket{t}, now)
}

// given is a ticket that a session gives back.
func given(t stream.Ticket) *ticket {
	return t.(*ticket) //nolint:errcheck,forcetypeassert // sessions have no others
}

// CallOvertaken implements [stream.Sink]: the replica counts as slow.
func (s *hostSession) CallOvertaken(t stream.Ticket, after time.Duration, now time.Time) {
	if x := (*s.pools.Load())[given(t).pool]; x != nil {
		x.pace.recordOvertaken(after, now)
	}
}

// probePending has a session ask its host about the pending hooks that it serves now. What these are is looked up in the session's
// turn: two changes of the configuration may come here the other way round.
func (s *hostSession) probePending() {
	s.Probe(func() (names []string) {
		v := s.registry.hooks.Load()
		for p := range *s.pools.Load() {
			if h := v.pending[p]; h != nil && !slices.Contains(names, h.ID.Name) {
				names = append(names, h.ID.Name)
			}
		}
		return names
	})
}

// ProbesAnswered implements [stream.Sink].
func (s *hostSession) ProbesAnswered(answers []stream.ProbeAnswer) {
	for _, a := range answers {
		for p := range *s.pools.Load() {
			if p.hook.Load().ID.Name == a.Hook {
				p.noteReport(probeReport{&s.replica, a})
			}
		}
		if !a.Ready {
			continue
		}
		select {
		case s.registry.readied <- struct{}{}:
		default:
		}
	}
}
