// Command testhost is a host whose hooks do what its flags say. The
// end-to-end tests run it as a process of its own, to kill it and to roll it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/telemetry"
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

// program is what the flags say.
type program struct {
	name             string
	dispatchers      []string
	cert, key, ca    string
	readyFile        string
	validate, mutate []string
	handling         string
	delay            time.Duration
	hang             bool
	patch            string
}

func run(ctx context.Context, args []string) error {
	var p program
	if err := p.parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	seeing, err := telemetry.New(ctx, telemetry.Options{Logger: log})
	if err != nil {
		return err
	}
	host, err := hostsdk.New(hostsdk.Options{
		Name: p.name, Dispatchers: p.dispatchers, TLS: hostsdk.TLSFiles(p.cert, p.key, p.ca),
		Logger: log, TracerProvider: seeing.TracerProvider,
	})
	if err != nil {
		return err
	}
	for _, hook := range p.validate {
		host.Validate(hook, p.handle)
	}
	for _, hook := range p.mutate {
		host.Mutate(hook, p.handle)
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
	f.StringVar(&p.handling, "handling", "", "file that is made when a hook is called")
	f.DurationVar(&p.delay, "delay", 0, "time that every verdict takes")
	f.BoolVar(&p.hang, "hang", false, "give no verdict at all")
	f.StringVar(&p.patch, "patch", "", "JSON Patch of every verdict; without it a verdict allows and no more")
	return f.Parse(args)
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

// handle is the handler of every hook.
func (p *program) handle(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
	if err := touch(p.handling); err != nil {
		return nil, err
	}
	var verdict <-chan time.Time // never comes when nil
	if !p.hang {
		verdict = time.After(p.delay)
	}
	select {
	case <-verdict:
		return hostsdk.Patch([]byte(p.patch)), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// touch makes a file, unless its name is empty.
func touch(file string) error {
	if file == "" {
		return nil
	}
	return os.WriteFile(file, nil, 0o600)
}
