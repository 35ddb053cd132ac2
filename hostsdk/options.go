package hostsdk

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Limits and defaults of the SDK. Those that [Options] does not set hold for every host.
const (
	// DefaultMaxOutstanding is how many calls a host takes at a time.
	DefaultMaxOutstanding = 64
	// DefaultMaxFrameBytes is the largest review that a host takes: an object and its predecessor of 3 MiB each, the
	// most that an API server stores, and as much again.
	DefaultMaxFrameBytes = 16 << 20
	// DefaultDrainTimeout is how long a host that leaves waits for its handlers.
	DefaultDrainTimeout = 10 * time.Second
	// MaxHooks is how many hooks one host may offer.
	MaxHooks = 1024

	// defaultSilence ends a session without a frame, until a Welcome says otherwise.
	defaultSilence = 5 * time.Second
	// aliveInterval is how long frames may come without one to go before the host says by itself that it lives. A
	// dispatcher gives up a host that is silent for 3 s.
	aliveInterval = 500 * time.Millisecond
	// connectTimeout is how long a dial, and then the Welcome, may take.
	connectTimeout = 10 * time.Second
	// closeTimeout is how long the end of the stream may take once a side has nothing more to say.
	closeTimeout = 2 * time.Second
	// handlerGrace is how long handlers may take to return after their contexts have ended.
	handlerGrace = time.Second
	// probeTimeout is how long a readiness probe of a hook may take.
	probeTimeout = 5 * time.Second
	// defaultVerdictBytes is the largest verdict for a dispatcher that names no limit: the default limit of gRPC.
	defaultVerdictBytes = 4 << 20
	// defaultFrameBytes is the largest review of a session that announced no limit.
	defaultFrameBytes = 4 << 20
	// maxWireBytes is the largest frame of a dispatcher that sends larger reviews in chunks.
	maxWireBytes = 128 << 10
	// maxReviewHooks is how many hooks one review may ask: more than this a dispatcher has not outstanding on a session.
	maxReviewHooks = 1 << 16
	// maxVerdictItems is how many warnings, annotations and causes of a verdict are sent: a dispatcher takes no more.
	maxVerdictItems = 4096
	// maxErrorBytes is the longest text of a failure.
	maxErrorBytes = 1 << 10
	// maxBatch and maxBatchBytes are how many verdicts are put in one frame.
	maxBatch      = 64
	maxBatchBytes = 64 << 10
	// maxEarlyCancels is how many cancellations a session remembers before their reviews, and hooks that they name; the
	// oldest are forgotten.
	maxEarlyCancels = 1024
	// maxProbes is how many probes of hooks run at a time in a session.
	maxProbes = 16
	// maxHookStates is how many states of hooks, by hook and clusters, are remembered of a dispatcher.
	maxHookStates = 4 * MaxHooks
	// maxOutbox is how many frames may wait for the writer of a session before its reader waits too.
	maxOutbox = 1024
	// maxIdle is how many goroutines of a session wait for a handler to run.
	maxIdle = 256
	// maxTargets is how many dispatchers a host holds sessions to; further peers are ignored.
	maxTargets = 64
	// tracingInterval is how often a tracer that makes no spans is asked for one.
	tracingInterval = time.Second
	// resolveInterval is how often the addresses of the dispatchers are resolved anew.
	resolveInterval = 5 * time.Second
	// peerDelay gives a peer's own address, found by name resolution, the time to be dialled first.
	peerDelay = time.Second
	// backoffMin and backoffMax bound the time between two attempts to reach a dispatcher.
	backoffMin, backoffMax = 100 * time.Millisecond, 5 * time.Second
)

// Options describe a host and its dispatchers.
type Options struct {
	// Name of the program, the same for all its replicas, for example "imagepolicy". Required.
	Name string
	// Dispatchers are their addresses, host:port. Every IP address that a host resolves to is a dispatcher of its own,
	// and the host holds a session to each. Required for Run.
	Dispatchers []string
	// TLS is how sessions are secured: [TLSFiles], [TLSFrom], [TLSConfig], or [Plaintext] in tests. Required for Run.
	TLS TLS
	// ServerName is the name that every dispatcher's certificate must carry; empty means the host of its address. A
	// peer that is named by its IP address alone is known by the name of the dispatcher that named it.
	ServerName string
	// Instance names this process among its replicas; empty means the host name and a random suffix.
	Instance string
	// Zone is the failure domain that the process runs in; empty means unknown.
	Zone string
	// Clusters that the host wants to serve; empty means all that it is granted.
	Clusters []string
	// MaxOutstanding is how many calls the host takes at a time, divided over its sessions; 0 means
	// DefaultMaxOutstanding. It bounds the handlers that run at once.
	MaxOutstanding int
	// MaxFrameBytes is the largest review that the host takes; 0 means DefaultMaxFrameBytes.
	MaxFrameBytes int
	// DrainTimeout is how long the calls in flight may take once Run's context has ended; 0 means DefaultDrainTimeout.
	DrainTimeout time.Duration
	// Logger receives messages for the operator of the host; nil means slog.Default.
	Logger *slog.Logger
	// TracerProvider makes the spans of handlers; nil means OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics of calls; nil means OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
	// Dial opens a connection to ip:port or host:port; nil means TCP without a proxy. TLS goes on top of it.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Resolver turns the host of a dispatcher's address into its IP addresses; nil means net.DefaultResolver.
	Resolver Resolver
}

// Resolver looks up host names; *net.Resolver is one. It is called from one goroutine at a time.
type Resolver interface {
	// LookupHost returns the IP addresses of host; an IP address is its own.
	LookupHost(ctx context.Context, host string) (addresses []string, err error)
}

var _ Resolver = (*net.Resolver)(nil)

// defaults checks the options and sets the defaults.
func (o *Options) defaults() error {
	if o.Name == "" {
		return errors.New("hostsdk: Options.Name is empty: name the program, for example \"imagepolicy\"")
	}
	for _, text := range append([]string{o.Name, o.Instance, o.Zone}, o.Clusters...) {
		if valid(text) != text {
			return fmt.Errorf("hostsdk: options: %q is not valid UTF-8", text)
		}
	}
	for _, address := range o.Dispatchers {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("hostsdk: Options.Dispatchers: %w: want host:port", err)
		}
	}
	if err := o.limits(); err != nil {
		return err
	}
	if o.Instance == "" {
		o.Instance = newInstance()
	}
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.TracerProvider = cmp.Or(o.TracerProvider, otel.GetTracerProvider())
	o.MeterProvider = cmp.Or(o.MeterProvider, otel.GetMeterProvider())
	o.Resolver = cmp.Or[Resolver](o.Resolver, net.DefaultResolver)
	return nil
}

func (o *Options) limits() error {
	o.MaxOutstanding = cmp.Or(o.MaxOutstanding, DefaultMaxOutstanding)
	o.MaxFrameBytes = cmp.Or(o.MaxFrameBytes, DefaultMaxFrameBytes)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, DefaultDrainTimeout)
	if o.MaxOutstanding < 0 || o.MaxFrameBytes < 0 || o.DrainTimeout < 0 {
		return errors.New("hostsdk: options: a limit is negative")
	}
	if o.MaxOutstanding > math.MaxInt32 || o.MaxFrameBytes > math.MaxInt32 {
		return errors.New("hostsdk: options: a limit is larger than 2 GiB")
	}
	return nil
}

// newInstance names a process: for a person by its host name, and uniquely by chance.
func newInstance() string {
	suffix := rand.Text()[:8]
	name, err := os.Hostname()
	if err != nil {
		return suffix
	}
	return valid(name) + "-" + suffix
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}
