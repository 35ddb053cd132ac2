package stream

// Figures are the books of a session at one moment, for who audits them.
type Figures struct {
	// Credit is how many calls the host takes, Used how many slots are taken.
	Credit, Used int
	// Shared is whether several clusters may call.
	Shared bool
	// Held is how many slots each cluster holds, and Open how many its calls have: the two are equal.
	Held, Open map[string]int
	// Queued is whether a frame waits for the writer, and Unsent how many bytes of the review that goes in chunks.
	Queued bool
	Unsent int
	// Ended is why the session is over; nil while it lives.
	Ended error
}

// Figures returns the books.
func (s *Session) Figures() Figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state
	f := Figures{
		Credit: st.credit, Used: st.usedSlots, Shared: st.shared, Queued: st.hasFrames(), Ended: s.ended,
		Held: map[string]int{}, Open: map[string]int{},
	}
	for cluster, x := range st.shares.all() {
		f.Held[cluster] = int(x.held.Load())
		for _, frame := range st.calls {
			if frame.share == x {
				f.Open[cluster] += frame.open
			}
		}
	}
	if st.sending != nil {
		f.Unsent = st.sending.left
	}
	return f
}

// Standing is how a session is with calls at one moment.
type Standing struct {
	// Credit is how many calls the host takes at a time, and Used how many slots are taken.
	Credit, Used int
	// Leaving is true when the session takes no new calls any more: the host, the dispatcher or a newer session ends it.
	Leaving bool
}

// Standing holds the lock for a moment that depends on nothing.
func (s *Session) Standing() Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Standing{Credit: s.state.credit, Used: s.state.usedSlots, Leaving: s.ended != nil || s.state.draining || !s.state.deadline.IsZero()}
}
