package pool

import "github.com/portcullis-mesh/portcullis/dispatcher/session/stream"

// ProbeAnswer is the answer of a session about a pending hook.
type ProbeAnswer struct {
	// Replica is the replica that answered.
	Replica *Replica
	stream.ProbeAnswer
}

// noteAnswer keeps the last answer, and prefers the answer of a session that is ready. Of two at the same moment it may lose the first: hosts
// are asked again.
func (p *Pool) noteAnswer(c ProbeAnswer) {
	if last := p.ProbeAnswer(); c.Ready || last == nil || !last.Ready || last.Replica == c.Replica {
		p.answer.Store(&c)
	}
}

// ProbeAnswer is the answer that counts; nil when there is none of a session that still serves the hook.
func (p *Pool) ProbeAnswer() *ProbeAnswer {
	c := p.answer.Load()
	if c == nil || c.Replica.Memberships()[p] == nil {
		return nil
	}
	return c
}

// ForgetAnswer forgets the answer: the hook is another one.
func (p *Pool) ForgetAnswer() { p.answer.Store(nil) }
