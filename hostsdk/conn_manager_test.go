package hostsdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}`

// mesh is a network in memory: dispatchers at addresses, and names for them.
type mesh struct {
	t *testing.T

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	names     map[string][]string
	dials     []string
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	return &mesh{t: t, listeners: map[string]*bufconn.Listener{}, names: map[string][]string{}}
}

// start runs a dispatcher at an address.
func (m *mesh) start(address string, welcome *hostv1.Welcome) *hosttest.Listener {
	m.t.Helper()
	listener := bufconn.Listen(1 << 20)
	m.mu.Lock()
	m.listeners[address] = listener
	m.mu.Unlock()
	return hosttest.Listen(m.t, hosttest.ListenOptions{Welcome: welcome, Listener: listener})
}

// name lets a host name stand for IP addresses.
func (m *mesh) name(host string, ips ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[host] = ips
}

// LookupHost implements [hostsdk.Resolver].
func (m *mesh) LookupHost(_ context.Context, host string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	if ips := m.names[host]; ips != nil {
		return ips, nil
	}
	return nil, errors.New("no such host")
}

func (m *mesh) dial(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	listener := m.listeners[address]
	m.dials = append(m.dials, address)
	m.mu.Unlock()
	if listener == nil {
		return nil, errors.New("connection refused")
	}
	return listener.DialContext(ctx)
}

// dialled is how often an address was dialled.
func (m *mesh) dialled(address string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, a := range m.dials {
		if a == address {
			n++
		}
	}
	return n
}

// run runs a host with the hook "allow", and returns the function that stops it.
func (m *mesh) run(o hostsdk.Options) (*hostsdk.Host, func() error) {
	m.t.Helper()
	host := m.host(o, hostsdk.Validate("allow", allow))
	return host, m.launch(host)
}

// host makes a host in this network.
func (m *mesh) host(o hostsdk.Options, hooks ...hostsdk.Hook) *hostsdk.Host {
	m.t.Helper()
	o.Name, o.Instance, o.TLS = "imagepolicy", "imagepolicy-1", hostsdk.Plaintext()
	o.Dial, o.Resolver = m.dial, m
	if o.Logger == nil {
		o.Logger = quiet()
	}
	host, err := hostsdk.New(o, hooks...)
	if err != nil {
		m.t.Fatal(err)
	}
	return host
}

// launch runs a host until the end of the test, and returns a function that stops it sooner.
func (m *mesh) launch(host *hostsdk.Host) func() error {
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error, 1)
	go func() { done <- host.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	m.t.Cleanup(func() {
		if err := stop(); err != nil {
			m.t.Errorf("Run: %v", err)
		}
	})
	return stop
}

// accept waits for a session.
func accept(t *testing.T, l *hosttest.Listener) *hosttest.Session {
	t.Helper()
	s, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// noSession fails when a host has connected.
func noSession(t *testing.T, l *hosttest.Listener) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if s, err := l.Accept(ctx); err == nil {
		t.Errorf("a second session of %s", s.Hello().GetInstance())
	}
}

// works asks the hook on a session.
func works(t *testing.T, s *hosttest.Session) {
	t.Helper()
	verdict, err := s.Ask(t.Context(), "allow", hosttest.Create(pod))
	if err != nil || !verdict.GetResponse().GetAllowed() {
		t.Errorf("verdict %v, %v", verdict, err)
	}
}

func dispatcher(id string, peers ...*hostv1.Peer) *hostv1.Welcome {
	return &hostv1.Welcome{DispatcherId: id, Peers: peers}
}

func peer(id string, addresses ...string) *hostv1.Peer {
	return &hostv1.Peer{DispatcherId: id, Addresses: addresses}
}

func TestEveryAddressOfANameIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.name("mesh", "10.0.0.1", "10.0.0.2")
		one, two := m.start("10.0.0.1:8444", dispatcher("d1")), m.start("10.0.0.2:8444", dispatcher("d2"))
		host, stop := m.run(hostsdk.Options{Dispatchers: []string{"mesh:8444"}})
		works(t, accept(t, one))
		works(t, accept(t, two))
		<-host.Ready()

		// A third one appears in the name, later.
		three := m.start("10.0.0.3:8444", dispatcher("d3"))
		m.name("mesh", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		works(t, accept(t, three))
		if got := len(host.Status().Sessions); got != 3 {
			t.Errorf("%d sessions, want 3", got)
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestTheBudgetIsDividedOverSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.name("mesh", "10.0.0.1")
		one, two := m.start("10.0.0.1:8444", dispatcher("d1")), m.start("10.0.0.2:8444", dispatcher("d2"))
		m.run(hostsdk.Options{Dispatchers: []string{"mesh:8444"}, MaxOutstanding: 10})
		first := accept(t, one)
		wantCredit(t, first, 10)
		m.name("mesh", "10.0.0.1", "10.0.0.2")
		second := accept(t, two)
		wantCredit(t, first, 5)
		wantCredit(t, second, 5)
		drainDispatcher(t, second, time.Minute)
		wantCredit(t, first, 10)
	})
}

func TestTheBudgetMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.name("mesh", "10.0.0.1", "10.0.0.2")
		one, two := m.start("10.0.0.1:8444", dispatcher("d1")), m.start("10.0.0.2:8444", dispatcher("d2"))
		host, _ := m.run(hostsdk.Options{Dispatchers: []string{"mesh:8444"}, MaxOutstanding: 10})
		first, second := accept(t, one), accept(t, two)
		for _, step := range []struct {
			total int
			share uint32
		}{{10, 5}, {4, 2}, {1, 1}, {0, 0}, {-1, 0}, {3, 1}, {11, 5}} {
			host.SetMaxOutstanding(step.total)
			wantCredit(t, first, step.share)
			wantCredit(t, second, step.share)
		}
		works(t, first)
	})
}

func wantCredit(t *testing.T, s *hosttest.Session, want uint32) {
	t.Helper()
	synctest.Wait()
	if got := s.Credit(); got != want {
		t.Errorf("credit %d, want %d", got, want)
	}
}

func drainDispatcher(t *testing.T, s *hosttest.Session, grace time.Duration, peers ...*hostv1.Peer) {
	t.Helper()
	err := s.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Drain{Drain: &hostv1.DispatcherDrain{
		GraceMs: uint32(grace.Milliseconds()), Peers: peers,
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPeersAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		one := m.start("10.0.0.1:8444", dispatcher("d1", peer("d1", "10.0.0.1:8444"), peer("d2", "10.0.0.9:1", "10.0.0.2:8444")))
		two := m.start("10.0.0.2:8444", dispatcher("d2", peer("d1", "10.0.0.1:8444")))
		m.run(hostsdk.Options{Dispatchers: []string{"10.0.0.1:8444"}})
		works(t, accept(t, one))
		works(t, accept(t, two))
		noSession(t, one)
		if n := m.dialled("10.0.0.1:8444"); n != 1 {
			t.Errorf("the first dispatcher was dialled %d times", n)
		}
		if n := m.dialled("10.0.0.9:1"); n != 1 {
			t.Errorf("the first address of the second dispatcher was dialled %d times", n)
		}
	})
}

func TestALeavingDispatcherNamesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		one, two := m.start("10.0.0.1:8444", dispatcher("d1")), m.start("10.0.0.2:8444", dispatcher("d2"))
		m.run(hostsdk.Options{Dispatchers: []string{"10.0.0.1:8444"}})
		first := accept(t, one)
		drainDispatcher(t, first, time.Minute, peer("d2", "10.0.0.2:8444"))
		began := time.Now()
		works(t, accept(t, two))
		if took := time.Since(began); took >= time.Second {
			t.Errorf("it took %s to dial the peer of a leaving dispatcher", took)
		}
	})
}

// TestADispatcherReachedTwiceKeepsOneSession: an address that hides several dispatchers, and an address that is named
// twice.
func TestADispatcherReachedTwiceKeepsOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		service, pod := m.start("10.96.0.1:8444", dispatcher("d1")), m.start("10.0.0.1:8444", dispatcher("d1"))
		m.name("service", "10.96.0.1")
		host, _ := m.run(hostsdk.Options{Dispatchers: []string{"service:8444", "pods:8444"}})
		older := accept(t, service)
		m.name("pods", "10.0.0.1")
		younger := accept(t, pod)
		if _, err := older.Drained(t.Context()); err != nil {
			t.Errorf("the older session: %v", err)
		}
		works(t, younger)
		noSession(t, service)
		if got := len(host.Status().Sessions); got != 1 {
			t.Errorf("%d sessions, want 1", got)
		}
		// The way that was given up is taken again when the other one ends.
		pod.Stop()
		works(t, accept(t, service))
	})
}

func TestALostSessionIsDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		l := m.start("10.0.0.1:8444", dispatcher("d1"))
		m.run(hostsdk.Options{Dispatchers: []string{"10.0.0.1:8444"}})
		works(t, accept(t, l))
		l.Stop()
		l = m.start("10.0.0.1:8444", dispatcher("d2"))
		began := time.Now()
		works(t, accept(t, l))
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("it took %s to come back after a useful session", took)
		}
	})
}

func TestASilentDispatcherIsDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		l := m.start("10.0.0.1:8444", &hostv1.Welcome{DispatcherId: "d1", SilenceMs: 5000})
		m.run(hostsdk.Options{Dispatchers: []string{"10.0.0.1:8444"}})
		works(t, accept(t, l))
		began := time.Now()
		works(t, accept(t, l))
		if took := time.Since(began); took < 5*time.Second || took > 5200*time.Millisecond {
			t.Errorf("a silent session was replaced after %s, want about 5 s", took)
		}
	})
}

// TestBackoff watches dials of a dispatcher that is not there.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.run(hostsdk.Options{Dispatchers: []string{"10.0.0.1:8444"}})
		time.Sleep(time.Second) //nolint:forbidigo // of the fake clock
		if n := m.dialled("10.0.0.1:8444"); n < 3 || n > 6 {
			t.Errorf("%d dials in the first second", n)
		}
		time.Sleep(10 * time.Minute) //nolint:forbidigo // of the fake clock
		n := m.dialled("10.0.0.1:8444")
		if most, least := 600, 120; n < least || n > most {
			t.Errorf("%d dials in ten minutes, want %d to %d", n, least, most)
		}
	})
}

// TestAWelcomeAloneDoesNotResetTheBackoff: a dispatcher that takes sessions and drops them is not hammered.
func TestAWelcomeAloneDoesNotResetTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		l := m.start("10.0.0.1:8444", &hostv1.Welcome{DispatcherId: "d1", SilenceMs: 1})
		m.run(hostsdk.Options{Dispatchers: []string{"10.0.0.1:8444"}})
		time.Sleep(10 * time.Minute) //nolint:forbidigo // of the fake clock
		if n := m.dialled("10.0.0.1:8444"); n > 600 {
			t.Errorf("%d dials in ten minutes", n)
		}
		_ = accept(t, l)
	})
}

func TestRunDrainsEverySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.name("mesh", "10.0.0.1", "10.0.0.2")
		one, two := m.start("10.0.0.1:8444", dispatcher("d1")), m.start("10.0.0.2:8444", dispatcher("d2"))
		_, stop := m.run(hostsdk.Options{Dispatchers: []string{"mesh:8444"}})
		sessions := []*hosttest.Session{accept(t, one), accept(t, two)}
		for _, s := range sessions {
			works(t, s)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		for _, s := range sessions {
			drain, err := s.Drained(t.Context())
			if err != nil || drain.GetLastStartedCallId() != 1 {
				t.Errorf("drain %v, %v", drain, err)
			}
			if err := s.Ended(t.Context()); err != nil {
				t.Errorf("end: %v", err)
			}
		}
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestAHostLogsWhatItIsToldAndHowItStops: a line has the attributes that are known, and nothing else.
func TestAHostLogsWhatItIsToldAndHowItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, log := newMesh(t), &bytes.Buffer{}
		l := m.start("10.0.0.1:8444", dispatcher("d1"))
		plain := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "session" {
				return slog.Attr{}
			}
			return a
		}
		host := m.host(hostsdk.Options{
			Dispatchers: []string{"10.0.0.1:8444"}, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: plain})),
		}, hostsdk.Validate("slow", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			time.Sleep(time.Second) //nolint:forbidigo // of the fake clock
			return hostsdk.Allow(), nil
		}))
		stop := m.launch(host)
		s := accept(t, l)
		asked := make(chan error, 1)
		go func() {
			_, err := s.Ask(t.Context(), "slow", hosttest.Create(pod))
			asked <- err
		}()
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := <-asked; err != nil {
			t.Error(err)
		}
		want := `level=INFO msg="session opened" dispatcher=d1
level=INFO msg="hook changed" hook=slow stage=validate state=in_rotation dispatcher=d1
level=INFO msg="host stopped" drained=true calls_in_flight=1 took=1s
`
		if got := log.String(); got != want {
			t.Errorf("logged\n%s, want\n%s", got, want)
		}
	})
}

// TestRunSaysWhenCallsWereCutOff: whoever rolls hosts should know that the time to drain is too short.
func TestRunSaysWhenCallsWereCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		l := m.start("10.0.0.1:8444", dispatcher("d1"))
		release := make(chan struct{})
		host := m.host(hostsdk.Options{Dispatchers: []string{"10.0.0.1:8444"}, DrainTimeout: time.Second},
			hostsdk.Validate("stubborn", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				<-release
				return hostsdk.Allow(), nil
			}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- host.Run(ctx) }()
		s := accept(t, l)
		asked := make(chan error, 1)
		go func() {
			_, err := s.Ask(t.Context(), "stubborn", hosttest.Create(pod))
			asked <- err
		}()
		synctest.Wait()
		began := time.Now()
		cancel()
		if err := <-done; err == nil {
			t.Error("Run returned nil although a call was cut off")
		}
		if took := time.Since(began); took != 2*time.Second { // 1 s to drain, 1 s of grace for the handler
			t.Errorf("Run returned after %s", took)
		}
		if err := <-asked; err == nil {
			t.Error("the dispatcher got a verdict of a call that was cut off")
		}
		close(release)
	})
}

// TestHandlersAreBoundedOverAllSessions: two dispatchers may together ask for more than the host takes while the shares
// change. Further calls wait.
func TestHandlersAreBoundedOverAllSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.name("mesh", "10.0.0.1", "10.0.0.2")
		one, two := m.start("10.0.0.1:8444", dispatcher("d1")), m.start("10.0.0.2:8444", dispatcher("d2"))
		var mu sync.Mutex
		running, most := 0, 0
		count := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			running += by
			most = max(most, running)
		}
		host := m.host(hostsdk.Options{Dispatchers: []string{"mesh:8444"}, MaxOutstanding: 1},
			hostsdk.Validate("slow", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				count(1)
				defer count(-1)
				time.Sleep(100 * time.Millisecond) //nolint:forbidigo // of the fake clock
				return hostsdk.Allow(), nil
			}))
		m.launch(host)
		var asked sync.WaitGroup
		queued := make(chan uint32, 2)
		for _, s := range []*hosttest.Session{accept(t, one), accept(t, two)} {
			asked.Go(func() {
				v, err := s.Ask(t.Context(), "slow", hosttest.Create(pod))
				if err != nil || !v.GetResponse().GetAllowed() {
					t.Errorf("verdict %v, %v", v, err)
				}
				queued <- v.GetQueueUs()
			})
		}
		asked.Wait()
		if most != 1 {
			t.Errorf("%d handlers ran at a time, want 1", most)
		}
		if a, b := <-queued, <-queued; a+b != 100_000 {
			t.Errorf("the calls waited %d and %d µs, want 0 and 100000", a, b)
		}
	})
}

func TestACallThatFindsNoSlotInTimeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.name("mesh", "10.0.0.1", "10.0.0.2")
		one, two := m.start("10.0.0.1:8444", dispatcher("d1")), m.start("10.0.0.2:8444", dispatcher("d2"))
		release := make(chan struct{})
		host := m.host(hostsdk.Options{Dispatchers: []string{"mesh:8444"}, MaxOutstanding: 1},
			hostsdk.Validate("stubborn", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				<-release
				return hostsdk.Allow(), nil
			}))
		m.launch(host)
		busy, waiting := accept(t, one), accept(t, two)
		var asked sync.WaitGroup
		asked.Go(func() { _, _ = busy.Ask(t.Context(), "stubborn", hosttest.Create(pod)) })
		synctest.Wait()
		for reason, cause := range map[string]func(context.CancelFunc){
			"no time left": func(context.CancelFunc) {}, "cancelled before its start": func(c context.CancelFunc) { c() },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			time.AfterFunc(100*time.Millisecond, func() { cause(cancel) })
			v, err := waiting.Ask(ctx, "stubborn", hosttest.Create(pod))
			cancel()
			if err != nil || v.GetRefused().GetReason() != reason {
				t.Errorf("verdict %v, %v: want refused, %s", v, err, reason)
			}
		}
		close(release)
		asked.Wait()
	})
}

func TestStatusTellsWhatDispatchersMakeOfTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		l := m.start("10.0.0.1:8444", &hostv1.Welcome{DispatcherId: "d1", SessionId: "s1", Revision: "r1", Hooks: []*hostv1.HookState{{
			Name: "allow", Stage: 2, State: hostv1.State_STATE_NOT_AUTHORIZED, Message: "grant it",
		}}})
		host, _ := m.run(hostsdk.Options{Dispatchers: []string{"10.0.0.1:8444"}})
		s := accept(t, l)
		synctest.Wait()
		if got, want := fmt.Sprint(host.Status()), "{[{s1 d1 r1 false [{allow validate [] not_authorized grant it}] 0}]}"; got != want {
			t.Errorf("status %s, want %s", got, want)
		}
		select {
		case <-host.Ready():
			t.Error("the host is ready though its hook is not granted")
		default:
		}
		state := &hostv1.HookState{Name: "allow", Stage: 2, State: hostv1.State_STATE_IN_ROTATION, Revision: "r2"}
		if err := s.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_HookState{HookState: state}}); err != nil {
			t.Fatal(err)
		}
		<-host.Ready()
		drainDispatcher(t, s, time.Minute)
		synctest.Wait()
		if got, want := fmt.Sprint(host.Status()), "{[{s1 d1 r2 true [{allow validate [] in_rotation }] 0}]}"; got != want {
			t.Errorf("status %s, want %s", got, want)
		}
	})
}
