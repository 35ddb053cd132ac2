package stream

import "sync/atomic"

// growthParts: a cluster may hold growthParts times the free slots of a session, as in
// [memory.Ledger]: a cluster alone gets three quarters, two get three sevenths each.
const growthParts = 3

// keptShares is how many clusters without slots a session remembers, so that their next calls allocate nothing.
const keptShares = 128

// allowance returns how many more slots of a session a cluster may take, from the slots that it holds and the free slots. It then holds at
// most growthParts times the slots that stay free. A cluster that holds none gets one in any case.
func allowance(held, free int64) int64 {
	if free <= 0 {
		return 0
	}
	more := (growthParts*free - held) / (growthParts + 1)
	if held == 0 {
		more = max(1, more)
	}
	return max(0, more)
}

// shares is how many slots of a session each cluster holds. It changes under the session's lock and is read without one.
type shares struct {
	byCluster atomic.Pointer[map[string]*share] // never changed once it is stored
}

// share is the slots of one cluster. It is forgotten only while the cluster holds none.
type share struct{ held atomic.Int64 }

func (s *shares) held(cluster string) int64 {
	if x := s.all()[cluster]; x != nil {
		return x.held.Load()
	}
	return 0
}

// all returns the shares by cluster, empty ones included.
func (s *shares) all() map[string]*share {
	if all := s.byCluster.Load(); all != nil {
		return *all
	}
	return nil
}

// of returns the share of a cluster, and makes one if there is none. The session's lock is held.
func (s *shares) of(cluster string) *share {
	if x := s.all()[cluster]; x != nil {
		return x
	}
	x, next := &share{}, s.kept()
	next[cluster] = x
	s.byCluster.Store(&next)
	return x
}

// kept is a copy of the shares: without the empty ones, if these are too many.
func (s *shares) kept() map[string]*share {
	next, empty := make(map[string]*share), 0
	for cluster, x := range s.all() {
		if next[cluster] = x; x.held.Load() == 0 {
			empty++
		}
	}
	if empty >= keptShares {
		for cluster, x := range next {
			if x.held.Load() == 0 {
				delete(next, cluster)
			}
		}
	}
	return next
}

func (s *state) freeSlots() int {
	if !s.open() {
		return 0
	}
	return max(0, s.credit-s.usedSlots)
}

func (s *state) freeSlotsFor(cluster string) int {
	if !s.shared {
		return s.freeSlots()
	}
	return int(allowance(s.shares.held(cluster), int64(s.freeSlots())))
}

// addSlots books slots for a frame, or gives them back when n is below zero.
func (s *state) addSlots(f *reviewFrame, n int) {
	s.usedSlots += n
	f.share.held.Add(int64(n))
}

// free gives the slot of a call back.
func (s *state) free(f *reviewFrame, i int) {
	f.tickets[i] = nil
	f.open--
	s.addSlots(f, -1)
	if f.open == 0 {
		delete(s.calls, f.id)
	}
}
