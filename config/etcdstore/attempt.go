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

// How etcd is asked.
const (
	// attemptAfter is after what silence the same is asked once more beside the first time. The client takes turns between
	// the members, so that one that hangs costs this much and not the age that a configuration may have: gRPC notices it
	// after 11 s at best.
	attemptAfter = 500 * time.Millisecond
	// maxAttempts bounds how often the same is asked.
	maxAttempts = 4
)

// answer is how an attempt ended.
type answer[T any] struct {
	value T
	err   error
}

// attempt asks, and asks again beside that when nothing was heard for a while, or when a member could not answer. The first
// answer counts; the other attempts are ended and waited for. A refusal counts when no attempt is left that may yet be
// answered: a commit that comes beside one which has filled the store is refused, and has been made. What is asked must come to
// the same however often it is done.
func attempt[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer[T], maxAttempts)
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
	for begun, ended := 1, 0; ; {
		select {
		case a := <-answers:
			ended++
			if a.err == nil {
				return a.value, nil
			}
			if refusal == nil && (!transient(a.err) || ended == maxAttempts || ctx.Err() != nil) {
				refusal = &a
			}
			if refusal != nil && ended == begun {
				return refusal.value, refusal.err
			}
		case <-again.C:
			if refusal == nil && begun < maxAttempts {
				begun++
				begin()
			}
		}
	}
}

// transient reports whether another member may answer what one has not, or the same one a little later.
func transient(err error) bool { return codeOf(err) == codes.Unavailable }

// codeOf is the code of an error of etcd, which has two forms.
func codeOf(err error) codes.Code {
	var told rpctypes.EtcdError
	if errors.As(err, &told) {
		return told.Code()
	}
	return status.Code(err)
}
