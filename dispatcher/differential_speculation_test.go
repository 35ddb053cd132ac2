package dispatcher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	k8sadmissionv1 "k8s.io/api/admission/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Hooks that are asked ahead of their turn see requests that kube-apiserver would not have sent, and in another order. The test compares the calls
// that count, in the order in which they count: the outcomes of the answer name each of them. Every other call has to be ahead of its turn.

// speculate lets hooks of some configurations be asked ahead of their turn. It has chances of its own, so that it does not change the worlds
// otherwise.
func (w *world) speculate(r chance) {
	if r.in(3) {
		return
	}
	for i := range w.Configurations {
		c := &w.Configurations[i]
		c.Speculate = c.Stage == mutate && !c.HTTPS && !r.in(4)
	}
}

// speculates reports whether hooks of a stage may be asked ahead of their turn.
func (w *world) speculates(stage admissionv1.Stage) bool {
	return slices.ContainsFunc(w.Configurations, func(c configuration) bool { return c.Stage == stage && c.Speculate })
}

// made is a call as it was made.
type made struct {
	token string // by which outcomes name it
	hook  *match.Hook
	round uint32
	ahead bool
	seen  call
}

// callLog is the calls of the review that is under way.
type callLog struct {
	mu    sync.Mutex
	calls []*made
}

// begin is for the next review.
func (g *callLog) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = nil
}

// all are the calls so far.
func (g *callLog) all() []*made {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// traced is a backend whose calls are logged, and whose results carry their tokens as the instance that answered.
type traced struct {
	review.Backend

	log *callLog
}

// Start implements [review.Backend].
func (b traced) Start(ctx context.Context, batch *review.CallSet, done func(int, review.Result)) func(int) {
	tokens := make([]string, len(batch.Calls))
	seen, err := seenBy(batch.Request)
	b.log.mu.Lock()
	for i, c := range batch.Calls {
		tokens[i] = fmt.Sprintf("call %d", len(b.log.calls))
		m := &made{token: tokens[i], hook: c.Hook, round: c.Round, ahead: c.Mode == review.Speculative}
		if err == nil {
			m.seen = newCall(keyOf(c.Hook), seen)
		}
		b.log.calls = append(b.log.calls, m)
	}
	b.log.mu.Unlock()
	return b.Backend.Start(ctx, batch, func(i int, r review.Result) {
		r.Timing.Instance = tokens[i]
		done(i, r)
	})
}

// seenBy is a request as an ordinary webhook would see it.
func seenBy(r *admissionv1.AdmissionRequest) (*k8sadmissionv1.AdmissionRequest, error) {
	shared, err := conversion.EncodeSharedReview(&admissionv1.ReviewRequest{Request: r})
	if err != nil {
		return nil, err
	}
	head, tail := shared.Pieces(r.GetUid())
	var seen k8sadmissionv1.AdmissionReview
	err = json.Unmarshal(append(head, bytes.Join(tail, nil)...), &seen)
	return seen.Request, err
}

// inTurn sorts the received calls into the order in which they count. It leaves out calls ahead of a turn that do not count, and marks calls that
// should not have been made.
func (g *callLog) inTurn(a review.Answer, received []call) []call {
	counted := g.counted(a)
	var calls []call
	for _, m := range counted {
		at := slices.IndexFunc(received, m.is)
		if at < 0 {
			continue // it was given up before it arrived
		}
		var attempts []call
		attempts, received = taken(received, at)
		calls = append(calls, attempts...)
	}
	vain := slices.DeleteFunc(g.all(), func(m *made) bool { return !m.ahead || slices.Contains(counted, m) })
	for _, c := range received {
		at := slices.IndexFunc(vain, func(m *made) bool { return m.is(c) })
		if at < 0 {
			c.Key = "received by nobody's leave: " + c.Key
			calls = append(calls, c)
			continue
		}
		vain = slices.Delete(vain, at, at+1)
	}
	return calls
}

// taken takes a call out of those that were received, and the attempts that follow it. Between them others may have been asked
// ahead of their turn.
func taken(received []call, at int) (attempts, rest []call) {
	attempts, rest = []call{received[at]}, slices.Clone(received[:at])
	again := true
	for _, c := range received[at+1:] {
		mine := c.Key == received[at].Key
		again = again && (!mine || c.Attempt > 0)
		if mine && again {
			attempts = append(attempts, c)
		} else {
			rest = append(rest, c)
		}
	}
	return attempts, rest
}

// is reports whether a hook has received a call.
func (m *made) is(c call) bool {
	if c.HTTP.Version != "" { // it may be in a version of its own
		return c.Key == m.seen.Key && c.Attempt == 0 && !m.ahead
	}
	return c.Key == m.seen.Key && c.Object == m.seen.Object && c.Rest == m.seen.Rest
}

// counted are the calls that count, in order.
func (g *callLog) counted(a review.Answer) []*made {
	answered := map[string]bool{} // by token
	for _, o := range a.Outcomes {
		answered[o.GetInstance()] = true
	}
	var counted []*made
	for _, o := range a.Outcomes {
		left := slices.DeleteFunc(g.all(), func(m *made) bool { return slices.Contains(counted, m) })
		var found *made
		switch {
		case o.GetInstance() != "":
			found = first(left, func(m *made) bool { return m.token == o.GetInstance() })
		case strings.HasPrefix(o.GetReason(), "no verdict"):
			found = lapsed(slices.DeleteFunc(left, func(m *made) bool { return answered[m.token] || !m.may(o) }))
		}
		if found != nil {
			counted = append(counted, found)
		}
	}
	return counted
}

// may reports whether an outcome may belong to a call: hooks of one configuration may have one name.
func (m *made) may(o *admissionv1.HookOutcome) bool {
	id := m.hook.ID
	return id.Configuration == o.GetConfiguration() && id.Name == o.GetHook() && m.round == o.GetRound()
}

// lapsed is the call of an outcome without a result, of those that it may be; outcomes before it have had theirs. Every call in turn counts, and they
// are made in the order of the outcomes. If there is none, the time of the turn ended together with the time of the call ahead, which counts: the
// first one about the last object, since a change makes the calls before it void.
func lapsed(calls []*made) *made {
	if inTurn := first(calls, func(m *made) bool { return !m.ahead }); inTurn != nil || len(calls) == 0 {
		return inTurn
	}
	last := calls[len(calls)-1]
	return first(calls, func(m *made) bool { return m.seen.Object == last.seen.Object })
}

// first is the first call of a kind; nil if there is none.
func first(calls []*made, is func(*made) bool) *made {
	if at := slices.IndexFunc(calls, is); at >= 0 {
		return calls[at]
	}
	return nil
}

// tally classifies the calls ahead of their turn.
func (g *callLog) tally(a review.Answer) map[string]bool {
	seen, counted := map[string]bool{}, g.counted(a)
	for _, m := range g.all() {
		if !m.ahead {
			continue
		}
		if seen["asked ahead"] = true; slices.Contains(counted, m) {
			seen["counted ahead"] = true
		} else {
			seen["discarded ahead"] = true
		}
		if m.round > 0 {
			seen["asked ahead again"] = true
		}
	}
	return seen
}
