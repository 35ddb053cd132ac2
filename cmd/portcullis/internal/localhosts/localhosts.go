// Package localhosts runs hosts beside a command: each is a process of this machine that dials a listener on the loopback interface over mutual TLS, and
// serves hooks over a session, as in a mesh.
package localhosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cases"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
)

const (
	// startTimeout bounds the start of hosts, which may compile themselves.
	startTimeout = 3 * time.Minute
	// readyInterval is the interval at which hooks are looked at until each has a host.
	readyInterval = 20 * time.Millisecond
)

// Hosts are hosts that run. They are safe for concurrent use.
type Hosts struct {
	router    *session.Router
	server    *session.Server
	grpc      *grpc.Server
	processes []*process
	etcd      *embedded.Server    // nil without initializers
	stager    *initializer.Stager // nil without initializers
	dir       string              // of certificates, and of the etcd
	stop      context.CancelFunc  // of the background
	running   sync.WaitGroup
}

var _ cases.Hosts = (*Hosts)(nil)

// Start starts hosts, and returns when each hook of a configuration that is served over streams has one. Commands run in dir, and get the flags
// --dispatchers, --cert, --key and --ca behind their own arguments.
func Start(ctx context.Context, snapshot *match.Snapshot, dir string, commands []cases.Host) (_ cases.Hosts, err error) {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &Hosts{stop: stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if h.dir, err = os.MkdirTemp("", "portcullis-hosts-"); err != nil {
		return nil, err
	}
	authority, err := certs.NewAuthority("portcullis test", 0)
	if err != nil {
		return nil, err
	}
	address, err := h.listen(background, authority, snapshot)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(snapshot.Hooks(), (*match.Hook).Initializes) {
		if err := h.stage(background); err != nil {
			return nil, err
		}
	}
	for i := range commands {
		c := &commands[i]
		name, err := identityOf(snapshot, c)
		if err != nil {
			return nil, err
		}
		files := filepath.Join(h.dir, fmt.Sprint("host-", i))
		if err := certify(authority, name, files); err != nil {
			return nil, err
		}
		p := newProcess(c.Command.String(), c.Command.Arguments(
			"--dispatchers", address, "--cert", files+".crt", "--key", files+".key", "--ca", h.path("ca.crt")), dir)
		if err := p.start(); err != nil {
			return nil, err
		}
		h.processes = append(h.processes, p)
	}
	return h, h.awaitReady(ctx)
}

func (h *Hosts) path(name string) string { return filepath.Join(h.dir, name) }

// listen serves hosts on a free port of the loopback interface, until the background ends.
func (h *Hosts) listen(background context.Context, authority *certs.Authority, snapshot *match.Snapshot) (address string, err error) {
	if h.router, err = session.New(session.Options{}); err != nil {
		return "", err //nolint:wrapcheck // without metrics there is none
	}
	h.router.Update(snapshot)
	secure, err := serverTLS(authority)
	if err != nil {
		return "", err
	}
	if err := authority.CA().WriteCert(h.path("ca.crt")); err != nil {
		return "", err
	}
	listener, err := new(net.ListenConfig).Listen(background, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	h.server = session.NewServer(h.router, channelOf)
	h.grpc = grpc.NewServer(append(session.ServerOptions(), grpc.Creds(credentials.NewTLS(secure)))...)
	hostv1.RegisterHostServiceServer(h.grpc, h.server)
	h.running.Go(func() { _ = h.router.Run(background) }) // it ends with its context alone
	h.running.Go(func() { _ = h.grpc.Serve(listener) })   // it ends with Stop; hosts see any other end
	return listener.Addr().String(), nil
}

// channelOf is the identity at the other end of a stream.
func channelOf(ctx context.Context) identity.Channel {
	p, _ := peer.FromContext(ctx)
	info, _ := p.AuthInfo.(credentials.TLSInfo)
	who, _ := identity.FromTLS(&info.State)
	return who
}

// identityOf is the identity in the certificate of a host: by default the identity that all HookRoutes name.
func identityOf(snapshot *match.Snapshot, host *cases.Host) (string, error) {
	if host.Identity != "" {
		return host.Identity, nil
	}
	var names []string
	for _, hook := range snapshot.Hooks() {
		if hook.Route.Stream {
			names = append(names, hook.Route.Hosts...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) != 1 {
		return "", fmt.Errorf("the HookRoutes name %d identities of hosts (%s): say which one %s has, by \"identity:\" beside its command",
			len(names), strings.Join(names, ", "), host.Command.String())
	}
	return names[0], nil
}

// awaitReady returns when each hook has a host.
func (h *Hosts) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for {
		missing := h.router.Ready()
		if len(missing) == 0 {
			return nil
		}
		if err := h.ended(); err != nil {
			return fmt.Errorf("%w\n%s", err, h.Log())
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("no host serves the hooks %s: %w\n%s", strings.Join(missing, ", "), ctx.Err(), h.Log())
		}
	}
}

// ended is an error if a host has ended.
func (h *Hosts) ended() error {
	for _, p := range h.processes {
		select {
		case <-p.ended:
			return fmt.Errorf("the host %s has ended: %s", p.name, p.status())
		default:
		}
	}
	return nil
}

// Start implements [review.Backend]. Calls fail at once when a host has ended.
func (h *Hosts) Start(ctx context.Context, set *review.CallSet, done func(int, review.Result)) func(int) {
	if err := h.ended(); err != nil {
		for i := range set.Calls {
			done(i, review.Fail(review.FailureUnavailable, "%v", err))
		}
		return func(int) {}
	}
	return h.router.Start(ctx, set, done)
}

// Log implements [cases.Hosts].
func (h *Hosts) Log() string {
	var text strings.Builder
	for _, p := range h.processes {
		if said := strings.TrimSpace(p.output.String()); said != "" {
			fmt.Fprintf(&text, "%s:\n%s\n", p.name, said)
		}
	}
	return strings.TrimSpace(text.String())
}

// Close ends the hosts, and all processes that they have started.
func (h *Hosts) Close() error {
	var ending sync.WaitGroup
	for _, p := range h.processes {
		ending.Go(p.end)
	}
	ending.Wait()
	if h.grpc != nil {
		h.grpc.Stop()
		h.server.Wait()
	}
	if h.stager != nil {
		h.stager.Close()
	}
	h.stop()
	h.running.Wait()
	if h.etcd != nil {
		h.etcd.Close()
	}
	return os.RemoveAll(h.dir)
}
