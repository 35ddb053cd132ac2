package upstream

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// lapsing is an interceptor of a dispatcher that does not know connections any more, as one does whose authorities have changed.
type lapsing struct {
	mu     sync.Mutex
	lapsed map[string]bool // by the address of the client; false are those that are known
}

func (l *lapsing) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	from, _ := peer.FromContext(ctx)
	l.mu.Lock()
	lapsed := l.lapsed[from.Addr.String()]
	l.lapsed[from.Addr.String()] = lapsed
	l.mu.Unlock()
	if lapsed {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(bridge.UnjudgedTrailer, "true"))
		return nil, status.Error(codes.Unauthenticated, "not trusted any more")
	}
	return handle(ctx, request)
}

// connections is how many have had a review.
func (l *lapsing) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lapsed)
}

func (l *lapsing) lapse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for from := range l.lapsed {
		l.lapsed[from] = true
	}
}

// TestConnectionsThatADispatcherDoesNotKnowAnyMoreAreReplaced: no review fails, none is judged twice, and a review under way on an old
// connection is answered.
func TestConnectionsThatADispatcherDoesNotKnowAnyMoreAreReplaced(t *testing.T) {
	m := newMesh(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	held, release := make(chan struct{}), make(chan struct{})
	j, judged := counted(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		if r.Entry.Name == "held" {
			close(held)
			<-release
		}
		return allowed(ctx, r)
	})
	l := &lapsing{lapsed: map[string]bool{}}
	address, _, _ := m.dispatcherOn(listener, j, grpc.UnaryInterceptor(l.intercept))
	r := m.reviewer(address)
	for l.connections() < ConnectionsPerTarget { // they are made in the background
		m.passes(r)
	}
	answered := make(chan error, 1)
	go func() {
		under := request(patience)
		under.Entry.Name = "held"
		_, err := r.Review(t.Context(), under)
		answered <- err
	}()
	<-held

	l.lapse()
	before := judged.Load()
	const reviews = 3 * ConnectionsPerTarget
	for range reviews {
		m.passes(r)
	}
	if n := judged.Load() - before; n != reviews {
		t.Errorf("%d reviews were judged %d times", reviews, n)
	}
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the review under way: %v", err)
	}
}
