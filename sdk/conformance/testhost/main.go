// Testhost is the test host of hostsdk for the conformance suite: a host whose handlers follow the objects of reviews.
// sdk/conformance/README.md has its contract.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/sdk/conformance"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("want one argument: the file with the settings")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var s conformance.Settings
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	ctx, drain := context.WithCancel(ctx)
	defer drain()
	p := newProgram(&s, out)
	host, err := p.host(&s)
	if err != nil {
		return err
	}
	go p.obey(in, drain) // Ends with the input, and the process with it.
	var ready sync.WaitGroup
	ready.Go(func() { p.sayReady(ctx, host) })
	err = host.Run(ctx)
	drain()
	ready.Wait()
	p.ended(err)
	return err
}

// program is the state that the control channel and the handlers share. Safe for concurrent use.
type program struct {
	printing sync.Mutex
	out      *json.Encoder

	mu    sync.Mutex
	holds map[string]chan struct{} // closed once released
	ready map[string]bool          // by the hooks that are unready at first
}

func newProgram(s *conformance.Settings, out io.Writer) *program {
	p := &program{out: json.NewEncoder(out), holds: map[string]chan struct{}{}, ready: map[string]bool{}}
	for _, hook := range s.Unready {
		p.ready[hook] = false
	}
	return p
}

func (p *program) host(s *conformance.Settings) (*hostsdk.Host, error) {
	tls := hostsdk.Plaintext()
	if s.TLS != nil {
		tls = hostsdk.TLSFiles(s.TLS.Cert, s.TLS.Key, s.TLS.CA)
	}
	var hooks []hostsdk.Hook
	for _, hook := range s.Validate {
		hooks = append(hooks, hostsdk.Validate(hook, p.handler(hook), p.options(s, hook)...))
	}
	for _, hook := range s.Mutate {
		hooks = append(hooks, hostsdk.Mutate(hook, p.handler(hook), p.options(s, hook)...))
	}
	for _, hook := range s.Initialize {
		hooks = append(hooks, hostsdk.Initialize(hook, p.initializer(hook), p.options(s, hook)...))
	}
	return hostsdk.New(hostsdk.Options{
		Name: s.Name, Instance: s.Instance, Zone: s.Zone, Clusters: s.Clusters, Dispatchers: s.Dispatchers, ServerName: s.ServerName, TLS: tls,
		MaxOutstanding: s.MaxOutstanding, MaxFrameBytes: s.MaxFrameBytes, DrainTimeout: time.Duration(s.DrainTimeoutMS) * time.Millisecond,
		Logger:         slog.New(slog.NewTextHandler(os.Stderr, nil)),
		TracerProvider: sdktrace.NewTracerProvider(), // Real spans, which are exported nowhere.
	}, hooks...)
}

func (p *program) options(s *conformance.Settings, hook string) (options []hostsdk.HookOption) {
	for _, name := range s.Speculate {
		if name == hook {
			options = append(options, hostsdk.Speculate())
		}
	}
	if _, unready := p.ready[hook]; unready {
		options = append(options, hostsdk.ReadyWhen(func(context.Context) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.ready[hook] {
				return nil
			}
			return hostsdk.NewError("not ready", nil)
		}))
	}
	return options
}

// command is a line of the input.
type command struct {
	Do   string `json:"do"`
	Name string `json:"name"`
	Hook string `json:"hook"`
}

// obey carries out the commands of the input. The end of the input ends the process.
func (p *program) obey(in io.Reader, drain func()) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", lines.Text(), err)
			continue
		}
		switch c.Do {
		case "release":
			p.release(c.Name)
		case "ready":
			p.mu.Lock()
			p.ready[c.Hook] = true
			p.mu.Unlock()
		case "drain":
			drain()
		default:
			fmt.Fprintf(os.Stderr, "unknown command %q\n", c.Do)
		}
	}
	os.Exit(1)
}

// held is closed once the name is released.
func (p *program) held(name string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds[name] == nil {
		p.holds[name] = make(chan struct{})
	}
	return p.holds[name]
}

func (p *program) release(name string) {
	held := p.held(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-held:
	default:
		close(held)
	}
}

func (p *program) sayReady(ctx context.Context, host *hostsdk.Host) {
	select {
	case <-host.Ready():
		p.say(&conformance.Event{Event: "ready"})
	case <-ctx.Done():
	}
}

func (p *program) ended(err error) {
	e := conformance.Event{Event: "ended"}
	if err != nil {
		e.Error = err.Error()
	}
	p.say(&e)
}

// say prints an event as one line.
func (p *program) say(e *conformance.Event) {
	p.printing.Lock()
	defer p.printing.Unlock()
	if err := p.out.Encode(e); err != nil {
		fmt.Fprintln(os.Stderr, err) // The suite has gone.
	}
}
