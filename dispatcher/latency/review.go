// Package latency keeps where the time of recent reviews went, in bounded memory: for each minute, cluster and hook how often the hook was
// called, how long that took and how much of it reviews waited for this hook alone; and of each minute the slowest and the failed reviews
// with all their calls.
//
// Everything here is pure: no goroutine, no clock, no I/O.
package latency

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Outcomes of reviews and calls that are failures. Reviews have the outcomes of [review.Outcome].
const (
	// OutcomeFailed: the review was refused without a verdict, or the call caused that.
	OutcomeFailed = string(review.OutcomeFailed)
	// OutcomeRefused: the review had no answer: stale configuration, no memory, the dispatcher is stopping.
	OutcomeRefused = string(review.OutcomeRefused)
	// OutcomeDiscarded: the call was speculative and did not count. The review did not wait for it.
	OutcomeDiscarded = "discarded"
	// OutcomeCancelled: the call was given up, since the review was decided without it.
	OutcomeCancelled = "cancelled"
	// OutcomeFailedOpen: the call had no verdict, and the review went on.
	OutcomeFailedOpen = string(review.OutcomeFailedOpen)
)

// ReviewRecord is where the time of one review went.
type ReviewRecord struct {
	// UID is the uid of the request.
	UID string
	// TraceID is its trace; not valid without one.
	TraceID trace.TraceID
	// Cluster sent it.
	Cluster string
	// Stage is the stage of the API server.
	Stage admissionv1.Stage
	// Operation, Group, Resource, Namespace and Name come from the request. Name is empty for Secrets.
	Operation, Group, Resource, Namespace, Name string
	// Outcome is a [review.Outcome].
	Outcome string
	// Begun is when the dispatcher began to judge it.
	Begun time.Time
	// Edge is the time before that: until the request was read, decoded and its caller authorized.
	Edge time.Duration
	// Held is how long it waited for a fresh configuration.
	Held time.Duration
	// Took is the time from Begun to the answer.
	Took time.Duration
	// Due is the time from Begun until all calls had to have ended; zero if it was not judged.
	Due time.Duration
	// FailsOpen is whether no failure of a hook could refuse it, whatever the failure policies.
	FailsOpen bool
	// Own is the time of the dispatcher itself: neither was the review held, nor was a call in flight.
	Own time.Duration
	// Size is the size of the object in bytes; without one, of the old object.
	Size int
	// Calls are the calls of its hooks, in the order in which they began.
	Calls []CallRecord
}

// CallRecord is where the time of one call went.
type CallRecord struct {
	// Hook was called.
	Hook match.HookID
	// Round is 0, or 1 for a reinvocation.
	Round uint32
	// Begun and Ended are times since Begun of the review.
	Begun, Ended time.Duration
	// Queued is the wait for a free replica, Host the time that the host reports, and Wire the rest until the verdict. A call without a verdict has
	// the values of its [review.Timing]. Of an initializer Queued has the time to stage the object, and Host the time until a controller has acted.
	Queued, Wire, Host time.Duration
	// HostQueued is the part of Host in which the call waited for its handler.
	HostQueued time.Duration
	// Applied is the time that it took to apply its patch.
	Applied time.Duration
	// Alone is the time in which the review waited for this call and no other one.
	Alone time.Duration
	// Outcome is the effect on the review: "allowed", "patched", "denied", "skipped" of a policy that does not apply, or a constant.
	Outcome string
	// Failure is the kind of failure, as review.FailureKind spells it; empty for calls with a verdict, and for those that were given up.
	Failure string
	// Reason is why there is no verdict, why a policy does not apply, or which of its validations are false, cut; else empty.
	Reason string
	// Instance is the process that answered, or was asked last.
	Instance string
	// Streamed is whether a host was called over a stream, and not a webhook over HTTPS.
	Streamed bool
}

// Took is the time from the begin of the call to the result and, with a patch, to its application.
func (c *CallRecord) Took() time.Duration { return c.Ended - c.Begun + c.Applied }

// ByController reports whether a controller acted for the initializer that was called: no host had the call.
func (c *CallRecord) ByController() bool {
	return c.Hook.Stage == admissionv1.Stage_STAGE_INITIALIZE && c.Instance == ""
}

// Failed reports whether there is no verdict.
func (c *CallRecord) Failed() bool {
	return c.Outcome == OutcomeFailed || c.Outcome == OutcomeFailedOpen
}

// Failed reports whether the request is refused without a verdict.
func (r *ReviewRecord) Failed() bool {
	return r.Outcome == OutcomeFailed || r.Outcome == OutcomeRefused
}

// clone returns a copy that shares nothing that is written, and no memory with the request: its strings may be parts of the body.
func (r *ReviewRecord) clone() *ReviewRecord {
	c := *r
	c.Calls = slices.Clone(r.Calls)
	for _, s := range []*string{&c.UID, &c.Cluster, &c.Operation, &c.Group, &c.Resource, &c.Namespace, &c.Name} {
		*s = strings.Clone(*s)
	}
	return &c
}

// AttributeWaiting sets Alone of all calls, and Own. Each moment in which exactly one call is outstanding belongs to that call: without it
// the review would have ended so much earlier, if nothing else had changed.
func (r *ReviewRecord) AttributeWaiting() {
	r.Own = max(0, r.Took-r.Held-r.attribute())
}

// sortCalls sorts the calls by their begin. Nearly always they are in this order.
func (r *ReviewRecord) sortCalls() {
	for i := 1; i < len(r.Calls); i++ {
		if r.Calls[i].Begun < r.Calls[i-1].Begun {
			slices.SortStableFunc(r.Calls, func(a, b CallRecord) int { return cmp.Compare(a.Begun, b.Begun) })
			return
		}
	}
}

// attribute sets Alone of all calls, and returns the time in which any was in flight.
func (r *ReviewRecord) attribute() (called time.Duration) {
	if len(r.Calls) == 1 && r.Calls[0].Outcome != OutcomeDiscarded {
		r.Calls[0].Alone = r.Calls[0].Took()
		return r.Calls[0].Alone
	}
	r.sortCalls()
	// reach is the latest end of an outstanding call, and second the latest but one.
	last, reach, second := -1, time.Duration(0), time.Duration(0)
	flush := func(until time.Duration) { // the time until then in which only the last call is outstanding
		if last >= 0 {
			if end := min(reach, until); end > second {
				r.Calls[last].Alone += end - second
				second = end
			}
		}
	}
	for i := range r.Calls {
		c := &r.Calls[i]
		if c.Outcome == OutcomeDiscarded {
			continue
		}
		flush(c.Begun)
		second = max(second, c.Begun)
		if end := c.Begun + c.Took(); end > reach {
			called += end - max(reach, c.Begun)
			second = max(second, min(reach, end))
			last, reach = i, end
		} else {
			second = max(second, end)
		}
	}
	flush(reach)
	return called
}
