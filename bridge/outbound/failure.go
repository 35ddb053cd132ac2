package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// failure is why a call has no verdict.
func failure(kind review.FailureKind, format string, args ...any) *review.Failure {
	return &review.Failure{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// notStarted is a failure before anything was sent to the webhook.
func notStarted(kind review.FailureKind, format string, args ...any) *review.Failure {
	return &review.Failure{Kind: kind, Err: fmt.Errorf(format, args...), NotStarted: true}
}

// overload is the failure of a call for which there is no room beside those that are there.
func overload(in *fairqueue.Shares, cluster, to string) *review.Failure {
	return notStarted(review.FailureOverload, "%d calls to %s are under way or wait, %d of them of cluster %q",
		in.Used(), to, in.Held(cluster), cluster)
}

// notYet marks a failure as one before anything was sent.
func notYet(f *review.Failure) *review.Failure {
	f.NotStarted = true
	return f
}

// posting names the request that failed, as net/http and so kube-apiserver does: Post "https://host/path?timeout=10s": why.
func (e *exchange) posting(why error) error {
	return &url.Error{Op: "Post", URL: e.location().Redacted(), Err: why}
}

// endOf is the failure of a call whose context has ended.
func (e *exchange) endOf(ctx context.Context, while string) *review.Failure {
	err := e.posting(fmt.Errorf("%w, while %s", ctx.Err(), while))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failure(review.FailureTimeout, "%w", err)
	}
	return failure(review.FailureCancelled, "no longer waited for: %w", err)
}
