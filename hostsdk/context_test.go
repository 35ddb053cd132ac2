package hostsdk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

type contextKey struct{}

// twoContexts are a call's context and its equivalent made of the library's own contexts.
type twoContexts struct {
	lost       context.CancelCauseFunc // the session
	mine       callContext
	real       context.Context
	cancelReal context.CancelCauseFunc
	stopReal   context.CancelFunc

	// several says that there is more than one reason for the end, of which nobody saw the first: each of them is right.
	several bool
}

func newTwo(ctx context.Context, deadline time.Time) *twoContexts {
	w := &twoContexts{}
	parent, lost := context.WithCancelCause(context.WithValue(ctx, contextKey{}, "value"))
	w.lost = lost
	w.mine.init(parent, deadline)
	inner, cancel := context.WithCancelCause(parent)
	w.real, w.stopReal = context.WithDeadline(inner, deadline)
	w.cancelReal = cancel
	return w
}

// TestACallsContextIsLikeTheLibrarysOwn does random things to both, and asks both random questions.
func TestACallsContextIsLikeTheLibrarysOwn(t *testing.T) {
	for seed := range uint64(500) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3))
			w := newTwo(t.Context(), time.Now().Add(time.Duration(random.IntN(10))*time.Second))
			defer w.lost(nil)
			defer w.stopReal()
			defer w.mine.handlerReturned()
			for range 10 {
				w.happen(random)
				synctest.Wait()
				if w.several && (w.mine.Err() == nil) != (w.real.Err() == nil) {
					t.Fatalf("seed %d: %v, want %v", seed, w.mine.Err(), w.real.Err())
				}
				if mine, theirs := w.ask(random); mine != theirs && !w.several {
					t.Fatalf("seed %d: %q, want %q", seed, mine, theirs)
				}
			}
		})
	}
}

func (w *twoContexts) happen(random *rand.Rand) {
	switch random.IntN(8) {
	case 0:
		w.mine.end(errCancelled)
		w.cancelReal(errCancelled)
	case 1:
		w.several = w.several || w.real.Err() != nil
		w.lost(errGone)
	case 2:
		w.several = true
		w.mine.handlerReturned()
		w.cancelReal(nil)
	default:
		time.Sleep(time.Second) //nolint:forbidigo // of the fake clock
	}
}

func (w *twoContexts) ask(random *rand.Rand) (mine, theirs string) {
	question := random.IntN(5)
	answer := func(ctx context.Context) string {
		switch question {
		case 0:
			return fmt.Sprint(ctx.Err())
		case 1:
			return fmt.Sprint(context.Cause(ctx))
		case 2:
			return fmt.Sprint(ended(ctx), ctx.Err())
		case 3:
			deadline, ok := ctx.Deadline()
			return fmt.Sprint(deadline, ok, ctx.Value(contextKey{}))
		default:
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			return fmt.Sprint(child.Err(), context.Cause(child))
		}
	}
	return answer(&w.mine), answer(w.real)
}

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// TestAContextMadeOfACallsEndsWithIt: also without a goroutine that waits for it, which would show up as a leak.
func TestAContextMadeOfACallsEndsWithIt(t *testing.T) {
	var c callContext
	c.init(t.Context(), time.Now().Add(time.Hour))
	child, cancel := context.WithCancel(&c)
	defer cancel()
	c.end(errCancelled)
	if !ended(child) || !errors.Is(context.Cause(child), errCancelled) {
		t.Errorf("ended %t, because of %v", ended(child), context.Cause(child))
	}
}

// TestAContextThatNobodyWaitsForCostsNothing measures the saving of the call's context.
func TestAContextThatNobodyWaitsForCostsNothing(t *testing.T) {
	ctx, deadline := t.Context(), time.Now().Add(time.Hour)
	c := &callContext{}
	got := testing.AllocsPerRun(100, func() {
		c.init(ctx, deadline)
		if c.Err() != nil || c.Value(contextKey{}) != nil {
			t.Error("it ended")
		}
		c.handlerReturned()
		c.over = false
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
