package service

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// oneObject is a store that has one object, and answers at once.
type oneObject struct{ *initializerv1.StagedObject }

func (o oneObject) Get(context.Context, *initializerv1.StagedKey) (*initializerv1.StagedObject, error) {
	return o.StagedObject, nil
}

func (o oneObject) List(context.Context) ([]*initializerv1.StagedObject, string, error) {
	return []*initializerv1.StagedObject{o.StagedObject}, "7", nil
}

func (oneObject) Watch(context.Context, string, int) (*staged.Watcher, error) {
	return nil, staged.ErrStopped
}

func (o oneObject) Update(
	context.Context, *initializerv1.StagedKey, string, *initializerv1.StagedObject,
) (*initializerv1.StagedObject, error) {
	return o.StagedObject, nil
}

func (o oneObject) Delete(context.Context, *initializerv1.StagedKey, string, string) (*initializerv1.StagedObject, error) {
	return o.StagedObject, nil
}

// granted grants the initializer to controllers, and makes the identity "operator" an operator.
type granted struct{ onlyOne }

func (granted) Access(caller identity.Peer) Access {
	return Access{Initializers: []Initializer{{Pending: "a"}}, Reader: true, Operator: caller.Name() == "operator"}
}

type callerKey struct{}

func called(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, identity.Named(name))
}

// newPaced is a service whose store has one object of 1 KiB.
func newPaced(t *testing.T) (*Service, *initializerv1.StagedObject) {
	t.Helper()
	o := pod("a")
	o.Object.Raw = append([]byte(`{"a":"`), append(make([]byte, 1<<10), `"}`...)...)
	s, err := New(Options{Store: oneObject{o}, Grants: granted{}, Identity: func(ctx context.Context) identity.Peer {
		peer, _ := ctx.Value(callerKey{}).(identity.Peer)
		return peer
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, o
}

// methods are those by which objects are read and changed.
func methods(s *Service, o *initializerv1.StagedObject) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Get": func(ctx context.Context) error {
			_, err := s.Get(ctx, &initializerv1.GetRequest{Key: o.GetKey()})
			return err
		},
		"List": func(ctx context.Context) error { _, err := s.List(ctx, &initializerv1.ListRequest{}); return err },
		"Update": func(ctx context.Context) error {
			_, err := s.Update(ctx, &initializerv1.UpdateRequest{Key: o.GetKey(), ResourceVersion: "7", Pending: []string{"a"}, Object: o.GetObject()})
			return err
		},
		"Delete": func(ctx context.Context) error {
			_, err := s.Delete(ctx, &initializerv1.DeleteRequest{Key: o.GetKey()})
			return err
		},
		"Watch": func(ctx context.Context) error { return s.Watch(&initializerv1.WatchRequest{}, &reader{ctx: ctx}) },
		"Spend": func(ctx context.Context) error { return s.Spend(ctx, 1<<20) },
	}
}

// TestAControllerRestsFromItsWork: each method, called without a pause, is slowed down for its caller alone, and not for operators.
func TestAControllerRestsFromItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newPaced(t)
		for name, call := range methods(s, o) {
			timed := func(who string, calls int) time.Duration {
				begun := time.Now()
				for range calls {
					if err := call(called(t.Context(), who)); code(err) == codes.Unauthenticated || code(err) == codes.NotFound {
						t.Fatalf("%s: %v", name, err)
					}
				}
				return time.Since(begun)
			}
			if took := timed(name, 1); took != 0 {
				t.Errorf("%s: the first call rests for %v", name, took)
			}
			if took := timed(name, 2_000); took < 2_000*callWork*4-1010*time.Millisecond {
				t.Errorf("%s: 2,000 calls rest for %v", name, took)
			}
			if took := timed("other "+name, 1); took != 0 {
				t.Errorf("%s: another controller rests for %v", name, took)
			}
			if took := timed("operator", 100); took != 0 {
				t.Errorf("%s: an operator rests for %v", name, took)
			}
		}
	})
}

func code(err error) codes.Code { return status.Code(err) }

// TestARestEndsWithTheService: and with the call.
func TestARestEndsWithTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newPaced(t)
		ctx := called(t.Context(), "one")
		if err := s.Spend(ctx, 1<<30); err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := s.Spend(gone, 0); code(err) != codes.DeadlineExceeded {
			t.Errorf("a call that is over: %v", err)
		}
		rested := make(chan error)
		go func() { rested <- s.Spend(ctx, 0) }()
		synctest.Wait()
		s.Drain()
		if err := <-rested; code(err) != codes.Unavailable {
			t.Errorf("the service stops: %v", err)
		}
	})
}
