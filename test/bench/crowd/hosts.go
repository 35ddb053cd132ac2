package crowd

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/test/bench/bare"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

const (
	// dialing is how many hosts connect at a time.
	dialing = 16
	// partLost is the part of the sessions that may be lost, or fail to connect, before the measurement has failed.
	partLost = 10
	// redialDelay is how long a host waits before it connects again.
	redialDelay = 200 * time.Millisecond
)

// StopHosts ends hosts, and says how many sessions were lost before.
type StopHosts func() (lost int, err error)

// HostOptions are the settings of the process of the hosts.
type HostOptions struct {
	// Address is the dispatcher's, Keys how it is reached.
	Address string     `json:"address"`
	Keys    pki.Client `json:"keys"`
	// Sessions is how many hosts there are. Host i serves hook i, counted in a circle of Hooks.
	Sessions int `json:"sessions"`
	Hooks    int `json:"hooks"`
}

// ServeHosts is the program of the hosts: options come in JSON, and two lines go out: one when all are in rotation, and at
// the end how many sessions were lost. They are there until in ends.
func ServeHosts(ctx context.Context, in io.Reader, out io.Writer) error {
	var o HostOptions
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("crowd: %w", err)
	}
	stop, err := RunHosts(ctx, o)
	if err != nil {
		return err
	}
	said := json.NewEncoder(out)
	err = said.Encode(0)
	if err == nil {
		_, _ = io.Copy(io.Discard, in)
	}
	lost, err2 := stop()
	return errors.Join(err, err2, said.Encode(lost))
}

// hosts are the hosts of one process.
type hosts struct {
	options HostOptions
	tls     *tls.Config
	running errgroup.Group
	places  chan struct{} // of those that connect
	ready   chan struct{}
	failed  chan error // has room for one
	lost    atomic.Int64
}

// RunHosts runs the hosts in this process, and returns once all are in rotation. One whose session is lost connects again.
func RunHosts(ctx context.Context, o HostOptions) (stop StopHosts, err error) {
	config, err := o.Keys.TLS()
	if err != nil {
		return nil, err
	}
	h := &hosts{
		options: o, tls: config, places: make(chan struct{}, dialing), ready: make(chan struct{}, o.Sessions), failed: make(chan error, 1),
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop = func() (int, error) {
		cancel()
		return int(h.lost.Load()), h.running.Wait()
	}
	h.running.Go(func() error { return h.connect(life) })
	for range o.Sessions {
		select {
		case <-h.ready:
		case err = <-h.failed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			_, err2 := stop()
			return nil, errors.Join(err, err2)
		}
	}
	return stop, nil
}

// connect starts all hosts, some at a time.
func (h *hosts) connect(life context.Context) error {
	for i := range h.options.Sessions {
		select {
		case h.places <- struct{}{}:
			h.running.Go(func() error { return h.host(life, i) })
		case <-life.Done():
			return nil
		}
	}
	return nil
}

// host is one host, until life ends.
func (h *hosts) host(life context.Context, number int) error {
	connected := false
	o := bare.Options{
		Address: h.options.Address, TLS: h.tls, Instance: fmt.Sprintf("host-%05d", number),
		Hooks: []string{scenario.Hook(number % h.options.Hooks)}, Stage: admissionv1.Stage_STAGE_VALIDATE,
	}
	o.Ready = func() {
		if !connected {
			<-h.places
			h.ready <- struct{}{}
		}
		connected = true
	}
	for {
		err := bare.Run(life, o)
		if life.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for
		}
		if h.lost.Add(1) > int64(h.options.Sessions/partLost) {
			return h.fail(fmt.Errorf("too many sessions were lost, the last one that of %s: %w", o.Instance, cmp.Or(err, io.EOF)))
		}
		select {
		case <-time.After(redialDelay):
		case <-life.Done():
			return nil
		}
	}
}

// fail says that the measurement has failed, to who waits for the hosts.
func (h *hosts) fail(err error) error {
	select {
	case h.failed <- err:
	default:
	}
	return err
}

// Elsewhere runs the hosts in another process: a program that calls ServeHosts.
func Elsewhere(program string, args ...string) func(ctx context.Context, o HostOptions) (StopHosts, error) {
	return func(ctx context.Context, o HostOptions) (StopHosts, error) {
		said, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("crowd: %w", err)
		}
		p := &process{command: exec.CommandContext(ctx, program, args...)}
		if err := p.start(); err != nil {
			return nil, fmt.Errorf("crowd: %w", err)
		}
		_, err = p.in.Write(said)
		if _, err2 := p.number(); err != nil || err2 != nil {
			_, err3 := p.stop()
			return nil, errors.Join(err, err2, err3)
		}
		return p.stop, nil
	}
}

// process is the process of the hosts.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	errs    tail
}

func (p *process) start() error {
	p.command.Stderr = &p.errs
	in, err := p.command.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return err
	}
	p.in, p.out = in, json.NewDecoder(out)
	return p.command.Start()
}

// number is the next line.
func (p *process) number() (int, error) {
	var n int
	err := p.out.Decode(&n)
	return n, err
}

// stop ends the process.
func (p *process) stop() (lost int, err error) {
	p.in.Close()
	lost, _ = p.number() // a process that failed says so otherwise
	if err := p.command.Wait(); err != nil {
		return lost, fmt.Errorf("crowd: the process of the hosts: %w: %s", err, p.errs.String())
	}
	return lost, nil
}

// tail keeps the end of a process's output.
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

// String returns the kept output.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.said)
}
