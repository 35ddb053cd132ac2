package hostsdk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
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

// Host serves hooks. Register them with Validate, Mutate and Initialize, then call Run once. Ready and Status may be called at any
// time, from any goroutine.
type Host struct {
	// Set once, by New.
	options Options
	budget  *budget
	caller  *caller
	board   *board

	mu       sync.Mutex
	started  bool // hooks are fixed
	hooks    map[hookID]*hook
	offers   []*hostv1.HookOffer // in the order of registration
	problems []error             // with the registrations, returned by Run
}

// New returns a host without hooks. It connects to nothing yet.
func New(o Options) (*Host, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	caller, err := newCaller(&o)
	if err != nil {
		return nil, err
	}
	return &Host{
		options: o,
		budget:  newBudget(o.MaxOutstanding),
		caller:  caller,
		board:   newBoard(o.Logger),
		hooks:   map[hookID]*hook{},
	}, nil
}

// HookOption says more about one hook.
type HookOption interface{ apply(h *hook) }

type hookOption func(h *hook)

func (f hookOption) apply(h *hook) { f(h) }

// Speculate agrees to calls whose verdicts may be thrown away: the dispatcher may then ask a mutating hook before the
// hooks in front of it have answered. Only for handlers without side effects.
func Speculate() HookOption { return hookOption(func(h *hook) { h.speculate = true }) }

// ReadyWhen sets a probe: a new hook gets its first call once the probe has returned nil, for example when caches are
// filled. The probe has 5 s. Without it a hook is ready as soon as the host is connected.
func ReadyWhen(probe func(ctx context.Context) error) HookOption {
	return hookOption(func(h *hook) { h.probe = probe })
}

// Validate registers the handler of a validating hook, by the name that the hook has in its configuration. A fault
// of the registration is returned by Run.
func (h *Host) Validate(name string, handler Handler, options ...HookOption) {
	h.register(hookID{name, admissionv1.Stage_STAGE_VALIDATE}, handler, options)
}

// Mutate registers the handler of a mutating hook, by the name that the hook has in its configuration. A fault
// of the registration is returned by Run.
func (h *Host) Mutate(name string, handler Handler, options ...HookOption) {
	h.register(hookID{name, admissionv1.Stage_STAGE_MUTATE}, handler, options)
}

// Initialize registers the handler of an initializer, by the name that it has in its InitializerConfiguration. The handler is called as a mutating
// hook's handler, for objects to be created only, while the object is staged: a patch initializes the object, no patch leaves it as it is, and a
// denial refuses it. Each object is handled by one replica; another takes it over if that one is lost. A fault of the registration is returned by
// Run.
func (h *Host) Initialize(name string, handler Handler, options ...HookOption) {
	h.register(hookID{name, admissionv1.Stage_STAGE_INITIALIZE}, handler, options)
}

func (h *Host) register(id hookID, handler Handler, options []HookOption) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refusesLocked(id, handler); err != nil {
		h.problems = append(h.problems, err)
		return
	}
	registered := &hook{id: id, span: "handle " + id.name, handler: handler, attributes: newHookAttributes(id)}
	for _, o := range options {
		o.apply(registered)
	}
	h.hooks[id] = registered
	h.offers = append(h.offers, &hostv1.HookOffer{Name: id.name, Stage: id.stage, Speculate: registered.speculate})
}

func (h *Host) refusesLocked(id hookID, handler Handler) error {
	switch {
	case h.started:
		return fmt.Errorf("hostsdk: hook %q was registered after the host had started", id.name)
	case id.name == "" || valid(id.name) != id.name:
		return fmt.Errorf("hostsdk: hook name %q is empty or not valid UTF-8", id.name)
	case handler == nil:
		return fmt.Errorf("hostsdk: hook %q has no handler", id.name)
	case h.hooks[id] != nil:
		return fmt.Errorf("hostsdk: hook %q was registered twice to %s", id.name, stageOf(id.stage))
	case len(h.hooks) >= MaxHooks:
		return fmt.Errorf("hostsdk: hook %q is one more than the %d that a host may offer", id.name, MaxHooks)
	default:
		return nil
	}
}

// start fixes the hooks.
func (h *Host) start() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := errors.Join(h.problems...); err != nil {
		return err
	}
	if len(h.hooks) == 0 {
		return errors.New("hostsdk: the host has no hooks: register some with Validate, Mutate or Initialize")
	}
	h.started = true
	h.board.expect(h.offers)
	return nil
}

// Run serves the hooks on a session to every dispatcher until ctx ends. Then it announces that it drains,
// finishes the calls in flight within Options.DrainTimeout, and returns nil. Lost and refused sessions are logged and dialled again for as
// long as ctx lasts. An error means that the host cannot start, or that handlers were cut off.
func (h *Host) Run(ctx context.Context) error {
	if err := h.start(); err != nil {
		return err
	}
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
	if err := h.start(); err != nil {
		return err
	}
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
