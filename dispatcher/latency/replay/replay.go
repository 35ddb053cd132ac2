// Package replay predicts the effect of a change of hooks on recorded reviews. It runs each review through the state machine that
// judged it (dispatcher/chain) once more, with a virtual clock: each call takes the time that was recorded, and the chain decides on order,
// deadlines, failure policies, reinvocation and speculation.
//
// Everything here is pure: no goroutine, no clock, no I/O. Values may be read from any goroutine, and are not written after they were made.
package replay

import (
	"math"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// outcomes of reviews.
const (
	outcomeAllowed = "allowed"
	outcomeDenied  = "denied"
)

// maxSteps bounds the steps of one replay, for each hook: a record that contradicts itself must not go on for ever.
const maxSteps = 16

// judged is the end of a review in a replay.
type judged struct {
	outcome    string
	took       time.Duration // from Begun to the last step of the chain
	failedOpen int           // calls without a verdict after which the review went on
	estimated  int           // calls whose time is not in the record
	overdue    int           // calls that had no verdict at their recorded deadline, and were waited for longer
}

// play is one review that runs through a chain. It is used once.
type play struct {
	recording *recording
	variant   *Variant
	request   *review.Request
	now       time.Time
	started   map[int]*script // by id of the call
	due       []result
	objects   int // versions of the object so far
	judged
}

// result is a result that a call will have.
type result struct {
	id int
	at time.Time
}

// play runs a review through the chain with the hooks of a change. It returns false if the record cannot be replayed at all.
func (r *recording) play(c *Variant) (judged, bool) {
	p := &play{recording: r, variant: c, now: r.review.Begun, started: map[int]*script{}}
	p.request = &review.Request{
		Stage:     r.review.Stage,
		Admission: &admissionv1.AdmissionRequest{Uid: r.review.UID, Object: &admissionv1.Object{Raw: []byte(`0`)}},
	}
	first, second := c.hooksOf(r.review.Stage)
	if r.review.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return p.judged, p.run(chain.NewValidate(p.options(first))) && p.finish()
	}
	if !p.run(chain.NewMutate(p.options(first))) {
		return p.judged, false
	}
	if admitted(p.outcome) && len(second) > 0 {
		if !p.run(chain.NewValidate(p.options(second))) {
			return p.judged, false
		}
	}
	return p.judged, p.finish()
}

// admitted reports whether an outcome of a review lets the request pass.
func admitted(outcome string) bool {
	return outcome == outcomeAllowed || outcome == latency.OutcomeFailedOpen
}

func (p *play) finish() bool {
	p.took = p.now.Sub(p.recording.review.Begun)
	return true
}

func (p *play) options(hooks []*match.Hook) chain.Options {
	o := chain.Options{
		Request: p.request, Hooks: hooks, Subject: p, Codec: p, FailOpen: p.recording.review.FailsOpen,
		Deadline: p.now.Add(p.recording.review.Due), Now: func() time.Time { return p.now },
	}
	if p.recording.early != nil || p.variant.speculates() {
		o.Speculate = p.speculate
	}
	return o
}

// run drives a machine to its answer, as the dispatcher does: results are delivered before the machine looks at the time.
func (p *play) run(m chain.Machine) bool {
	clear(p.started)
	p.due = p.due[:0]
	for range maxSteps * (len(p.variant.hooks) + 1) {
		start, cancel := m.Next(p.now)
		p.due = slices.DeleteFunc(p.due, func(d result) bool { return slices.Contains(cancel, d.id) })
		for _, s := range start {
			p.start(s)
		}
		if answer, ok := m.Answer(); ok {
			p.conclude(answer, m)
			return true
		}
		p.advance(m.Wake())
		p.deliver(m)
	}
	return false
}

// start makes a call: its result is due after its recorded time.
func (p *play) start(s chain.Start) {
	c := p.recording.scriptOf(p.variant.original(s.Hook), s.Round, s.Mode == review.Speculative)
	p.started[s.ID] = c
	if c.never {
		c.overdue = s.Deadline.Sub(p.now) > c.lead+c.took+tolerance(c.took)
		return
	}
	p.due = append(p.due, result{s.ID, p.now.Add(c.lead + c.took)})
}

// advance moves the clock to the next result, or to the time at which the machine wants to be called.
func (p *play) advance(wake time.Time) {
	next := wake
	for _, d := range p.due {
		if next.IsZero() || d.at.Before(next) || d.at.Equal(next) {
			next = d.at
		}
	}
	if next.After(p.now) {
		p.now = next
	}
}

// deliver passes on the results that are due, in their order.
func (p *play) deliver(m chain.Machine) {
	slices.SortStableFunc(p.due, func(a, b result) int { return a.at.Compare(b.at) })
	n := 0
	for ; n < len(p.due) && !p.due[n].at.After(p.now); n++ {
		m.Deliver(p.due[n].id, p.started[p.due[n].id].result(p.due[n].id))
	}
	p.due = slices.Delete(p.due, 0, n)
}

func (p *play) conclude(a review.Answer, m chain.Machine) {
	if p.outcome != latency.OutcomeFailedOpen || a.Outcome() != review.OutcomeAllowed {
		p.outcome = string(a.Outcome())
	}
	for o := range m.Outcomes().All {
		c := p.started[o.ID]
		if o.Effect == chain.FailedOpen {
			p.failedOpen++
		}
		if c == nil || o.Effect == chain.Discarded || o.Effect == chain.Undecided {
			continue
		}
		if c.estimated {
			p.estimated++
		}
		if c.overdue {
			p.overdue++
		}
	}
}

// tolerance is by how much times of a record and of its replay may differ: reading a clock and changing goroutines takes time too.
func tolerance(d time.Duration) time.Duration { return 5*time.Millisecond + d/20 }

// speculate implements [chain.Options].Speculate: a hook is called before its turn if it was, behind the same hooks or fewer, or if the change
// lets it and the hooks before it rarely change the object.
func (p *play) speculate(h *match.Hook, behind []*match.Hook) bool {
	for _, was := range p.recording.early[h.ID] {
		if !slices.ContainsFunc(behind, func(b *match.Hook) bool { return !slices.Contains(was, b.ID) }) {
			return true
		}
	}
	unchanged := 1.0
	for _, b := range behind {
		unchanged *= 1 - p.recording.reviews.changeRate(b.ID)
	}
	return h.Route.Speculate && p.variant.Speculates(h.ID.Name) && unchanged >= 1-chain.MaxDiscardRate-rounding
}

// rounding is a part of a rate that is none.
const rounding = 1e-9

// median returns the one in the middle of a list that is not empty.
func median[T any](all []T) T { return all[int(math.Ceil(float64(len(all))/2))-1] }
