package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

const (
	// trafficClients is how many clients create Pods at a time.
	trafficClients = 8
	// pace is how much time at least lies between two requests of a client.
	pace = 10 * time.Millisecond
	// between is how many requests are answered between two steps of a test.
	between = 20
	// maxTrafficErrors is how many errors are kept; one is enough to fail.
	maxTrafficErrors = 5
)

// traffic is reviews that flow while a test does things to the mesh.
type traffic struct {
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	sent    int
	failed  int
	errs    []error // the first of failed
	longest time.Duration
}

// newTraffic has several clients repeat send until the test ends, or
// wantNoFailure does it. A request that is under way is always finished.
func newTraffic(t *testing.T, send func(context.Context) error) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &traffic{stop: cancel}
	for range trafficClients {
		f.clients.Go(func() {
			next := time.NewTicker(pace)
			defer next.Stop()
			for ctx.Err() == nil {
				begun := time.Now()
				f.count(send(t.Context()), time.Since(begun))
				<-next.C
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		f.clients.Wait()
	})
	return f
}

func (f *traffic) count(err error, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent++
	f.longest = max(f.longest, took)
	if err == nil {
		return
	}
	f.failed++
	if len(f.errs) < maxTrafficErrors {
		f.errs = append(f.errs, err)
	}
}

// await returns when some more requests have been answered.
func (f *traffic) await(t *testing.T) {
	t.Helper()
	target := f.total() + between
	eventually(t, "more requests are answered", func() error {
		if f.total() < target {
			return errors.New("not yet")
		}
		return nil
	})
}

func (f *traffic) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent
}

// end ends the traffic.
func (f *traffic) end() {
	f.stop()
	f.clients.Wait()
}

// wantNoFailure ends the traffic and fails the test if any of it failed.
func (f *traffic) wantNoFailure(t *testing.T) {
	t.Helper()
	f.end()
	t.Logf("%d requests, %d failed, the longest took %v", f.sent, f.failed, f.longest)
	if f.failed > 0 {
		t.Errorf("%d of %d requests failed, the first with: %v", f.failed, f.sent, errors.Join(f.errs...))
	}
}
