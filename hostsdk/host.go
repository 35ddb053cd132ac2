package hostsdk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

const (
	sdkName    = "portcullis-go"
	sdkVersion = "0.1.0"
)

const (
	// capabilityBatches: a host takes several reviews in one frame, a dispatcher several verdicts.
	capabilityBatches = "batches"
	// capabilityChunks: a host takes large reviews in parts, so that they do not delay the frames behind them.
	capabilityChunks = "chunks"
)

// Host serves hooks. All methods may be called from any goroutine; call Run once.
type Host struct {
	// Set once, by New.
	options Options
	budget  *budget
	caller  *caller
	board   *board
	hooks   map[hookID]*hook
	offers  []*hostv1.HookOffer // in the order of the hooks
}

// New returns a host of the hooks, or an error that names all hooks at fault. It connects to nothing yet.
func New(o Options, hooks ...Hook) (*Host, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	caller, err := newCaller(&o)
	if err != nil {
		return nil, err
	}
	h := &Host{options: o, budget: newBudget(o.MaxOutstanding), caller: caller, hooks: map[hookID]*hook{}}
	if err := h.register(hooks); err != nil {
		return nil, err
	}
	h.board = newBoard(o.Logger, h.offers)
	return h, nil
}

func (h *Host) register(hooks []Hook) error {
	switch n := len(hooks); {
	case n == 0:
		return errors.New("hostsdk: the host has no hooks: give New some that Validate, Mutate or Initialize make")
	case n > MaxHooks:
		return fmt.Errorf("hostsdk: the host has %d hooks: it may offer %d", n, MaxHooks)
	}
	var faults []error
	for _, x := range hooks {
		if err := x.check(); err != nil {
			faults = append(faults, err)
			continue
		}
		if h.hooks[x.id] != nil {
			faults = append(faults, fmt.Errorf("hostsdk: the host has hook %q twice to %s", x.id.name, stageOf(x.id.stage)))
			continue
		}
		registered := x.registered()
		h.hooks[x.id] = registered
		h.offers = append(h.offers, &hostv1.HookOffer{Name: x.id.name, Stage: x.id.stage, Speculate: registered.speculate})
	}
	return errors.Join(faults...)
}

// Run serves the hooks on a session to every dispatcher until ctx ends. Then it announces that it drains,
// finishes the calls in flight within Options.DrainTimeout, and returns nil. Lost and refused sessions are logged and dialled again for as
// long as ctx lasts. An error means that the host cannot start, or that handlers were cut off.
func (h *Host) Run(ctx context.Context) error {
	if len(h.options.Dispatchers) == 0 {
		return errors.New("hostsdk: Options.Dispatchers is empty: name the dispatchers, host:port")
	}
	if h.options.TLS.credentials == nil {
		return errors.New("hostsdk: Options.TLS is not set: use TLSFiles, or Plaintext in tests")
	}
	// A fault at the start is returned at once; a later one may be corrected while the host runs.
	if _, err := h.options.TLS.credentials(h.options.ServerName); err != nil {
		return err
	}
	manager := newConnManager(h)
	return waitForHandlers(&manager.handlers, manager.serveAll(ctx))
}

// Serve serves the hooks on one session, over a stream that open opens, until the stream ends or, when ctx ends, the
// session has drained. It is for transports other than gRPC, and for tests; Run does all that a host in production needs.
func (h *Host) Serve(ctx context.Context, open OpenFunc) error {
	var handlers sync.WaitGroup
	return waitForHandlers(&handlers, h.newSession(h.board, &handlers).serveStream(ctx, open))
}

// SetMaxOutstanding changes how many calls the host takes at a time, from any goroutine, also before Run: for a host that
// learns while it runs how much can be done at once. More than Options.MaxOutstanding counts as that. 0 pauses the host: it
// gets no calls, and does not count as a host of its hooks, while its sessions last. Calls that dispatchers have sent before
// they learn of a lower number are taken.
func (h *Host) SetMaxOutstanding(n int) { h.budget.resize(n) }

// Ready is closed once every hook is in rotation with at least one dispatcher. A rollout whose Pods have it as their
// readiness check does not replace good replicas by replicas that the mesh does not ask.
func (h *Host) Ready() <-chan struct{} { return h.board.ready }

// Status is how the host stands with its dispatchers now.
func (h *Host) Status() Status { return h.board.status() }

func (h *Host) newSession(l listener, handlers *sync.WaitGroup) *session {
	o := &h.options
	return &session{
		hooks: h.hooks,
		hello: &hostv1.Hello{
			ProtocolMin: protocolVersion, ProtocolMax: protocolVersion,
			Host: o.Name, Instance: o.Instance, Zone: o.Zone, Clusters: o.Clusters,
			Sdk: sdkName, SdkVersion: sdkVersion,
			Hooks:         h.offers,
			MaxFrameBytes: uint32(o.MaxFrameBytes),
			Capabilities:  []string{capabilityBatches, capabilityChunks},
		},
		drain:     o.DrainTimeout,
		caller:    h.caller,
		budget:    h.budget,
		logger:    o.Logger,
		listener:  l,
		handlers:  handlers,
		pool:      newWorkerPool(handlers),
		forWriter: make(chan struct{}, 1),
		forReader: make(chan struct{}, 1),
		forTimer:  make(chan struct{}, 1),
	}
}

// waitForHandlers waits for handlers whose contexts have ended, and returns err. It joins an error if handlers still run after
// handlerGrace.
func waitForHandlers(handlers *sync.WaitGroup, err error) error {
	done := make(chan struct{})
	go func() { // Ends with the last handler.
		defer close(done)
		handlers.Wait()
	}()
	timer := time.NewTimer(handlerGrace)
	defer timer.Stop()
	select {
	case <-done:
		return err
	case <-timer.C:
		return errors.Join(err, errors.New("hostsdk: handlers did not return although their contexts had ended"))
	}
}
