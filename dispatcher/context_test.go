package dispatcher

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type key struct{}

func TestBounded(t *testing.T) {
	for _, c := range []struct {
		name  string
		watch bool // somebody waits from the beginning
	}{{"nobody waits", false}, {"somebody waits", true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, end := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Minute)
				defer end()
				deadline := time.Now().Add(time.Second)
				b := &bounded{Context: parent, deadline: deadline}
				defer b.release()
				if c.watch {
					<-b.child(t)
				}
				if at, ok := b.Deadline(); !ok || !at.Equal(deadline) {
					t.Errorf("deadline %v %v", at, ok)
				}
				if b.Err() != nil || b.Value(key{}) != "value" {
					t.Errorf("err %v, value %v", b.Err(), b.Value(key{}))
				}
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble
				synctest.Wait()
				if !errors.Is(b.Err(), context.DeadlineExceeded) {
					t.Errorf("err %v at the deadline", b.Err())
				}
				<-b.Done()
			})
		})
	}
}

// child is closed; a context made of b has ended with it by the end of the test, or the bubble would not end.
func (b *bounded) child(t *testing.T) <-chan struct{} {
	t.Helper()
	child, cancel := context.WithCancel(b)
	t.Cleanup(cancel)
	context.AfterFunc(child, func() {
		if !errors.Is(child.Err(), context.DeadlineExceeded) {
			t.Errorf("child ended with %v", child.Err())
		}
	})
	ready := make(chan struct{})
	close(ready)
	return ready
}

func TestBoundedEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		b := &bounded{Context: parent, deadline: time.Now().Add(time.Second)}
		defer b.release()
		end()
		if !errors.Is(b.Err(), context.Canceled) {
			t.Errorf("err %v", b.Err())
		}
		<-b.Done()
	})
}

func TestBoundedEndsWhenReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bounded{Context: t.Context(), deadline: time.Now().Add(time.Second)}
		waiting := b.Done()
		b.release()
		<-waiting
		if !errors.Is(b.Err(), context.Canceled) {
			t.Errorf("err %v", b.Err())
		}
	})
}
