package replay

import (
	"cmp"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// recording is a recorded review, prepared to be replayed.
type recording struct {
	review  *latency.ReviewRecord
	reviews *reviews
	leads   []time.Duration                   // by call: from the step that started it to its begin
	early   map[match.HookID][][]match.HookID // hooks that were called before their turn, and for each call the ones before it without a verdict
	queued  map[int]time.Duration             // by call: the wait for a free replica, where a change gives it another
}

// newRecording prepares a review. hooks are in the order of the configuration.
func newRecording(v *latency.ReviewRecord, all *reviews, hooks []*match.Hook) *recording {
	r := &recording{review: v, reviews: all, leads: make([]time.Duration, len(v.Calls))}
	for i := range v.Calls {
		c, before := &v.Calls[i], time.Duration(0)
		for j := range v.Calls {
			if end := v.Calls[j].Ended + v.Calls[j].Applied; end <= c.Begun {
				before = max(before, end)
			}
		}
		r.leads[i] = c.Begun - before
		if v.Stage != admissionv1.Stage_STAGE_VALIDATE {
			r.findEarly(c, hooks)
		}
	}
	return r
}

// findEarly finds out whether a call was made before the turn of its hook, and behind which hooks.
func (r *recording) findEarly(c *latency.CallRecord, hooks []*match.Hook) {
	place := func(c *latency.CallRecord) int {
		return slices.IndexFunc(hooks, func(h *match.Hook) bool { return h.ID == c.Hook })
	}
	var behind []match.HookID
	for i := range r.review.Calls {
		o := &r.review.Calls[i]
		if o.Round != c.Round || place(o) >= place(c) || o.Outcome == latency.OutcomeDiscarded || o.Ended+o.Applied <= c.Begun {
			continue
		}
		if o.Begun <= c.Begun || !r.answeredEarly(o, c.Begun) {
			behind = append(behind, o.Hook)
		}
	}
	if len(behind) == 0 {
		return
	}
	if r.early == nil {
		r.early = map[match.HookID][][]match.HookID{}
	}
	r.early[c.Hook] = append(r.early[c.Hook], behind)
}

// answeredEarly reports whether a call before the turn of the hook of c had a verdict by a time.
func (r *recording) answeredEarly(c *latency.CallRecord, by time.Duration) bool {
	return slices.ContainsFunc(r.review.Calls, func(o latency.CallRecord) bool {
		return o.Hook == c.Hook && o.Round == c.Round && o.Outcome == latency.OutcomeDiscarded && o.Failure == "" && o.Ended <= by
	})
}

// script has the time and the result of a call of a replay.
type script struct {
	lead, took time.Duration
	applied    time.Duration
	outcome    string // of the record
	failure    string
	never      bool // it has no verdict however long it is waited for
	estimated  bool // its time is not in the record
	overdue    bool // it had no verdict at its recorded deadline, and is waited for longer
}

// scriptOf returns the script of a call of a hook: as recorded, else the script of like calls of other reviews.
func (r *recording) scriptOf(hook match.HookID, round uint32, speculative bool) *script {
	counted, discarded := r.find(hook, round, false), r.find(hook, round, true)
	switch first := r.find(hook, 0, false); {
	case counted < 0 && discarded < 0 && first >= 0:
		return r.again(first)
	case speculative && discarded >= 0:
		return r.discarded(discarded, counted)
	case counted >= 0 && r.review.Calls[counted].Outcome == latency.OutcomeCancelled:
		return r.longer(counted)
	case counted >= 0:
		return r.recorded(counted)
	case discarded >= 0:
		return r.discarded(discarded, counted)
	}
	s := r.reviews.typical(r.review, hook)
	s.estimated = true
	return s
}

// find returns the index of the recorded call of a hook in a round; -1 without one.
func (r *recording) find(hook match.HookID, round uint32, discarded bool) int {
	return slices.IndexFunc(r.review.Calls, func(c latency.CallRecord) bool {
		return c.Hook == hook && c.Round == round && (c.Outcome == latency.OutcomeDiscarded) == discarded
	})
}

func (r *recording) recorded(i int) *script {
	c := &r.review.Calls[i]
	s := scriptFor(c)
	s.lead = r.leads[i]
	if queued, changed := r.queued[i]; changed {
		s.took += queued - c.Queued
	}
	return s
}

// scriptFor is the script of a call whose record is whole.
func scriptFor(c *latency.CallRecord) *script {
	return &script{
		took: c.Ended - c.Begun, applied: c.Applied, outcome: c.Outcome, failure: c.Failure, never: c.Failure == review.FailureTimeout.String(),
	}
}

// longer is a call that was given up before its verdict: it takes as long as like calls, and longer than it was waited for.
func (r *recording) longer(i int) *script {
	s := r.reviews.typical(r.review, r.review.Calls[i].Hook)
	s.lead, s.took, s.estimated = r.leads[i], max(s.took, r.review.Calls[i].Ended-r.review.Calls[i].Begun+1), true
	return s
}

// again is a reinvocation that was not made: it takes as long as the first call of the hook. It changes nothing, since hooks have to be
// idempotent.
func (r *recording) again(first int) *script {
	s := r.recorded(first)
	if s.estimated = true; s.outcome == outcomePatched {
		s.outcome = outcomeAllowed
	}
	return s
}

// discarded is a speculative call that did not count. Its record has its time, if it ended, and not its verdict: the verdict comes from the call that
// counted, or from like calls.
func (r *recording) discarded(i, counted int) *script {
	c := &r.review.Calls[i]
	ended := c.Queued+c.Wire+c.Host > 0 || c.Failure != ""
	var s *script
	switch {
	case c.Failure != "":
		s = scriptFor(c)
		s.outcome = latency.OutcomeFailed
	case counted >= 0 && r.review.Calls[counted].Outcome != latency.OutcomeCancelled:
		s = r.recorded(counted)
	default:
		s = r.reviews.typical(r.review, c.Hook)
		s.estimated = true
	}
	took := c.Ended - c.Begun
	if !ended {
		took = max(s.took, took+1)
	}
	s.lead, s.took = r.leads[i], took
	return s
}

// reviews index the calls of all recorded reviews.
type reviews struct {
	calls   map[likeness][]*latency.CallRecord // by their time
	changed map[match.HookID][2]float64        // calls that changed the object or ended the review, and all, by weight
	mutates map[match.HookID]bool
}

// likeness has the properties that like calls share. The less specific one has the hook alone.
type likeness struct {
	hook                                match.HookID
	cluster, operation, group, resource string
}

func likenessOf(v *latency.ReviewRecord, hook match.HookID) likeness {
	return likeness{hook, v.Cluster, v.Operation, v.Group, v.Resource}
}

func newReviews(all []*latency.ReviewRecord, weights []float64) *reviews {
	r := &reviews{calls: map[likeness][]*latency.CallRecord{}, changed: map[match.HookID][2]float64{}, mutates: map[match.HookID]bool{}}
	for i, v := range all {
		for j := range v.Calls {
			r.add(v, &v.Calls[j], weights[i])
		}
	}
	for _, calls := range r.calls {
		slices.SortFunc(calls, func(a, b *latency.CallRecord) int { return cmp.Compare(a.Took(), b.Took()) })
	}
	return r
}

func (r *reviews) add(v *latency.ReviewRecord, c *latency.CallRecord, weight float64) {
	if c.Outcome == latency.OutcomeDiscarded || c.Outcome == latency.OutcomeCancelled {
		return
	}
	for _, l := range []likeness{likenessOf(v, c.Hook), {hook: c.Hook}} {
		r.calls[l] = append(r.calls[l], c)
	}
	n := r.changed[c.Hook]
	if n[1] += weight; c.Outcome != outcomeAllowed && c.Outcome != latency.OutcomeFailedOpen {
		n[0] += weight
	}
	r.changed[c.Hook] = n
	r.mutates[c.Hook] = r.mutates[c.Hook] || c.Outcome == outcomePatched
}

// outcomePatched is the outcome of a call that changed the object.
const outcomePatched = "patched"

// changeRate is the share of the calls of a hook that changed the object or ended the review; 1 if none is known.
func (r *reviews) changeRate(hook match.HookID) float64 {
	n := r.changed[hook]
	if n[1] == 0 {
		return 1
	}
	return n[0] / n[1]
}

// called reports whether reviews like v call a hook.
func (r *reviews) called(v *latency.ReviewRecord, hook match.HookID) bool {
	return len(r.calls[likenessOf(v, hook)]) > 0
}

// typical is the median call of like reviews, with a verdict.
func (r *reviews) typical(v *latency.ReviewRecord, hook match.HookID) *script {
	for _, l := range []likeness{likenessOf(v, hook), {hook: hook}} {
		calls := slices.DeleteFunc(slices.Clone(r.calls[l]), func(c *latency.CallRecord) bool { return c.Failed() || c.Outcome == outcomeDenied })
		if len(calls) > 0 {
			return scriptFor(median(calls))
		}
	}
	return &script{outcome: outcomeAllowed}
}
