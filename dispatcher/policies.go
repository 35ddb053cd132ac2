package dispatcher

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// MaxPolicyCost bounds the units of CEL of all policies of one stage of a review together, which take some seconds of a processor. One policy has at
// most 10,000,000, as in kube-apiserver, which has no bound of their sum.
const MaxPolicyCost = 20_000_000

// policies judges the calls of policies at once, on the goroutine that owns the review context: there is no host, no encoding and no wait.
type policies struct {
	logger        *slog.Logger
	reviewContext *reviewContext
	view          *chain.View // the version that they take; nil for the version of the request
}

var _ review.Backend = policies{}

// Start implements [review.Backend]. Each call has ended when it returns.
func (p policies) Start(_ context.Context, set *review.CallSet, done func(int, review.Result)) func(int) {
	if p.reviewContext.policyLimits == nil {
		limits := policy.WithInputs(match.WithCost(p.reviewContext.lookups, MaxPolicyCost))
		if codec := p.reviewContext.codec; codec != nil {
			limits = policy.WithCodec(limits, codec)
		}
		p.reviewContext.policyLimits = limits
	}
	for i := range set.Calls {
		done(i, p.judge(p.reviewContext.policyLimits, &set.Calls[i]))
	}
	return func(int) {}
}

// judge returns the verdict of a policy. Its time counts as the time of a host.
func (p policies) judge(ctx context.Context, c *review.Call) (result review.Result) {
	begun := time.Now()
	defer func() {
		if r := recover(); r != nil {
			p.logger.ErrorContext(ctx, "panic while judging by a policy", "policy", c.Hook.ID.Configuration, "panic", r, "stack", string(debug.Stack()))
			result = review.Fail(review.FailurePanic, "panic: %v", r)
		}
		result.Timing.Host = time.Since(begun)
	}()
	var as *conversion.ResourceKind
	if p.view != nil {
		as = &p.view.As
	}
	verdict, err := c.Hook.Policy.Judge(ctx, p.reviewContext.attributes, as, p.reviewContext.unmatched[c.Hook])
	if err != nil {
		result = review.Fail(review.FailureHandler, "%w", err)
	}
	result.Verdict = verdict
	return result
}
