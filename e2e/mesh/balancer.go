package mesh

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Balance puts the dispatchers behind one address, as a Service does: a new
// connection goes to the first one that is ready, and stays there. It returns
// the URL, and ends with the test.
func Balance(t testing.TB, dispatchers ...*Dispatcher) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			connections.Go(func() { forward(ctx, conn, dispatchers) })
		}
	})
	t.Cleanup(func() {
		cancel()
		listener.Close()
		connections.Wait()
	})
	return "https://" + listener.Addr().String()
}

// forward is one connection, until either side or ctx ends it.
func forward(ctx context.Context, client net.Conn, dispatchers []*Dispatcher) {
	defer client.Close()
	for _, d := range dispatchers {
		server, err := d.dial(ctx)
		if err != nil {
			continue
		}
		splice(ctx, client, server)
		return
	}
}

// dial connects to the bridge of a dispatcher that is ready.
func (d *Dispatcher) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := d.Ready(ctx); err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp4", strings.TrimPrefix(d.Bridge, "https://"))
}

// splice copies both ways until one of the sides closes.
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
			defer cancel()
			_, _ = io.Copy(to, from) // an end is an end, whatever its reason
		})
	}
	both.Wait()
}
