package pool

import "github.com/portcullis-mesh/portcullis/dispatcher/session/stream"

// Report is the answer of a session about a pending hook.
type Report struct {
	// Replica is the replica that answered.
	Replica *Replica
	stream.ProbeAnswer
}

// noteReport keeps the last answer, and prefers the answer of a session that is ready. Of two at the same moment it may lose the first: hosts
// are asked again.
func (p *Pool) noteReport(c Report) {
	if last := p.Report(); c.Ready || last == nil || !last.Ready || last.Replica == c.Replica {
		p.report.Store(&c)
	}
}

// Report is the answer that counts; nil when there is none of a session that still serves the hook.
func (p *Pool) Report() *Report {
	c := p.report.Load()
	if c == nil || c.Replica.Memberships()[p] == nil {
		return nil
	}
	return c
}

// ForgetReport forgets the answer: the hook is another one.
func (p *Pool) ForgetReport() { p.report.Store(nil) }
