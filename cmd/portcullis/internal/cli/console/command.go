// Package console serves a page that shows a mesh in a browser. Like `kubectl proxy` it listens on a loopback address and asks the mesh with
// the certificate of the operator who runs it, so that a browser needs none. It reads, and changes nothing.
package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// DefaultListen is the address of the page. It is the same at each start, so that links to it can be shared.
const DefaultListen = "127.0.0.1:8446"

// stopTimeout bounds the end of requests when the command stops.
const stopTimeout = 2 * time.Second

type command struct {
	mesh    connect.MeshAddress
	listen  string
	timeout time.Duration
}

// NewCommand returns "console".
func NewCommand() *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show the mesh in a browser: hooks, hosts, slow reviews, clusters, dispatchers",
		Long: `Console serves a page on this machine and prints its address. The page shows hooks and hosts with their states, the time of each hook,
the slowest reviews with a waterfall, the clusters with their break-glass, and the configuration of each dispatcher. It asks every
dispatcher of the mesh with your certificate, as "portcullis analyze" does, every few seconds. It changes nothing.

The printed address has a token, without which the page gets no data: other users of this machine cannot read with your rights. The
browser keeps it until the command ends. A link to a hook or a review has no token: send it to a colleague who runs the command too.

The mesh has to let you read its configuration (--operator of serve, or a Role). The admin port has no such page with data, since it asks
for no identity.`,
		Example: `  portcullis console
  portcullis console --ready-file /tmp/ready.json --listen 127.0.0.1:9000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.listen, "listen", DefaultListen, "loopback address of the page")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long an answer of the mesh may take")
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *command) run(ctx context.Context, out io.Writer) error {
	if err := checkLoopback(c.listen); err != nil {
		return err
	}
	if c.timeout <= 0 {
		return errors.New("--timeout: use a time, as in 30s")
	}
	return c.mesh.Use(ctx, 0, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		r := &reader{mesh: mesh.New(conn, &c.mesh, io.Discard), timeout: c.timeout}
		if err := r.mayRead(ctx); err != nil {
			return err
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", c.listen)
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		token := rand.Text()
		fmt.Fprintf(out, "The console is at\n\n  http://%s/#token=%s\n\nCtrl-C stops it.\n", l.Addr(), token)
		return serve(ctx, l, newHandler(r, token))
	})
}

// mayRead returns the error of a mesh that does not let the caller read, before a page is served that could only repeat it.
func (r *reader) mayRead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	_, err := r.mesh.Config.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	return err
}

// checkLoopback refuses an address that other machines reach: the page reads with the rights of an operator, in clear text.
func checkLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--listen %q: name an address and a port, as in %s", address, DefaultListen)
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return fmt.Errorf("--listen %q: the page has the rights of your certificate and no TLS, so only a loopback address is allowed, as in %s; "+
			"from another machine use `ssh -L`", address, DefaultListen)
	}
	return nil
}

// serve serves until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	stopped := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(stopped)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(ending) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(l)
	if !cancel() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
