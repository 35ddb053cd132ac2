package hostsdk

import "sync"

// budget divides the calls that a host takes at a time over its sessions. While shares change, their sum may exceed the total;
// the calls beyond it wait for a slot. Safe for concurrent use.
type budget struct {
	total int

	mu      sync.Mutex
	members map[*session]struct{}
}

func newBudget(total int) *budget {
	return &budget{total: total, members: map[*session]struct{}{}}
}

func (b *budget) addSession(s *session) {
	b.mu.Lock()
	others := b.othersLocked(s)
	b.members[s] = struct{}{}
	b.mu.Unlock()
	announceShares(others)
}

// removeSession is idempotent. The session gets no new calls.
func (b *budget) removeSession(s *session) {
	b.mu.Lock()
	_, member := b.members[s]
	delete(b.members, s)
	others := b.othersLocked(s)
	b.mu.Unlock()
	if member {
		announceShares(others)
	}
}

// share is how many calls each session may take now; at least 1.
func (b *budget) share() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(1, b.total/max(1, len(b.members)))
}

func (b *budget) othersLocked(s *session) []*session {
	others := make([]*session, 0, len(b.members))
	for other := range b.members {
		if other != s {
			others = append(others, other)
		}
	}
	return others
}

// announceShares runs outside of the lock, so that two changes may overtake each other: a session reads the share itself.
func announceShares(sessions []*session) {
	for _, s := range sessions {
		s.shareChanged()
	}
}
