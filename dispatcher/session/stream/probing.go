package stream

import (
	"cmp"
	"slices"
	"strings"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// probing asks a host whether the pending hooks that it serves are ready: each at once, and again after a pause as long as
// the hook is pending, also when the host was ready. The use of an answer is not known here, and an answer may be lost. It has
// no goroutine, no clock and no I/O.
type probing struct {
	seq   uint64            // of the last question
	hooks map[string]*probe // by name: hosts are asked about all hooks of a name at once
	open  map[uint64]string // questions without an answer
}

// probe is how far a host was asked about the hooks of a name.
type probe struct {
	open  uint64        // the question without an answer; 0 when there is none
	due   time.Time     // when the host is asked; of an open question, when it is given up
	pause time.Duration // before the next question, if the host is not ready
}

// ProbeAnswer is the answer of a host about the pending hooks of a name.
type ProbeAnswer struct {
	// Hook is the name of the hooks.
	Hook string
	// Ready is whether they are ready, and Message why not, at most MaxReasonBytes.
	Ready   bool
	Message string
}

// want takes the names of the hooks that are pending now. Those that are new are due at once.
func (p *probing) want(now time.Time, names []string) {
	for name, x := range p.hooks {
		if !slices.Contains(names, name) {
			delete(p.open, x.open)
			delete(p.hooks, name)
		}
	}
	for _, name := range names {
		if p.hooks[name] != nil {
			continue
		}
		if p.hooks == nil {
			p.hooks, p.open = map[string]*probe{}, map[uint64]string{}
		}
		p.hooks[name] = &probe{due: now, pause: ProbePause}
	}
}

// next are the questions to ask now, those first that have waited longest. No more than MaxProbes are open at a time.
func (p *probing) next(now time.Time) []*hostv1.Probe {
	var due []string
	for name, x := range p.hooks {
		if now.Before(x.due) {
			continue
		}
		if x.open != 0 {
			delete(p.open, x.open)
			x.open = 0
		}
		due = append(due, name)
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(p.hooks[a].due.Compare(p.hooks[b].due), strings.Compare(a, b))
	})
	var out []*hostv1.Probe
	for _, name := range due[:min(len(due), MaxProbes-len(p.open))] {
		p.seq++
		x := p.hooks[name]
		x.open, x.due, p.open[p.seq] = p.seq, now.Add(ProbeTimeout), name
		out = append(out, &hostv1.Probe{Seq: p.seq, Hook: name})
	}
	return out
}

// answer takes an answer. It returns false for one to no open question.
func (p *probing) answer(now time.Time, r *hostv1.ProbeResult) (ProbeAnswer, bool) {
	name, asked := p.open[r.GetSeq()]
	if !asked {
		return ProbeAnswer{}, false
	}
	delete(p.open, r.GetSeq())
	x := p.hooks[name]
	pause := MaxProbePause
	if !r.GetReady() {
		pause, x.pause = x.pause, min(2*x.pause, MaxProbePause)
	}
	x.open, x.due = 0, now.Add(pause)
	message := r.GetMessage()
	return ProbeAnswer{name, r.GetReady(), strings.ToValidUTF8(message[:min(len(message), MaxReasonBytes)], "")}, true
}

func (s *state) pend(now time.Time, names []string) {
	s.probing.want(now, names)
	s.probe(now)
}

// probe asks the host the questions that are due. A host that leaves, or that we leave, puts nothing in rotation any more.
func (s *state) probe(now time.Time) {
	if s.draining || !s.deadline.IsZero() {
		return
	}
	for _, p := range s.probing.next(now) {
		s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Probe{Probe: p}})
	}
}

// answers appends the answers about pending hooks since the last call.
func (s *state) answers(to []ProbeAnswer) []ProbeAnswer {
	to, s.probed = append(to, s.probed...), nil
	return to
}
