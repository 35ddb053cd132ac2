package hosttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deployment = `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "b"}}`

// newHost makes the host of an author's program: its hooks, apart from the addresses of dispatchers.
func newHost(t *testing.T) *hostsdk.Host {
	t.Helper()
	return hostOf(t,
		hostsdk.Validate("deny", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Deny("no"), nil
		}),
		hostsdk.Validate("wait", func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}),
		hostsdk.Validate("both", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }),
		hostsdk.Mutate("both", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }),
	)
}

func hostOf(t *testing.T, hooks ...hostsdk.Hook) *hostsdk.Host {
	t.Helper()
	host, err := hostsdk.New(hostsdk.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)}, hooks...)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func TestASessionAsksWhatADispatcherAsks(t *testing.T) {
	d := hosttest.Start(t, newHost(t))
	if response := d.Review(t.Context(), "deny", hosttest.Create(deployment)); response.Message != "no" {
		t.Errorf("response %v", response)
	}
	if err := d.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if result, err := d.Probe(t.Context(), "deny"); err != nil || !result.GetReady() {
		t.Errorf("probe %v, %v", result, err)
	}
	if d.Hello().GetHost() != "test" || d.Credit() != hostsdk.DefaultMaxOutstanding {
		t.Errorf("hello %v, credit %d", d.Hello(), d.Credit())
	}
	for _, hook := range []string{"both", "none"} {
		if v, err := d.Ask(t.Context(), hook, hosttest.Create(deployment)); err == nil {
			t.Errorf("%s: verdict %v", hook, v)
		}
	}
}

// TestTheContextOfAQuestionIsTheCalls: its deadline, and its cancellation.
func TestTheContextOfAQuestionIsTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := hosttest.Start(t, newHost(t))
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		v, err := d.Ask(ctx, "wait", hosttest.Create(deployment))
		if err != nil || v.GetCancelled() == nil || time.Since(began) != time.Second {
			t.Errorf("verdict %v, %v after %s", v, err, time.Since(began))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		v, err = d.Ask(ctx, "wait", hosttest.Create(deployment))
		if err != nil || v.GetCancelled() == nil || time.Since(began) != 2*time.Second {
			t.Errorf("verdict %v, %v after %s", v, err, time.Since(began))
		}
		// Without a deadline the test is not held up for ever either.
		v, err = d.Ask(t.Context(), "wait", hosttest.Create(deployment))
		if err != nil || v.GetCancelled() == nil || time.Since(began) != 2*time.Second+hosttest.Patience {
			t.Errorf("verdict %v, %v after %s", v, err, time.Since(began))
		}
	})
}

func TestAHostThatCannotServeIsAnError(t *testing.T) {
	cannot := play(func(hostsdk.Stream) error { return errors.New("no cache") })
	if _, _, err := hosttest.Connect(t.Context(), cannot); err == nil || !strings.Contains(err.Error(), "no cache") {
		t.Errorf("error %v", err)
	}
}

// play is a host that a test writes frame by frame.
type play func(stream hostsdk.Stream) error

// Serve implements [hosttest.Host].
func (p play) Serve(ctx context.Context, open hostsdk.OpenFunc) error {
	stream, err := open(ctx)
	if err != nil {
		return err
	}
	return p(stream)
}

// hello is an encoded Hello.
func hello(t *testing.T) []byte {
	t.Helper()
	encoded, err := proto.Marshal(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: &hostv1.Hello{
		Instance: "i", Hooks: []*hostv1.HookOffer{{Name: "h", Stage: 2}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func TestASilentHostIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, stop, err := hosttest.Connect(t.Context(), play(func(stream hostsdk.Stream) error {
			if err := stream.Send(hello(t)); err != nil {
				return err
			}
			for {
				if _, err := stream.Recv(); errors.Is(err, context.Canceled) {
					return nil
				}
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		if v, err := session.Ask(t.Context(), "h", hosttest.Create(deployment)); err == nil {
			t.Errorf("verdict %v", v)
		}
		if err := session.Ping(t.Context()); err == nil {
			t.Error("a silent host answered a ping")
		}
		if err := session.Ended(t.Context()); err == nil {
			t.Error("a silent host left")
		}
		if drain, err := session.Drained(t.Context()); err == nil {
			t.Errorf("a silent host drained: %v", drain)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAHostThatLeavesIsAnError(t *testing.T) {
	session, stop, err := hosttest.Connect(t.Context(), play(func(stream hostsdk.Stream) error {
		if err := stream.Send(hello(t)); err != nil {
			return err
		}
		for range 2 { // The welcome and the review.
			if _, err := stream.Recv(); err != nil {
				return err
			}
		}
		return errors.New("killed")
	}))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := session.Ask(t.Context(), "h", hosttest.Create(deployment)); err == nil {
		t.Errorf("verdict %v", v)
	}
	if _, err := session.Drained(t.Context()); err == nil || session.Ended(t.Context()) == nil {
		t.Error("a host that was killed drained")
	}
	if err := stop(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v", err)
	}
}

// TestAPipeIsAStream compares a pipe with a stream of gRPC.
func TestAPipeIsAStream(t *testing.T) {
	peer := hosttest.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := peer.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send([]byte{0xff}); err != nil {
		t.Error(err)
	}
	if frame, err := peer.Recv(); err == nil {
		t.Errorf("a frame that cannot be decoded is %v", frame)
	}
	// Frames that were sent before the end are received before it.
	for range 2 {
		if err := errors.Join(stream.Send(hello(t)), peer.Send(&hostv1.ConnectResponse{})); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	peer.End(status.Error(codes.Unavailable, "bye"))
	for range 2 {
		if _, err := peer.Recv(); err != nil {
			t.Error(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Error(err)
		}
	}
	if _, err := peer.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the dispatcher sees %v", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the host sees %v", err)
	}
	if err := stream.Send(hello(t)); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("sending after the end: %v", err)
	}
	cancel()
	if _, err := stream.Recv(); !errors.Is(err, context.Canceled) {
		t.Errorf("the host sees %v", err)
	}
}

// A frame that a host sends once its stream has broken is lost, as on a gRPC stream, and never delivered.
func TestABrokenPipeTakesNoFrame(t *testing.T) {
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := hosttest.Pipe().Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := stream.Send(hello(t)); !errors.Is(err, context.Canceled) {
			t.Fatalf("sent, with %v", err)
		}
	}
}

func TestRequestsSayWhatObjectsSayOfThemselves(t *testing.T) {
	tests := map[string]string{
		deployment:                 "apps/v1 Deployment deployments b/a",
		`{"kind":"Pod"}`:           "/ Pod pods /",
		`{"kind":"Ingress"}`:       "/ Ingress ingresses /",
		`{"kind":"NetworkPolicy"}`: "/ NetworkPolicy networkpolicies /",
		`{"apiVersion":"v1"}`:      "/v1   /",
		`nonsense`:                 "/   /",
	}
	for object, want := range tests {
		r := hosttest.Update(object, object)
		got := fmt.Sprintf("%s/%s %s %s %s/%s", r.GetKind().GetGroup(), r.GetKind().GetVersion(), r.GetKind().GetKind(),
			r.GetResource().GetResource(), r.GetNamespace(), r.GetName())
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", object, diff)
		}
	}
	if r := hosttest.Delete(deployment); r.GetObject() != nil || r.GetOldObject() == nil || r.GetOperation() != "DELETE" {
		t.Errorf("deletion %v", r)
	}
}

// TestFaultsOfATableAreFound: each field of expect can fail.
func TestFaultsOfATableAreFound(t *testing.T) {
	d := hosttest.Start(t, hostOf(t, hostsdk.Mutate("m", func(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		if r.Username() == "mallory" {
			return hostsdk.Deny("no entry").WithCode(422).WithReason("Invalid").WithCause("f", "m"), nil
		}
		return hostsdk.Patch([]byte(`[{"op":"add","path":"/a","value":9007199254740993}]`)).WithWarnings("w").WithAudit("k", "v"), nil
	})))
	for table, want := range map[string]int{
		`{"user": {"name": "mallory"}, "object": {}, "expect": {"allowed": false, "code": 422, "message": "entry"}}`:                                 0,
		`{"user": {"name": "mallory"}, "object": {}, "expect": {"allowed": true, "code": 403, "message": "exit"}}`:                                   3,
		`{"user": {"name": "mallory"}, "object": {}, "expect": {"allowed": false, "reason": "Invalid", "causes": [{"field": "f", "message": "m"}]}}`: 0,
		`{"user": {"name": "mallory"}, "object": {}, "expect": {"allowed": false, "reason": "Forbidden", "causes": []}}`:                             2,
		`{"object": {}, "expect": {"allowed": true, "object": {"a": 9007199254740993}, "warnings": ["w"], "audit": {"k": "v"}}}`:                     0,
		`{"object": {}, "expect": {"allowed": true, "object": {"a": 9007199254740992}, "warnings": [], "audit": {}}}`:                                3,
		`{"object": {}, "expect": {"allowed": true, "patch": [{"op": "add", "path": "/a", "value": 9007199254740993}]}}`:                             0,
		`{"object": {}, "expect": {"allowed": true, "patch": []}}`:                                                                                   1,
		`{"object": {}, "expect": {}}`: 1,
		`{"operation": "UPDATE", "oldObject": {}, "object": {"metadata": {"namespace": "x"}}, "expect": {"allowed": true, "object": {"a": 9007199254740993, "metadata": {"namespace": "x"}}}}`: 0,
	} {
		if faults := hosttest.Compare(t, d, table); len(faults) != want {
			t.Errorf("%s: %q, want %d faults", table, faults, want)
		}
	}
}

func TestPatchesAreApplied(t *testing.T) {
	for name, tt := range map[string]struct{ object, patch, want string }{
		"add":       {`{"a":[1,3],"n":9007199254740993}`, `[{"op":"add","path":"/a/1","value":2},{"op":"add","path":"/a/-","value":4},{"op":"add","path":"/x~1y~0","value":"<"}]`, `{"a":[1,2,3,4],"n":9007199254740993,"x/y~":"<"}`},
		"escape":    {`{"~1":1,"/":2}`, `[{"op":"replace","path":"/~01","value":3}]`, `{"/":2,"~1":3}`},
		"remove":    {`{"a":[1,{"b":2,"c":3}]}`, `[{"op":"remove","path":"/a/1/b"},{"op":"remove","path":"/a/0"}]`, `{"a":[{"c":3}]}`},
		"replace":   {`{"a":[1,2],"b":null}`, `[{"op":"replace","path":"/a/0","value":{}},{"op":"replace","path":"/b","value":false}]`, `{"a":[{},2],"b":false}`},
		"move":      {`{"a":[1,2,3]}`, `[{"op":"move","from":"/a/0","path":"/a/2"},{"op":"move","from":"/a","path":"/b"}]`, `{"b":[2,3,1]}`},
		"copy":      {`{"a":{"x":1}}`, `[{"op":"copy","from":"/a","path":"/b"},{"op":"replace","path":"/a/x","value":2}]`, `{"a":{"x":2},"b":{"x":1}}`},
		"test":      {`{"a":[1]}`, `[{"op":"test","path":"/a","value":[1]}]`, `{"a":[1]}`},
		"root":      {`{"a":1}`, `[{"op":"replace","path":"","value":{"b":1}},{"op":"test","path":"","value":{"b":1}}]`, `{"b":1}`},
		"differs":   {`{"a":1}`, `[{"op":"test","path":"/a","value":2}]`, ""},
		"lacking":   {`{"a":[]}`, `[{"op":"replace","path":"/a/0","value":2}]`, ""},
		"no place":  {`{"a":[]}`, `[{"op":"add","path":"/a/1","value":2}]`, ""},
		"no parent": {`{"a":[]}`, `[{"op":"add","path":"/b/c","value":2}]`, ""},
		"no source": {`{}`, `[{"op":"copy","from":"/b","path":"/c"}]`, ""},
		"no slash":  {`{"a":[]}`, `[{"op":"add","path":"a","value":2}]`, ""},
		"all moved": {`{"a":[]}`, `[{"op":"move","from":"","path":"/a"}]`, ""},
		"unknown":   {`{"a":[]}`, `[{"op":"wish","path":"/a","value":2}]`, ""},
		"no patch":  {`{"a":[]}`, `{}`, ""},
	} {
		got, err := hosttest.Patched([]byte(tt.object), []byte(tt.patch))
		if string(got) != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: %s, %v, want %s", name, got, err, tt.want)
		}
	}
}

// TestAPatchThatDoesNotFitIsAnError, and so is a failure.
func TestAPatchThatDoesNotFitIsAnError(t *testing.T) {
	d := hosttest.Start(t, hostOf(t,
		hostsdk.Mutate("misfit", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Patch([]byte(`[{"op":"remove","path":"/none"}]`)), nil
		}),
		hostsdk.Validate("fails", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return nil, hostsdk.NewError("down", nil)
		}),
	))
	for hook, want := range map[string]string{"misfit": "/none", "fails": "down"} {
		if v, err := d.Session.Review(t.Context(), hook, hosttest.Create(deployment)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", hook, v, err)
		}
	}
}

func TestCases(t *testing.T) {
	host := hostOf(t, hostsdk.Validate("h", func(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny(r.Operation() + r.Username() + r.Namespace()), nil
	}))
	file := filepath.Join(t.TempDir(), "cases.json")
	if err := os.WriteFile(file, []byte(`[
		{"name": "creates", "user": {"name": "jane"}, "namespace": "x", "object": {}, "expect": {"allowed": false, "message": "CREATEjanex"}},
		{"name": "deletes", "operation": "DELETE", "oldObject": {}, "expect": {"allowed": false, "message": "DELETEhosttest"}}
	]`), 0o600); err != nil {
		t.Fatal(err)
	}
	hosttest.Cases(t, host, file, nil)
}
