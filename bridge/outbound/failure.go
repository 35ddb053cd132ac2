package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

func failure(kind review.FailureKind, format string, args ...any) *review.Failure {
	return &review.Failure{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// notStarted marks a failure as one before anything was sent to the webhook.
func notStarted(f *review.Failure) *review.Failure {
	f.NotStarted = true
	return f
}

// arrive takes a place for a call to a webhook, or among all calls. It fails the call if its cluster has too many.
func arrive(in *fairqueue.Shares, cluster, to string) *review.Failure {
	if !in.Allows(cluster) {
		return notStarted(failure(review.FailureOverload, "%d calls to %s are under way or wait, %d of them of cluster %q",
			in.Used(), to, in.Held(cluster), cluster))
	}
	in.Take(cluster)
	return nil
}

// posting names the request that failed, as net/http and so kube-apiserver does: Post "https://host/path?timeout=10s": why.
func (a *attempt) posting(why error) error {
	return &url.Error{Op: "Post", URL: a.location().Redacted(), Err: why}
}

// endOf is the failure of a call whose context has ended.
func (a *attempt) endOf(ctx context.Context, while string) *review.Failure {
	err := a.posting(fmt.Errorf("%w, while %s", ctx.Err(), while))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failure(review.FailureTimeout, "%w", err)
	}
	return failure(review.FailureCancelled, "no longer waited for: %w", err)
}

// unanswered is the failure of a call that got no answer.
func (a *attempt) unanswered(ctx context.Context, err error) *review.Failure {
	switch {
	case ctx.Err() != nil && a.received:
		return a.endOf(ctx, "waiting for the answer")
	case ctx.Err() != nil:
		return notStarted(a.endOf(ctx, "connecting"))
	case a.received:
		return failure(review.FailureLost, "%w", a.posting(unquoted(err)))
	}
	return notStarted(failure(review.FailureUnavailable, "%w", a.posting(short{err})))
}

// unquoted is an error of a connection, as far as it is no part of an answer: net/http quotes the first line of an answer that is not HTTP.
// It closes the connection then, and a request that is being written may meet that first.
func unquoted(err error) error {
	var network net.Error
	if !errors.Is(err, net.ErrClosed) && (errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return short{err}
	}
	return errors.New("the connection brought no answer in HTTP")
}

// short is an error with the start of its text: a certificate that is refused may have long names.
type short struct{ error }

// maxErrorText bounds the text of an error of a connection, in bytes.
const maxErrorText = 1 << 10

// Error implements error.
func (s short) Error() string {
	text := s.error.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "")
}

// Unwrap returns the whole error.
func (s short) Unwrap() error { return s.error }
