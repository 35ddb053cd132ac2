package hosttest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// Host is a host that Start and Connect run; *hostsdk.Host is one.
type Host interface {
	// Serve runs one session until the stream ends, or until ctx ends and the session has drained.
	Serve(ctx context.Context, open hostsdk.OpenFunc) error
}

var _ Host = (*hostsdk.Host)(nil)

// Dispatcher is a fake dispatcher with one host, for a test.
type Dispatcher struct {
	*Session
	t testing.TB
}

// Start runs the host until the end of the test, and fails the test if the host does not drain cleanly.
func Start(t testing.TB, host Host) *Dispatcher {
	t.Helper()
	session, stop, err := Connect(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("hosttest: the host did not stop cleanly: %v", err)
		}
	})
	return &Dispatcher{Session: session, t: t}
}

// Review puts a request to one hook and returns its verdict; a failure, which is no verdict, fails the test at once.
func (d *Dispatcher) Review(ctx context.Context, hook string, request *admissionv1.AdmissionRequest) *Verdict {
	d.t.Helper()
	verdict, err := d.Session.Review(ctx, hook, request)
	if err != nil {
		d.t.Fatal(err)
	}
	return verdict
}

// Connect runs the host in memory, outside of a test. stop drains it and waits for it; the end of ctx does not stop it.
func Connect(ctx context.Context, host Host) (session *Session, stop func() error, err error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	peer := Pipe()
	served := make(chan error, 1)
	go func() { // Waited for by stop.
		served <- host.Serve(running, peer.Open)
		peer.hangUp()
	}()
	accepted, err := Accept(peer, nil)
	if err != nil {
		cancel()
		return nil, nil, errors.Join(err, <-served)
	}
	read := make(chan struct{})
	go func() { // Waited for by stop.
		defer close(read)
		_ = accepted.Serve() // Session.Ended has it.
		peer.End(nil)
	}()
	return accepted, func() error {
		cancel()
		<-read
		if err := <-served; err != nil {
			return fmt.Errorf("hosttest: %w", err)
		}
		return nil
	}, nil
}
