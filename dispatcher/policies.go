package dispatcher

import (
	"context"
	"time"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// policies judges the calls of policies at once, on the goroutine that owns the review context: there is no host, no encoding and no wait.
type policies struct {
	reviewContext *reviewContext
	view          *chain.View // the version that they take; nil for the version of the request
}

var _ review.Backend = policies{}

// Start implements [review.Backend]. Each call has ended when it returns.
func (p policies) Start(ctx context.Context, set *review.CallSet, done func(int, review.Result)) func(int) {
	for i := range set.Calls {
		done(i, p.judge(ctx, &set.Calls[i]))
	}
	return func(int) {}
}

// judge returns the verdict of a policy. Its time counts as the time of a host.
func (p policies) judge(ctx context.Context, c *review.Call) (result review.Result) {
	begun := time.Now()
	defer func() {
		if r := recover(); r != nil {
			result = review.Fail(review.FailurePanic, "panic while judging: %v", r)
		}
		result.Timing.Host = time.Since(begun)
	}()
	var as *conversion.ResourceKind
	if p.view != nil {
		as = &p.view.As
	}
	verdict, err := c.Hook.Policy.Judge(ctx, p.reviewContext.attributes, as, p.reviewContext.unmatched[c.Hook])
	if err != nil {
		return review.Fail(review.FailureHandler, "%w", err)
	}
	return review.Result{Verdict: verdict}
}
