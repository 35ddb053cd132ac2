// Package service implements InitializerService: controllers read staged objects and initialize them, operators look at them and end
// holds. Package initializer decides about changes of an object, and package staged writes them; this package decides which
// callers see an object, and turns changes into the messages of a watch.
package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// Bounds of calls and streams. One identity has no more of either than it leaves free for the others.
const (
	// MaxCalls bounds the calls in flight, of all methods and listeners.
	MaxCalls = 256
	// MaxStreams bounds the open streams of Watch.
	MaxStreams = 500
	// watchBuffer is how many changes a reader of a watch may be behind.
	watchBuffer = 1024
	// sendTimeout is how long a reader of a watch may take for a message before its stream ends with ABORTED.
	sendTimeout = 30 * time.Second
	// updateTimeout bounds the wait for etcd in an update; the election of a leader takes less.
	updateTimeout = 5 * time.Second
	// bookmarkInterval is the time between two bookmarks of a watch.
	bookmarkInterval = time.Minute
)

// Store has the staged objects of all dispatchers; *staged.Store does. Its methods may be called concurrently, and its objects are
// not written.
type Store interface {
	Get(ctx context.Context, key *initializerv1.StagedKey) (*initializerv1.StagedObject, error)
	List(ctx context.Context) (objects []*initializerv1.StagedObject, version string, err error)
	Watch(ctx context.Context, after string, buffer int) (*staged.Watcher, error)
	Update(ctx context.Context, key *initializerv1.StagedKey, version string, next *initializerv1.StagedObject) (*initializerv1.StagedObject, error)
	Delete(ctx context.Context, key *initializerv1.StagedKey, uid, version string) (*initializerv1.StagedObject, error)
}

var _ Store = (*staged.Store)(nil)

// Options configure a Service. Grants and Identity are required.
type Options struct {
	// Store has the staged objects; nil without a store. Then every call of a caller with a permission ends with FAILED_PRECONDITION.
	Store Store
	// Grants has the permissions of callers.
	Grants Grants
	// Identity returns the caller, from the certificate of the channel; the zero Peer if there is none.
	Identity func(ctx context.Context) identity.Peer
	// MaxObjectBytes bounds an object that a caller writes, as JSON; 0 is initializer.DefaultObjectBytes.
	MaxObjectBytes int
	// Work has one call at a time occupy a processor, and callers rest in between; nil makes a queue that no other service shares.
	Work *turns.Queue
	// Logger receives the names of callers that end a hold, and errors whose cause is not sent to callers; nil logs nothing.
	Logger *slog.Logger
}

// Service implements initializerv1.InitializerServiceServer. It may be used concurrently.
type Service struct {
	initializerv1.UnimplementedInitializerServiceServer

	o           Options
	now         func() time.Time
	buffer      int
	sendTimeout time.Duration
	bookmarks   time.Duration  // between two of a watch
	calls       *memory.Ledger // in flight, by identity
	streams     *memory.Ledger // open, by identity
	stopping    chan struct{}  // closed by Drain
	drain       func()
}

// New returns a service. It does no I/O.
func New(o Options) (*Service, error) {
	if o.Grants == nil || o.Identity == nil {
		return nil, errors.New("service: Grants and Identity are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Work = cmp.Or(o.Work, turns.NewQueue())
	o.MaxObjectBytes = cmp.Or(o.MaxObjectBytes, initializer.DefaultObjectBytes)
	calls, err := memory.New(memory.Options{Total: MaxCalls})
	if err != nil {
		return nil, err
	}
	streams, err := memory.New(memory.Options{Total: MaxStreams})
	if err != nil {
		return nil, err
	}
	stopping := make(chan struct{})
	return &Service{
		o: o, now: time.Now, buffer: watchBuffer, sendTimeout: sendTimeout, bookmarks: bookmarkInterval, calls: calls, streams: streams,
		stopping: stopping, drain: sync.OnceFunc(func() { close(stopping) }),
	}, nil
}

// Drain ends the streams of Watch, which would delay a stop, and refuses new ones. Other calls are still answered.
func (s *Service) Drain() { s.drain() }

// MayCall returns nil if the caller has a role or is granted an initializer, else the error of its calls. A request of any other
// caller need not be read.
func (s *Service) MayCall(ctx context.Context) error {
	_, err := s.viewOf(ctx)
	return err
}
