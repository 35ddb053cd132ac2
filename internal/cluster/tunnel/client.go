package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

const (
	// resolveInterval is how often the addresses of dispatchers are looked up.
	resolveInterval = 5 * time.Second
	// redialAfter is the pause before a dispatcher is dialled again.
	redialAfter = time.Second
	// keepalivePing is how long a connection is silent before gRPC checks it, which allows no less; see ClientOptions.Credentials.
	keepalivePing = 10 * time.Second
)

// ClientOptions configure a Client. All fields are required.
type ClientOptions struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Targets are host:port of the listeners for hosts. A name stands for all of its addresses.
	Targets []string
	// Credentials returns the credentials for a target whose certificate carries a name. They may have the kernel check connections.
	Credentials func(serverName string) credentials.TransportCredentials
	// API is the way to the API server of the cluster.
	API *rest.Config
	// Conversions calls the conversion webhooks of the cluster.
	Conversions custom.Caller
	// Memory is where conversions are booked while they are read, beside the answers of webhooks, which Conversions books; nil books nothing.
	Memory *memory.Ledger
	// Logger receives tunnels that come and go.
	Logger *slog.Logger
}

// Client gives every dispatcher access to the API server of a cluster. Run is called once.
type Client struct {
	options ClientOptions
	handler http.Handler
	running map[tunnelKey]context.CancelFunc // of Run
}

// tunnelKey is one address of a target.
type tunnelKey struct{ target, ip string }

// NewClient returns a client that has dialled nothing yet.
func NewClient(o ClientOptions) (*Client, error) {
	transport, err := rest.TransportFor(o.API)
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	answers.LimitBuffers(transport)
	to, _, err := rest.DefaultServerUrlFor(o.API)
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	over := answers.Transport{RoundTripper: transport, ItemByItem: true, Memory: o.Memory, Cluster: o.Cluster}
	return &Client{options: o, handler: NewHandler(to, over, o.Conversions, o.Logger), running: map[tunnelKey]context.CancelFunc{}}, nil
}

// Run keeps a tunnel to each address of each dispatcher until ctx ends. An address that its name has lost is given up; while a
// name cannot be resolved, its addresses stay.
func (c *Client) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, target := range c.options.Targets {
			c.reconcile(ctx, target, &running)
		}
		if !clock.Sleep(ctx, resolveInterval) {
			return nil
		}
	}
}

// reconcile starts and stops tunnels to the addresses of a target.
func (c *Client) reconcile(ctx context.Context, target string, running *sync.WaitGroup) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return // upstream.New has refused it
	}
	found, err := new(net.Resolver).LookupHost(ctx, host)
	if err != nil {
		c.options.Logger.Warn("the dispatcher cannot be resolved", "dispatcher", target, "error", err)
		return
	}
	for key, stop := range c.running {
		if key.target == target && !slices.Contains(found, key.ip) {
			stop()
			delete(c.running, key)
		}
	}
	for _, ip := range found {
		key := tunnelKey{target, ip}
		if c.running[key] != nil {
			continue
		}
		own, stop := context.WithCancel(ctx)
		c.running[key] = stop
		running.Go(func() { c.keep(own, net.JoinHostPort(ip, port), host) })
	}
}

// keep keeps a tunnel to an address until ctx ends.
func (c *Client) keep(ctx context.Context, address, serverName string) {
	last := ""
	for ctx.Err() == nil {
		err := c.serve(ctx, address, serverName)
		if text := status.Convert(cmp.Or(err, errEnded)).Message(); ctx.Err() == nil && text != last {
			last = text
			c.options.Logger.Warn("the dispatcher cannot ask the cluster through this bridge", "dispatcher", address, "code", status.Code(err), "error", text)
		}
		clock.Sleep(ctx, redialAfter)
	}
}

// serve serves one tunnel over a connection of its own: the certificate of the one before may be the reason for its end.
func (c *Client) serve(ctx context.Context, address, serverName string) error {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(c.options.Credentials(serverName)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepalivePing, Timeout: pingTimeout}))
	if err != nil {
		return err
	}
	defer conn.Close()
	return Serve(ctx, conn, c.options.Cluster, c.handler)
}

var errEnded = errors.New("the tunnel has ended")
