package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/evaluation"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Bounds of the work of all policies of one stage of a review together. Kubernetes has a bound for each policy, 10,000,000 units of CEL, which took a
// processor for 7 s, and none for their sum.
const (
	// MaxPolicyCost is the most units that they cost. A policy past it fails. Policies whose costs are not counted, since they cannot reach a limit, have as
	// much beside it: past that, they are counted.
	MaxPolicyCost = 20_000_000
	// FreeEvaluationTime is how long they are evaluated at once, and as long the matchConditions of hooks. After that the review waits until no other review
	// of its cluster is evaluated for longer, and evaluates the policy or the conditions anew: so a cluster takes little more than one processor, whatever
	// its authors and users do.
	FreeEvaluationTime = time.Millisecond
)

// freeTime is FreeEvaluationTime, unless the options have another time.
func (d *Dispatcher) freeTime() time.Duration {
	return cmp.Or(d.options.EvaluationTime, FreeEvaluationTime)
}

// errPolicyCost: MaxPolicyCost is spent.
var errPolicyCost = errors.New("the policies of the request cost too much together")

// policyMeter counts the cost of the policies of one review.
type policyMeter struct{ spent, reserved int64 }

// Spend implements [policy.Meter].
func (m *policyMeter) Spend(_ context.Context, units int64) error {
	if m.spent += units; m.spent > MaxPolicyCost {
		return errPolicyCost
	}
	return nil
}

// Reserve implements [policy.Meter].
func (m *policyMeter) Reserve(units int64) bool {
	if m.reserved+units > MaxPolicyCost {
		return false
	}
	m.reserved += units
	return true
}

// policies judges the calls of policies at once, on the goroutine that owns the review context: there is no host, no encoding and no wait.
type policies struct {
	reviewContext *reviewContext
	view          *chain.View // the version that they take; nil for the version of the request
}

var _ review.Backend = policies{}

// Start implements [review.Backend]. Each call has ended when it returns.
func (p policies) Start(_ context.Context, set *review.CallSet, done func(int, review.Result)) func(int) {
	s := p.reviewContext
	if s.policies == nil {
		s.policies = policy.WithReview(s.lookups, &s.policyMeter)
		if s.codec != nil {
			s.policies = policy.WithCodec(s.policies, s.codec)
		}
	}
	var free context.Context // nil before the first evaluation: the look-ups for it take none of this time, and need no turn
	brief := policy.WithEvaluation(s.policies, func() context.Context {
		if free == nil {
			free = evaluation.Briefly(s.policies, s.dispatcher.freeTime()) //nolint:fatcontext // it is made once
		}
		return free
	})
	var rest func() // ends the turn of a long review; nil if its time ended before its turn
	takeTurn := func() {
		rest, _ = s.dispatcher.evaluationTurns.Own(s.policies, s.request.Admission.GetCluster()) // judge reports the error
	}
	long := s.request.Expressions // evaluates much twice
	if long {
		takeTurn()
	}
	for i := range set.Calls {
		c := &set.Calls[i]
		var result review.Result
		before := s.policyMeter
		if !long {
			result = p.judge(brief, c)
			if long = free != nil && evaluation.Interrupted(free); long {
				takeTurn()
			}
		}
		if long {
			s.policyMeter = before
			result = p.judge(s.policies, c)
		}
		done(i, result)
	}
	if rest != nil {
		rest()
	}
	return func(int) {}
}

// judge returns the verdict of a policy. Its time counts as the time of a host.
func (p policies) judge(ctx context.Context, c *review.Call) (result review.Result) {
	begun := time.Now()
	defer func() {
		if r := recover(); r != nil {
			p.reviewContext.dispatcher.options.Logger.ErrorContext(ctx, "panic while judging by a policy",
				"policy", c.Hook.ID.Configuration, "panic", r, "stack", string(debug.Stack()))
			result = review.Fail(review.FailurePanic, "panic: %v", r)
		}
		result.Timing.Host = time.Since(begun)
	}()
	var as *conversion.ResourceKind
	if p.view != nil {
		as = &p.view.As
	}
	if c.Round > 0 {
		ctx = policy.Again(ctx)
	}
	explanations := p.explanations(ctx)
	if explanations != nil {
		ctx = policy.WithObserver(ctx, explanations)
	}
	judgement, err := c.Hook.Policy.Judge(ctx, p.reviewContext.attributes, as, p.reviewContext.unmatched[c.Hook])
	if err != nil {
		result = review.Fail(review.FailureHandler, "%w", err)
		result.Failure.Acted = judgement.Acted
	}
	result.Verdict, result.Why, result.Expressions = judgement.AdmissionResponse, judgement.Why, explanations.Take()
	return result
}

// explanations collect the expressions of the review; nil if it does not ask for them.
func (p policies) explanations(ctx context.Context) *policy.Explanations {
	s := p.reviewContext
	if s.explanations == nil && s.request.Expressions {
		explainer, err := s.dispatcher.explainer()
		if err != nil { // it depends on no input
			s.dispatcher.options.Logger.ErrorContext(ctx, "no expressions are explained", "error", err)
			return nil
		}
		s.explanations = explainer.Explanations()
	}
	return s.explanations
}
