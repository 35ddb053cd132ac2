package etcdstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// attemptAfter is the time without an answer after which another attempt begins beside the first. The client alternates
	// between the members, so a member that hangs costs this much; gRPC notices it after 15 s at best.
	attemptAfter = 500 * time.Millisecond
	// maxAttempts bounds the attempts of one request.
	maxAttempts = 4
	// retryInterval is the longest time between two attempts of Retry. An attempt that a member has passed on to a leader that is gone is
	// never answered in time, so an election costs that much more at most.
	retryInterval = 2 * time.Second
	// maxRetries bounds the attempts of Retry.
	maxRetries = 20
)

// answer is the result of an attempt.
type answer[T any] struct {
	value T
	err   error
}

// Attempt sends an idempotent request, and sends it again if there is no answer for a while, or if a member was unavailable. It
// returns the first success, and cancels and waits for the other attempts. It returns a refusal only when no other attempt is
// left that may succeed: a commit is refused if an earlier attempt of the same one has filled the store.
func Attempt[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	return attempt(ctx, ask, maxAttempts, 1)
}

// Retry is Attempt for a request that is to outlast the election of a leader: it makes attempts for longer. While etcd is slow it makes fewer
// and fewer, since each is work for etcd.
func Retry[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	return attempt(ctx, ask, maxRetries, int(retryInterval/attemptAfter))
}

// attempt is Attempt with the largest number of attempts, and the most times attemptAfter between two of them. That time is doubled after
// each attempt without an answer.
func attempt[T any](ctx context.Context, ask func(context.Context) (T, error), most, apart int) (T, error) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer[T], most)
	begin := func() {
		asking.Go(func() {
			value, err := ask(ctx)
			answers <- answer[T]{value, err}
		})
	}
	begin()
	again := time.NewTicker(attemptAfter)
	defer again.Stop()
	var refusal *answer[T]
	for begun, ended, quiet := 1, 0, 0; ; {
		select {
		case a := <-answers:
			ended++
			if a.err == nil {
				return a.value, nil
			}
			if refusal == nil && (!transient(a.err) || ended == most || ctx.Err() != nil) {
				refusal = &a
			}
			if refusal != nil && ended == begun {
				return refusal.value, refusal.err
			}
		case <-again.C:
			quiet++
			if refusal == nil && begun < most && quiet >= min(1<<max(begun-ended-1, 0), apart) {
				begun, quiet = begun+1, 0
				begin()
			}
		}
	}
}

// transient reports whether another attempt may succeed.
func transient(err error) bool { return codeOf(err) == codes.Unavailable }

// codeOf returns the code of an error of etcd, which has two forms.
func codeOf(err error) codes.Code {
	var told rpctypes.EtcdError
	if errors.As(err, &told) {
		return told.Code()
	}
	return status.Code(err)
}
