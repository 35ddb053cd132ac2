package crowd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/portcullis-mesh/portcullis/bench/bare"
	"github.com/portcullis-mesh/portcullis/bench/pki"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// dialing is how many hosts connect at a time.
const dialing = 64

// HostOptions are what the process of the hosts is told.
type HostOptions struct {
	// Address is the dispatcher's, Keys how it is reached.
	Address string
	Keys    pki.Client
	// Sessions is how many hosts there are. Host i serves hook i, counted in a circle of Hooks.
	Sessions, Hooks int
}

// ServeHosts is the program of the hosts: options come in JSON, and a line goes out when all are in rotation. They are
// there until in ends.
func ServeHosts(ctx context.Context, in io.Reader, out io.Writer) error {
	var o HostOptions
	commands := json.NewDecoder(in)
	if err := commands.Decode(&o); err != nil {
		return fmt.Errorf("crowd: %w", err)
	}
	stop, err := RunHosts(ctx, o)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, `"ready"`); err != nil {
		return errors.Join(err, stop())
	}
	_, _ = io.Copy(io.Discard, in)
	return stop()
}

// RunHosts runs the hosts in this process, and returns once all are in rotation.
func RunHosts(ctx context.Context, o HostOptions) (stop func() error, err error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	hosts, life := errgroup.WithContext(life)
	stop = func() error {
		cancel()
		return hosts.Wait()
	}
	config, err := o.Keys.TLS()
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	places := make(chan struct{}, dialing) // of those that connect
	ready := make(chan struct{}, o.Sessions)
	for i := range o.Sessions {
		host := bare.Options{
			Address: o.Address, TLS: config, Instance: fmt.Sprintf("host-%05d", i),
			Hooks: []string{scenario.Hook(i % o.Hooks)}, Stage: admissionv1.Stage_STAGE_VALIDATE,
			Ready: func() {
				<-places
				ready <- struct{}{}
			},
		}
		select {
		case places <- struct{}{}:
		case <-life.Done():
			return nil, errors.Join(ctx.Err(), stop())
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		}
		hosts.Go(func() error {
			if err := bare.Run(life, host); err != nil || life.Err() != nil {
				return err
			}
			return fmt.Errorf("the dispatcher ended the session of %s", host.Instance)
		})
	}
	for range o.Sessions {
		select {
		case <-ready:
		case <-life.Done():
			return nil, errors.Join(ctx.Err(), stop())
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		}
	}
	return stop, nil
}

// Elsewhere runs the hosts in another process: a program that calls ServeHosts.
func Elsewhere(program string, args ...string) func(ctx context.Context, o HostOptions) (func() error, error) {
	return func(ctx context.Context, o HostOptions) (func() error, error) {
		said, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("crowd: %w", err)
		}
		command := exec.CommandContext(ctx, program, args...)
		var errs tail
		command.Stderr = &errs
		in, err := command.StdinPipe()
		if err != nil {
			return nil, fmt.Errorf("crowd: %w", err)
		}
		out, err := command.StdoutPipe()
		if err != nil {
			return nil, fmt.Errorf("crowd: %w", err)
		}
		if err := command.Start(); err != nil {
			return nil, fmt.Errorf("crowd: %w", err)
		}
		stop := sync.OnceValue(func() error {
			in.Close()
			if err := command.Wait(); err != nil {
				return fmt.Errorf("crowd: the process of the hosts: %w: %s", err, errs.String())
			}
			return nil
		})
		if _, err := in.Write(said); err != nil {
			return nil, errors.Join(err, stop())
		}
		var line string
		if err := json.NewDecoder(out).Decode(&line); err != nil {
			return nil, errors.Join(err, stop())
		}
		return stop, nil
	}
}

// tail keeps the end of what a process said.
type tail struct {
	mu   sync.Mutex
	said []byte
}

// maxSaid is how much is kept, in bytes.
const maxSaid = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, p...)
	t.said = t.said[max(0, len(t.said)-maxSaid):]
	return len(p), nil
}

// String is what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.said)
}
