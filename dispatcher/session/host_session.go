package session

import (
	"slices"
	"strings"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// hostSession is a session in a router. It is the sink of its own session: it hands results and reports to the pools.
type hostSession struct {
	pool.Replica

	router *Router
	about  introduction
	tenant *tenant   // set when it is added to the index
	joined time.Time // likewise
	shard  int       // by which it is maintained; likewise
}

// introduction is the part of a Hello for listings; each name has at most [MaxNameBytes], the name of the SDK twice as many.
type introduction struct{ name, sdk, zone string }

var _ stream.Sink = (*hostSession)(nil)

// newSession makes the session of a host from its Hello. The router completes o.
func newSession(r *Router, peer identity.Peer, hello *hostv1.Hello, o stream.Options) *hostSession {
	s := &hostSession{router: r, about: introduction{hello.GetHost(), strings.TrimSpace(hello.GetSdk() + " " + hello.GetSdkVersion()), hello.GetZone()}}
	o.Sink, o.Frames = s, r.metrics.frames
	s.InitReplica(hello, peer, r.digests, r.metrics.retries, o)
	return s
}

func (s *hostSession) tick(now time.Time) {
	s.Session.Tick(now, s.SilenceLimit(now), s.overstays(now))
}

// overstays reports whether a session has had its time without any grant to its identity.
func (s *hostSession) overstays(now time.Time) bool {
	since := s.tenant.ungranted.Load()
	return since != 0 && now.UnixNano()-max(since, s.joined.UnixNano()) >= int64(UngrantedTimeout)
}

// share bounds the slots of each cluster, if several may use the session.
func (s *hostSession) share(v *hookTable) { s.SetShared(v.severalClusters(&s.Replica)) }

// OpenChanged implements [stream.Sink].
func (s *hostSession) OpenChanged() {
	r := s.router
	r.mu.Lock()
	defer r.mu.Unlock()
	s.NoteOpen(r.absentFrom(time.Now()))
}

// SlotsFreed implements [stream.Sink]. The slots of a silent session go to waiting calls when there is nothing better: see
// [Router.maintainQueues].
func (s *hostSession) SlotsFreed() {
	if s.router.queued.Load() == 0 || s.Unresponsive(time.Now()) {
		return
	}
	s.ServeWaiting()
}

// probePending has a session ask its host about the pending hooks that it serves now. It looks them up in the session's
// turn: two changes of the configuration may come here the other way round.
func (s *hostSession) probePending() {
	s.Probe(func() (names []string) {
		v := s.router.hooks.Load()
		for p := range s.Memberships() {
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
		s.NoteProbe(a)
		if !a.Ready {
			continue
		}
		select {
		case s.router.readied <- struct{}{}:
		default:
		}
	}
}
