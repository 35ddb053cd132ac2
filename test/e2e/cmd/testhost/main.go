// Command testhost is a host whose flags set the behaviour of its hooks. The
// end-to-end tests run it as a process of its own, to kill it and to roll it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// program is the program that the flags describe.
type program struct {
	name             string
	dispatchers      []string
	cert, key, ca    string
	readyFile        string
	validate, mutate []string
	initialize       []string
	addresses        string
	calls, hold      string
	seen             string
	delay            time.Duration
	hang             bool
	patch            string
	patchBytes       int
}

func run(ctx context.Context, args []string) error {
	var p program
	if err := p.parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var hooks []hostsdk.Hook
	for _, hook := range p.validate {
		hooks = append(hooks, hostsdk.Validate(hook, p.witness(p.handler(""))))
	}
	for _, hook := range p.mutate {
		hooks = append(hooks, hostsdk.Mutate(hook, p.handler(p.patching())))
	}
	for _, name := range p.initialize {
		hooks = append(hooks, hostsdk.Initialize(name, p.handler(p.patching())))
	}
	seeing := telemetry.New(ctx, telemetry.Options{Logger: log})
	host, err := hostsdk.New(hostsdk.Options{
		Name: p.name, Dispatchers: p.dispatchers, TLS: hostsdk.TLSFiles(p.cert, p.key, p.ca),
		Logger: log, TracerProvider: seeing.TracerProvider, Resolver: p.resolver(),
	}, hooks...)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return host.Run(ctx) })
	g.Go(func() error { return p.sayReady(ctx, host) })
	return errors.Join(g.Wait(), seeing.Shutdown(context.WithoutCancel(ctx)))
}

func (p *program) parse(args []string) error {
	f := flag.NewFlagSet("testhost", flag.ContinueOnError)
	several := func(into *[]string, name, usage string) {
		f.Func(name, usage+"; may be given several times", func(value string) error {
			*into = append(*into, value)
			return nil
		})
	}
	f.StringVar(&p.name, "name", "testhost", "name of the host")
	several(&p.dispatchers, "dispatcher", "host:port of a dispatcher")
	f.StringVar(&p.cert, "cert", "", "certificate")
	f.StringVar(&p.key, "key", "", "its key")
	f.StringVar(&p.ca, "ca", "", "authority of the dispatchers")
	f.StringVar(&p.readyFile, "ready-file", "", "made once all hooks are in rotation")
	several(&p.validate, "validate", "name of a validating hook")
	several(&p.mutate, "mutate", "name of a mutating hook")
	several(&p.initialize, "initialize", "name of an initializer")
	f.StringVar(&p.addresses, "addresses", "", "file of the IP addresses, one per line, of the dispatchers' names")
	f.StringVar(&p.calls, "calls", "", "directory in which a file is made for each call, before anything else")
	f.StringVar(&p.seen, "seen", "", "file to which validating hooks add the name of each object that they let pass, a line each, before the verdict")
	f.StringVar(&p.hold, "hold", "", "file that holds back all verdicts while it exists")
	f.DurationVar(&p.delay, "delay", 0, "time that every verdict takes")
	f.BoolVar(&p.hang, "hang", false, "give no verdict at all")
	f.StringVar(&p.patch, "patch", "", "JSON Patch of the mutating hooks and initializers; without it they allow and no more")
	f.IntVar(&p.patchBytes, "patch-bytes", 0, "size of a value that the patch adds")
	return f.Parse(args)
}

// patching is the patch of the mutating hooks.
func (p *program) patching() string {
	if p.patchBytes == 0 {
		return p.patch
	}
	return `[{"op":"add","path":"/metadata/annotations","value":{"large":"` + strings.Repeat("x", p.patchBytes) + `"}}]`
}

// sayReady makes the ready file.
func (p *program) sayReady(ctx context.Context, host *hostsdk.Host) error {
	select {
	case <-host.Ready():
		return touch(p.readyFile)
	case <-ctx.Done():
		return nil
	}
}

// handler is the handler of a hook.
func (p *program) handler(patch string) hostsdk.Handler {
	return func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		if err := p.called(r); err != nil {
			return nil, err
		}
		if err := p.held(ctx); err != nil {
			return nil, err
		}
		var verdict <-chan time.Time // never comes when nil
		if !p.hang {
			verdict = time.After(p.delay)
		}
		select {
		case <-verdict:
			return hostsdk.Patch([]byte(patch)), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// witness is a handler that adds the names of objects that pass to the file for that. Several processes may write to it.
func (p *program) witness(handler hostsdk.Handler) hostsdk.Handler {
	if p.seen == "" {
		return handler
	}
	return func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		response, err := handler(ctx, r)
		if err != nil {
			return nil, err
		}
		f, err := os.OpenFile(p.seen, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		_, err = fmt.Fprintln(f, r.Name()) // one write, so that lines stay whole
		return response, errors.Join(err, f.Close())
	}
}

// called leaves a trace of a call: a file named after the object.
func (p *program) called(r *hostsdk.Request) error {
	if p.calls == "" {
		return nil
	}
	f, err := os.CreateTemp(p.calls, r.Name()+"-*")
	if err != nil {
		return err
	}
	return f.Close()
}

// held waits until the file that holds verdicts back is gone.
func (p *program) held(ctx context.Context) error {
	const interval = 5 * time.Millisecond
	for p.hold != "" {
		if _, err := os.Stat(p.hold); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// resolver knows the addresses of a file, if there is one.
func (p *program) resolver() hostsdk.Resolver {
	if p.addresses == "" {
		return net.DefaultResolver
	}
	return addressFile(p.addresses)
}

// addressFile is a file of IP addresses, all of one name.
type addressFile string

// LookupHost implements hostsdk.Resolver.
func (f addressFile) LookupHost(context.Context, string) ([]string, error) {
	data, err := os.ReadFile(string(f))
	return strings.Fields(string(data)), err
}

// touch makes a file, unless its name is empty.
func touch(file string) error {
	if file == "" {
		return nil
	}
	return os.WriteFile(file, nil, 0o600)
}
