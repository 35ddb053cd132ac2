package service_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// smallWindow is how many bytes a client takes that nobody reads; set, it does not grow.
const smallWindow = 64 << 10

// served is a service behind real gRPC, to which everybody is root. ended gets how each of its streams ends.
func (f *fixture) served(sendTimeout time.Duration) (s *service.Service, client configv1.ConfigServiceClient, ended chan error) {
	f.t.Helper()
	s, err := service.New(service.Options{
		Objects: f.store, Live: f, Operators: identity.Grant{Names: []string{"root"}}, Identity: func(context.Context) identity.Peer { return identity.Named("root") },
		Inspect: lint.Options{}.InspectOnly, Decoder: configtest.NewDecoder(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if sendTimeout > 0 {
		s.SetSendTimeout(sendTimeout)
	}
	ended = make(chan error, 2*service.MaxStreams)
	l, server := bufconn.Listen(1<<20), grpc.NewServer(grpc.StreamInterceptor(
		func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			err := handler(srv, stream)
			ended <- err
			return err
		}))
	configv1.RegisterConfigServiceServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(smallWindow),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		serving.Wait()
	})
	return s, configv1.NewConfigServiceClient(conn), ended
}

// many applies objects that are more than gRPC keeps for a reader.
func (f *fixture) many() {
	f.t.Helper()
	var documents []string
	for i := range 60 {
		documents = append(documents, policy(fmt.Sprintf("p-%d", i), "failurePolicy: Ignore")+
			"\n  matchConditions: [{name: long, expression: '\""+strings.Repeat("x", 4000)+"\" != \"\"'}]")
	}
	f.applied("root", strings.Join(documents, "\n---\n"))
}

func TestAReaderThatIsTooSlowLosesItsStream(t *testing.T) {
	f := newFixture(t)
	f.many()
	_, client, ended := f.served(50 * time.Millisecond)
	slow, err := client.Watch(t.Context(), &configv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; status.Code(err) != codes.Aborted { // nothing is read before
		t.Fatal(err)
	}
	for err == nil {
		_, err = slow.Recv()
	}
	if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "begin again") {
		t.Errorf("ended with %v", err)
	}
	again, err := client.Watch(t.Context(), &configv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Recv(); err != nil {
		t.Errorf("begun again: %v", err)
	}
}

// TestWatchesShareTheirObjects compares the messages themselves: a watch shares its copy of the configuration with all other watches. The copy is kept as
// long as a watch is open.
func TestWatchesShareTheirObjects(t *testing.T) {
	f := newFixture(t)
	f.applied("root", policy("changes", "failurePolicy: Fail")+"\n---\n"+policy("stays", "failurePolicy: Fail"))
	open, end := context.WithCancel(context.WithValue(t.Context(), caller{}, "root"))
	opened, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- f.Watch(&configv1.WatchRequest{}, &synced{ctx: open, stop: func() { close(opened) }}) }()
	defer func() {
		end()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	}()
	<-opened
	watched := func() map[string]*configv1.ConfigObject {
		ctx, stop := context.WithCancel(context.WithValue(t.Context(), caller{}, "root"))
		defer stop()
		w := &synced{ctx: ctx, stop: stop, objects: map[string]*configv1.ConfigObject{}}
		if err := f.Watch(&configv1.WatchRequest{}, w); status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
		return w.objects
	}
	first, second := watched(), watched()
	runtime.GC()
	f.applied("root", policy("changes", "failurePolicy: Ignore"))
	third := watched()
	for name, changed := range map[string]bool{"changes": true, "stays": false} {
		if first[name] == nil || first[name] != second[name] {
			t.Errorf("%s: two watches of one listing have an object each", name)
		}
		if (first[name] != third[name]) != changed {
			t.Errorf("%s: after a change of another object it is the same message: %v", name, first[name] == third[name])
		}
	}
}

func TestADrainEndsStreams(t *testing.T) {
	f := newFixture(t)
	s, client, _ := f.served(0)
	watch, err := client.Watch(t.Context(), &configv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	s.Drain()
	s.Drain()
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("ended with %v", err)
	}
	wait, err := client.Wait(t.Context(), &configv1.WaitRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wait.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("ended with %v", err)
	}
	if _, err := client.List(t.Context(), &configv1.ListRequest{}); err != nil {
		t.Errorf("other calls are answered on: %v", err)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	f := newFixture(t)
	_, client, _ := f.served(0)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	open := func() error {
		stream, err := client.Watch(ctx, &configv1.WatchRequest{})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	for i := range service.MaxStreams / 2 { // as many as it leaves free
		if err := open(); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if err := open(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	stop()
	ctx = t.Context()
	f.until(func() bool { return open() == nil })
}

// listens takes the messages, until its context ends.
type listens struct {
	grpc.ServerStreamingServer[configv1.WaitResponse]

	ctx   context.Context
	taken func(*configv1.WaitResponse)
}

func (l *listens) Context() context.Context            { return l.ctx }
func (l *listens) SetHeader(metadata.MD) error         { return nil }
func (l *listens) Send(r *configv1.WaitResponse) error { l.taken(r); return nil }

// ends is a context that ends when it is told, as by a deadline.
type ends struct {
	context.Context

	done chan struct{}
}

func (e ends) Done() <-chan struct{} { return e.done }

func (e ends) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestAWaitThatIsOverdueNamesWhoIsBehind(t *testing.T) {
	f := newFixture(t)
	f.applied("root", policy("p", ""))
	state, err := f.store.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request := &configv1.WaitRequest{Revision: &configv1.Revision{Sources: map[string]string{"etcd": formatted(state.Revision)}}}
	deadline := func() (ends, func(*configv1.WaitResponse)) {
		e := ends{f.as("root"), make(chan struct{})}
		return e, func(*configv1.WaitResponse) { close(e.done) }
	}
	ctx, taken := deadline()
	err = f.Wait(request, &listens{ctx: ctx, taken: taken})
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "no dispatcher says that it lives") {
		t.Errorf("without any: %v", err)
	}
	one, _ := f.dispatcher("one")
	one.Tell(said("one", state.Revision, 0))
	two, _ := f.dispatcher("two")
	two.Tell(said("two", state.Revision-1, 0))
	f.until(func() bool {
		all, err := f.ListDispatchers(f.as("root"), &configv1.ListDispatchersRequest{})
		return err == nil && len(all.GetDispatchers()) == 2 && len(all.GetBehind()) == 1 && all.GetBehind()[0] == "two"
	})
	ctx, taken = deadline()
	err = f.Wait(request, &listens{ctx: ctx, taken: taken})
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "still waiting for two: ") {
		t.Errorf("with one behind: %v", err)
	}
	f.until(func() bool {
		a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: policyKey})
		if err != nil {
			t.Fatal(err)
		}
		c := a.GetObject().GetConditions()
		last := c[len(c)-1]
		return last.GetReason() == "Behind" && len(last.GetDispatchers()) == 1 && last.GetDispatchers()[0] == "two"
	})
}
