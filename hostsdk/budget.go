package hostsdk

import "sync"

// budget divides the calls that a host takes at a time over its sessions. While shares change, their sum may exceed the total;
// the calls beyond it wait for a slot. Safe for concurrent use.
type budget struct {
	most int // that total may be

	mu      sync.Mutex
	total   int
	members map[*session]struct{}
}

func newBudget(total int) *budget {
	return &budget{most: total, total: total, members: map[*session]struct{}{}}
}

// resize changes the total, between 0 and its first value.
func (b *budget) resize(total int) {
	total = min(max(total, 0), b.most)
	b.mu.Lock()
	if total == b.total {
		b.mu.Unlock()
		return
	}
	b.total = total
	all := b.othersLocked(nil)
	b.mu.Unlock()
	announceShares(all)
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

// share is how many calls each session may take now: at least 1, unless the total is 0.
func (b *budget) share() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(min(1, b.total), b.total/max(1, len(b.members)))
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
