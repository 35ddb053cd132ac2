package hostsdk

import "sync"

// budget divides the calls that a host takes at a time over its sessions. The shares may add up to a little more than
// the whole while they change; what is too much then waits for a slot. Safe for concurrent use.
type budget struct {
	total int

	mu      sync.Mutex
	members map[*session]struct{}
}

func newBudget(total int) *budget {
	return &budget{total: total, members: map[*session]struct{}{}}
}

// join counts s in. The others are told their new share.
func (b *budget) join(s *session) {
	b.mu.Lock()
	others := b.othersLocked(s)
	b.members[s] = struct{}{}
	b.mu.Unlock()
	tell(others)
}

// leave counts s out: it gets no new calls. The others are told their new share. A second time does nothing.
func (b *budget) leave(s *session) {
	b.mu.Lock()
	_, member := b.members[s]
	delete(b.members, s)
	others := b.othersLocked(s)
	b.mu.Unlock()
	if member {
		tell(others)
	}
}

// share is what each session may take now; at least 1.
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

// tell runs outside of the lock, so that news may overtake each other: a session asks for the share itself.
func tell(sessions []*session) {
	for _, s := range sessions {
		s.shareChanged()
	}
}
