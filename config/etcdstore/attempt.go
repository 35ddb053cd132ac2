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
	// between the members, so a member that hangs costs this much; gRPC notices it after 11 s at best.
	attemptAfter = 500 * time.Millisecond
	// maxAttempts bounds the attempts of one request.
	maxAttempts = 4
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

// Retry is Attempt, again and again until ctx ends or etcd has answered or refused: for a request that is to outlast the election of a leader.
// Attempts that a member has passed on to a leader that is gone are never answered in time; they are given up for new ones.
func Retry[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	for {
		round, cancel := context.WithTimeout(ctx, maxAttempts*attemptAfter)
		value, err := Attempt(round, ask)
		again := (round.Err() != nil || transient(err)) && ctx.Err() == nil
		cancel()
		if err == nil || !again {
			return value, err
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
