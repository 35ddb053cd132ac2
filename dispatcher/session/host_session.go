package session

import (
	"slices"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
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

var _ sink = (*hostSession)(nil)

func newSession(r *Registry, id string, peer identity.Peer, hello *hostv1.Hello) *hostSession {
	s := &hostSession{registry: r}
	s.init(id, peer, hello, r.digests)
	s.sink, s.frames = s, r.metrics.frames
	s.pools.Store(&map[*pool]*poolMember{})
	return s
}

func (s *hostSession) tick(now time.Time) {
	s.Session.tick(now, s.silenceLimit(now), s.overstays(now))
}

// overstays reports whether a session has had its time without any grant to its identity.
func (s *hostSession) overstays(now time.Time) bool {
	since := s.tenant.ungranted.Load()
	return since != 0 && now.UnixNano()-max(since, s.joined.UnixNano()) >= int64(UngrantedTimeout)
}

// share bounds what a cluster takes of the slots, if several may use the session.
func (s *hostSession) share(v *hookTable) { s.setShared(v.severalClusters(&s.replica)) }

// openChanged implements sink.
func (s *hostSession) openChanged() {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.absentFrom(time.Now())
	for p, x := range *s.pools.Load() {
		p.noteOpen(x, s.open.Load(), from)
	}
}

// slotsFreed implements sink. The slots of a silent session go to waiting calls when there is nothing better: see
// [Registry.maintainQueues].
func (s *hostSession) slotsFreed() {
	if s.registry.queued.Load() == 0 || s.unresponsive(time.Now()) {
		return
	}
	for p := range *s.pools.Load() {
		if s.freeSlots.Load() == 0 {
			return
		}
		p.drainTo(&s.replica)
	}
}

// callEnded implements sink: the call gets its result, or goes to another replica.
func (s *hostSession) callEnded(t *ticket, result review.Result) {
	result.Timing.Instance = s.instance
	if x := (*s.pools.Load())[t.pool]; x != nil {
		x.learn(result, time.Unix(0, s.heard.Load()))
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

// callOvertaken implements sink: the replica counts as slow.
func (s *hostSession) callOvertaken(t *ticket, after time.Duration, now time.Time) {
	if x := (*s.pools.Load())[t.pool]; x != nil {
		x.pace.recordOvertaken(after, now)
	}
}

// probePending has a session ask its host about the pending hooks that it serves now. What these are is looked up in the session's
// turn: two changes of the configuration may come here the other way round.
func (s *hostSession) probePending() {
	s.step(func(st *state) {
		v := s.registry.hooks.Load()
		var names []string
		for p := range *s.pools.Load() {
			if h := v.pending[p]; h != nil && !slices.Contains(names, h.ID.Name) {
				names = append(names, h.ID.Name)
			}
		}
		st.pend(time.Now(), names)
	})
}

// probesAnswered implements sink.
func (s *hostSession) probesAnswered(answers []probed) {
	for _, a := range answers {
		for p := range *s.pools.Load() {
			if p.hook.Load().ID.Name == a.hook {
				p.noteReport(probeReport{&s.replica, a})
			}
		}
		if !a.ready {
			continue
		}
		select {
		case s.registry.readied <- struct{}{}:
		default:
		}
	}
}
