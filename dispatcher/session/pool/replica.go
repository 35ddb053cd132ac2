package pool

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Replica is the session of one host as pools know it. It implements the part of [stream.Sink] that is about calls; the owner embeds it
// and implements the rest. The owner's lock guards memberships; all other methods may be called concurrently.
type Replica struct {
	stream.Session

	// Hello has the offers and the clusters of the host, and Peer its identity. Neither changes.
	Hello HelloDigest
	Peer  identity.Peer

	retries prometheus.Counter
	latest  latest
	members atomic.Pointer[map[*Pool]*Member] // by the pools that it is or will be in; the owner's lock guards changes
}

// InitReplica initializes a replica from the Hello of its host. retries counts calls that go to another replica.
func (s *Replica) InitReplica(hello *hostv1.Hello, peer identity.Peer, d Digests, retries prometheus.Counter, o stream.Options) {
	s.Hello, s.Peer, s.retries = d.ofHello(hello), peer, retries
	s.members.Store(&map[*Pool]*Member{})
	s.Init(hello, o)
}

// Memberships are the replica's memberships, by pool. The map is never changed.
func (s *Replica) Memberships() map[*Pool]*Member { return *s.members.Load() }

// SetMemberships makes a replica leave the pools that are not in next, which are without a replica from absentFrom on where it was the
// last one, and gives it memberships of the others: Join puts them in force. The owner's lock is held.
func (s *Replica) SetMemberships(next map[*Pool]*Member, absentFrom time.Time) {
	before := s.Memberships()
	s.members.Store(&next) // first: a replica that is picked for a pool belongs to it
	for p, x := range before {
		if next[p] == nil {
			p.removeMember(x, absentFrom)
		}
	}
}

// Join lets calls of all its pools go to the replica. The owner's lock is held.
func (s *Replica) Join() {
	for p, x := range s.Memberships() {
		if !x.joined {
			p.addMember(x)
		}
	}
}

// NoteOpen records whether the replica takes new calls, which its session has just changed. The owner's lock is held.
func (s *Replica) NoteOpen(absentFrom time.Time) {
	for p, x := range s.Memberships() {
		p.noteOpen(x, s.Open(), absentFrom)
	}
}

// ServeWaiting gives free slots to waiting calls.
func (s *Replica) ServeWaiting() {
	for p := range s.Memberships() {
		if s.FreeSlots() == 0 {
			return
		}
		p.drainTo(s)
	}
}

// NoteProbe keeps the answer of the host about pending hooks.
func (s *Replica) NoteProbe(a stream.ProbeAnswer) {
	for p := range s.Memberships() {
		if p.hook.Load().ID.Name == a.Hook {
			p.noteAnswer(ProbeAnswer{s, a})
		}
	}
}

// CallEnded implements [stream.Sink]: the call gets its result, or goes to another replica.
func (s *Replica) CallEnded(ended stream.Ticket, result review.Result) {
	t := given(ended)
	result.Timing.Instance = s.Instance()
	if x := s.Memberships()[t.pool]; x != nil {
		x.learn(result, s.LastHeard())
	}
	if result.Failure == nil {
		s.latest.record(result.Timing.Wire + result.Timing.Host)
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
	s.retries.Inc()
	place([]*ticket{t}, now)
}

// CallOvertaken implements [stream.Sink]: the replica counts as slow.
func (s *Replica) CallOvertaken(t stream.Ticket, after time.Duration, now time.Time) {
	if x := s.Memberships()[given(t).pool]; x != nil {
		x.pace.recordOvertaken(after, now)
	}
}

// given is a ticket that a session gives back.
func given(t stream.Ticket) *ticket {
	return t.(*ticket) //nolint:errcheck,forcetypeassert // sessions have no others
}

// Percentiles are how long the latest [LatestCalls] calls took that ended with a verdict: half of them no longer than p50, 99 of
// 100 no longer than p99. Both are zero without calls.
func (s *Replica) Percentiles() (p50, p99 time.Duration) { return s.latest.percentiles() }

// Takes reports whether the host takes reviews of a cluster.
func (s *Replica) Takes(cluster string) bool {
	return len(s.Hello.clusters) == 0 || s.Hello.names(cluster)
}

// hasSlotFor reports whether the replica takes a call of a cluster now.
func (s *Replica) hasSlotFor(cluster string) bool { return s.Takes(cluster) && s.HasSlotFor(cluster) }

// Serves reports whether any hook of the replica is for a cluster.
func (s *Replica) Serves(cluster string) bool {
	for p := range s.Memberships() {
		if p.hook.Load().Serves(cluster) {
			return true
		}
	}
	return false
}

// SilenceLimit is how long the replica may be silent: longer while most of a pool is, since it may be us who paused.
func (s *Replica) SilenceLimit(now time.Time) time.Duration {
	if s.Unresponsive(now) {
		for p := range s.Memberships() {
			if !p.mostlyAlive(now) {
				return stream.HostSilence
			}
		}
	}
	return stream.LostAfter
}
