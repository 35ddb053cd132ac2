package mesh

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// probeInterval is the pause between two looks at whether dispatchers are
// ready.
const probeInterval = 50 * time.Millisecond

// Port is a port of a dispatcher.
type Port func(Addresses) string

// The ports that somebody balances.
var (
	// BridgePort is that for API servers.
	BridgePort Port = func(a Addresses) string { return strings.TrimPrefix(a.Bridge, "https://") }
	// HostsPort is that for hosts and direct callers.
	HostsPort Port = func(a Addresses) string { return a.Hosts }
)

// Balancer is one address in front of several dispatchers, as a Service is with
// kube-proxy: a new connection goes by chance to a dispatcher that was ready
// when last asked, and stays there. Until the balancer learns that a dispatcher
// has turned unready, connections still go there.
type Balancer struct {
	// Address is the host:port.
	Address string

	port        Port
	connections sync.WaitGroup
	end         func()

	mu        sync.Mutex
	endpoints []*endpoint
}

// endpoint is one dispatcher.
type endpoint struct {
	dispatcher *Dispatcher
	admin      string // where it says whether it is ready
	address    string // where its connections go
	ready      bool
}

// Balance starts a balancer, which ends with the test.
func Balance(t testing.TB, port Port, dispatchers ...*Dispatcher) *Balancer {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return BalanceOn(t, listener, port, dispatchers...)
}

// BalanceOn is Balance with a listener, which it closes.
func BalanceOn(t testing.TB, listener net.Listener, port Port, dispatchers ...*Dispatcher) *Balancer {
	t.Helper()
	b := &Balancer{Address: listener.Addr().String(), port: port}
	for _, d := range dispatchers {
		b.Add(d)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b.connections.Go(func() { b.probe(ctx) })
	b.connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			b.connections.Go(func() { b.forward(ctx, conn) })
		}
	})
	b.end = sync.OnceFunc(func() {
		cancel()
		listener.Close()
		b.connections.Wait()
	})
	t.Cleanup(b.end)
	return b
}

// Close ends the balancer, with its connections, before its test ends.
func (b *Balancer) Close() { b.end() }

// Add puts a dispatcher behind the balancer, where it is used once it is
// ready.
func (b *Balancer) Add(d *Dispatcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = append(b.endpoints, &endpoint{dispatcher: d, admin: d.Admin, address: b.port(d.Addresses)})
}

// Remove forgets a dispatcher. Its connections stay.
func (b *Balancer) Remove(d *Dispatcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = slices.DeleteFunc(b.endpoints, func(e *endpoint) bool { return e.dispatcher == d })
}

// Uses is an error unless exactly these dispatchers get new connections.
func (b *Balancer) Uses(dispatchers ...*Dispatcher) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.endpoints {
		if e.ready != slices.Contains(dispatchers, e.dispatcher) {
			return errors.New("new connections go to other dispatchers")
		}
	}
	return nil
}

// probe asks the dispatchers whether they are ready, again and again.
func (b *Balancer) probe(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		b.mu.Lock()
		all := slices.Clone(b.endpoints)
		b.mu.Unlock()
		for _, e := range all {
			ready := e.probe(ctx)
			b.mu.Lock()
			e.ready = ready
			b.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// probe asks one dispatcher.
func (e *endpoint) probe(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := get(ctx, e.admin+"/readyz")
	return err == nil
}

// forward is one connection, until either side or ctx ends it.
func (b *Balancer) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	address := b.choose()
	if address == "" {
		return
	}
	server, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
	if err != nil {
		return
	}
	splice(ctx, client, server)
}

// choose is where a new connection goes; "" is nowhere.
func (b *Balancer) choose() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []string
	for _, e := range b.endpoints {
		if e.ready {
			ready = append(ready, e.address)
		}
	}
	if len(ready) == 0 {
		return ""
	}
	return ready[rand.IntN(len(ready))]
}

// splice copies both ways until both sides have said everything.
func splice(ctx context.Context, client, server net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() {
		client.Close()
		server.Close()
	})
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		both.Go(func() {
			if _, err := io.Copy(to, from); err != nil {
				cancel() // an end is an end, whatever its reason
				return
			}
			if half, ok := to.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
				cancel()
			}
		})
	}
	both.Wait()
}
