package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// cuttable is the connections of a host, all of which can be cut at any time.
type cuttable struct {
	network interface {
		DialContext(ctx context.Context) (net.Conn, error)
	}

	mu   sync.Mutex
	open []net.Conn
}

func (c *cuttable) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := c.network.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, conn)
	return conn, nil
}

// cut ends all connections in the middle of whatever they are doing.
func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// hostOn starts a host on connections that can be cut. Nobody waits for it, nor asks how it ended.
func (m *mesh) hostOn(c *cuttable, hooks ...hostsdk.Hook) {
	m.t.Helper()
	h, err := hostsdk.New(hostsdk.Options{
		Name: "test", Dispatchers: []string{"127.0.0.1:1"}, TLS: hostsdk.Plaintext(), Dial: c.dial,
		TracerProvider: m.provider, Logger: slog.New(slog.DiscardHandler), DrainTimeout: time.Millisecond,
	}, hooks...)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	m.t.Cleanup(func() {
		stop()
		running.Wait()
	})
	<-h.Ready()
}

// Reviews of all sizes that are allowed, denied, patched, given up in the middle, called in shadow, and whose hosts are cut
// off while they are written: when all that is over nothing is booked any more.
func TestWhateverHappensNothingStaysBooked(t *testing.T) {
	const reviewers, reviews = 8, 40
	ledger, err := memory.New(memory.Options{Total: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("reviews", func(t *testing.T) {
		hooks := []hook{{name: "a.test.dev"}, {name: "b.test.dev", ignore: true}, {name: "shadow.test.dev", shadow: true, time: 100 * time.Millisecond}}
		m := newMesh(t, hooks, []hook{{name: "m.test.dev"}, {name: "n.test.dev", needed: true}})
		connections := &cuttable{network: m.network}
		for range 2 {
			served := []hostsdk.Hook{hostsdk.Mutate("m.test.dev", moody), hostsdk.Mutate("n.test.dev", moody)}
			for _, x := range hooks {
				served = append(served, hostsdk.Validate(x.name, moody))
			}
			m.hostOn(connections, served...)
		}
		var all sync.WaitGroup
		for i := range reviewers {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for n := range reviews {
					m.reviewOnce(ledger, random)
					if i == 0 && n%5 == 0 {
						connections.cut()
					}
				}
			})
		}
		all.Wait()
		m.dispatcher.Close(t.Context())
	})
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		known := maps.Collect(ledger.Clusters()) // a cluster is forgotten a moment after its last byte is given back
		if ledger.InUse() == 0 && len(known) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are still booked, and clusters known: %v", ledger.InUse(), known)
		}
		runtime.GC() // which ends the loans of transports that were cut
	}
}

// reviewOnce judges a review of some size on a reservation of its own, and may lose patience.
func (m *mesh) reviewOnce(ledger *memory.Ledger, random *rand.Rand) {
	size := []int{100, 20_000, 300_000}[random.IntN(3)]
	pod := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"x":%q}`, strings.Repeat("x", size))
	reservation, err := ledger.Reserve(fmt.Sprint("c", random.IntN(3)), int64(len(pod)))
	if err != nil {
		var full *memory.FullError
		if !errors.As(err, &full) {
			m.t.Error(err)
		}
		return
	}
	defer reservation.Release()
	ctx, done := context.WithTimeout(m.t.Context(), time.Duration(1+random.IntN(50))*time.Millisecond)
	defer done()
	r := podReview([]admissionv1.Stage{validate, mutate, admissionv1.Stage_STAGE_ADMIT}[random.IntN(3)], pod)
	r.Reservation = reservation
	_, _ = m.dispatcher.Review(ctx, r) // whatever comes of it
}

// moody answers differently each time, and sometimes not at all.
func moody(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
	switch rand.IntN(6) {
	case 0:
		return hostsdk.Deny(strings.Repeat("no ", 3000)), nil
	case 1:
		return hostsdk.Patch([]byte(`[{"op":"add","path":"/y","value":"` + strings.Repeat("y", 10_000) + `"}]`)), nil
	case 2:
		<-ctx.Done()
		return nil, ctx.Err()
	case 3:
		return nil, errors.New("broken")
	}
	return hostsdk.Allow(), nil
}
