package service_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// counting counts readings of the store. A reading of an identity that has a gate waits until it is opened.
type counting struct {
	service.Objects

	reads   atomic.Int64
	gates   map[string]chan struct{}
	waiting chan string // gets who waits
}

func (c *counting) Read(ctx context.Context, last *etcdstore.State) (*etcdstore.State, error) {
	c.reads.Add(1)
	who, _ := ctx.Value(caller{}).(string)
	if gate, ok := c.gates[who]; ok {
		c.waiting <- who
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c.Objects.Read(ctx, last)
}

// counted is a second service over the store of a fixture, whose readings are counted, and its clock.
func (f *fixture) counted(gates map[string]chan struct{}) (s *service.Service, c *counting, sleep func(time.Duration)) {
	f.t.Helper()
	c = &counting{Objects: f.store, gates: gates, waiting: make(chan string, 2*service.MaxCalls)}
	var passed atomic.Int64
	s, err := service.New(service.Options{
		Objects: c, Live: f, Inspect: lint.Options{}.InspectOnly, Decoder: configtest.NewDecoder(), Operators: identity.Grant{Names: []string{"root"}},
		Identity: func(ctx context.Context) identity.Peer {
			who, _ := ctx.Value(caller{}).(string)
			return identity.Named(who)
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	s.SetClock(func() time.Time { return time.Unix(1000, passed.Add(1)) })
	return s, c, func(d time.Duration) { passed.Add(int64(d)) }
}

// methods are all that a caller can ask for.
func methods(s *service.Service) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"MayCall": s.MayCall,
		"Get": func(ctx context.Context) error {
			_, err := s.Get(ctx, &configv1.GetRequest{Key: policyKey})
			return err
		},
		"List": func(ctx context.Context) error { _, err := s.List(ctx, &configv1.ListRequest{}); return err },
		"ListDispatchers": func(ctx context.Context) error {
			_, err := s.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
			return err
		},
		"ListChanges": func(ctx context.Context) error {
			_, err := s.ListChanges(ctx, &configv1.ListChangesRequest{})
			return err
		},
		"Apply":  func(ctx context.Context) error { _, err := s.Apply(ctx, &configv1.ApplyRequest{}); return err },
		"Delete": func(ctx context.Context) error { _, err := s.Delete(ctx, &configv1.DeleteRequest{}); return err },
		"Watch": func(ctx context.Context) error {
			return s.Watch(&configv1.WatchRequest{}, &takes[configv1.WatchResponse]{ctx: ctx})
		},
		"Wait": func(ctx context.Context) error {
			return s.Wait(&configv1.WaitRequest{}, &takes[configv1.WaitResponse]{ctx: ctx})
		},
		"Backup": func(ctx context.Context) error {
			return s.Backup(&configv1.BackupRequest{}, &takes[configv1.BackupResponse]{ctx: ctx})
		},
	}
}

func TestCallersWithoutARoleReadTheStoreNoOftenerThanRolesAge(t *testing.T) {
	f := newFixture(t)
	s, store, sleep := f.counted(nil)
	for name, call := range methods(s) {
		if err := call(f.as("")); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s without an identity: %v", name, err)
		}
	}
	if n := store.reads.Load(); n != 0 {
		t.Errorf("%d readings for callers without an identity", n)
	}
	for range 10 {
		var calls sync.WaitGroup
		for name, call := range methods(s) {
			calls.Go(func() {
				if err := call(f.as("stranger")); status.Code(err) != codes.PermissionDenied {
					t.Errorf("%s without a role: %v", name, err)
				}
			})
		}
		calls.Wait()
	}
	if n := store.reads.Load(); n != 1 {
		t.Errorf("%d readings for 100 calls without a role, want 1", n)
	}
	sleep(service.RolesAge)
	if err := s.MayCall(f.as("stranger")); status.Code(err) != codes.PermissionDenied || store.reads.Load() != 2 {
		t.Errorf("%d readings after %v, want 2; %v", store.reads.Load(), service.RolesAge, err)
	}
}

func TestARoleHasEffectAtOnceWhereItIsWrittenAndWithinRolesAgeElsewhere(t *testing.T) {
	f := newFixture(t)
	s, _, sleep := f.counted(nil)
	if err := s.MayCall(f.as("viewer")); status.Code(err) != codes.PermissionDenied {
		t.Fatal(err)
	}
	f.applied("root", rolesOfPeople) // by another dispatcher
	sleep(service.RolesAge)
	if err := s.MayCall(f.as("viewer")); err != nil {
		t.Errorf("a Role that another dispatcher has written: %v", err)
	}
	if err := s.MayCall(f.as("ann")); status.Code(err) != codes.PermissionDenied {
		t.Fatal(err)
	}
	const role = "apiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: ann}\nspec: {role: viewer, identities: [ann]}"
	if _, err := s.Apply(f.as("operator"), applyOf(role)); err != nil {
		t.Fatal(err)
	}
	if err := s.MayCall(f.as("ann")); err != nil {
		t.Errorf("a Role that was written here: %v", err)
	}
	if _, err := s.Delete(f.as("operator"), &configv1.DeleteRequest{Key: &configv1.ConfigKey{Kind: "Role", Name: "ann"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(f.as("ann"), &configv1.ListRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a Role that was taken back: %v", err)
	}
}

func TestAFloodOfOneCallerLeavesOthersTheirCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		flood string // who asks
		reads int    // how many of its calls read at a time
	}{
		"of an operator":                 {"operator", service.MaxCalls / 2},
		"of identities without any role": {"stranger", 1}, // the others wait for it
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.applied("root", rolesOfPeople)
			gate := make(chan struct{})
			s, store, sleep := f.counted(map[string]chan struct{}{tc.flood: gate})
			if _, err := s.List(f.as("viewer"), &configv1.ListRequest{}); err != nil {
				t.Fatal(err)
			}
			sleep(service.RolesAge)
			before := store.reads.Load()
			ended := make(chan error, service.MaxCalls)
			for range service.MaxCalls {
				go func() { _, err := s.List(f.as(tc.flood), &configv1.ListRequest{}); ended <- err }()
			}
			for range service.MaxCalls / 2 {
				if err := <-ended; status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.PermissionDenied {
					t.Fatalf("a call of the flood: %v", err)
				}
			}
			for range tc.reads {
				<-store.waiting
			}
			if n := store.reads.Load() - before; n != int64(tc.reads) {
				t.Errorf("%d readings are under way, want %d", n, tc.reads)
			}
			if _, err := s.List(f.as("viewer"), &configv1.ListRequest{}); err != nil {
				t.Errorf("another caller: %v", err)
			}
			close(gate)
			for range service.MaxCalls / 2 {
				<-ended
			}
		})
	}
}

func TestWhoWaitsForAReadingOfAnotherDoesSoNoLongerThanItHasTime(t *testing.T) {
	f := newFixture(t)
	gate := make(chan struct{})
	s, store, _ := f.counted(map[string]chan struct{}{"stranger": gate})
	first := make(chan error, 1)
	go func() { first <- s.MayCall(f.as("stranger")) }()
	<-store.waiting
	ctx, cancel := context.WithCancel(f.as("other"))
	cancel()
	if err := s.MayCall(ctx); status.Code(err) != codes.Canceled {
		t.Errorf("who has gone: %v", err)
	}
	close(gate)
	if err := <-first; status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}
