package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// largeObject is a review that takes a slow host seconds.
const largeObject = 6 << 20

// remote is a host behind a gRPC connection, whose frames the test reads and writes.
type remote struct {
	t      *testing.T
	stream grpc.BidiStreamingClient[hostv1.ConnectRequest, hostv1.ConnectResponse]
	data   []byte // of the large review, as far as it came
}

// serve serves the router of a mesh on a listener until the test ends.
func (m *mesh) serve(l net.Listener) (stop func()) {
	hosts := NewServer(m.router, func(context.Context) identity.Channel { return identity.Named("host") })
	server := grpc.NewServer(ServerOptions()...)
	hostv1.RegisterHostServiceServer(server, hosts)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	return func() {
		server.Stop()
		hosts.Wait()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			m.t.Error(err)
		}
	}
}

// dialRemote connects a host.
func dialRemote(t *testing.T, first *hostv1.ConnectRequest, o ...grpc.DialOption) (*remote, *grpc.ClientConn) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///", append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := hostv1.NewHostServiceClient(conn).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := &remote{t: t, stream: stream}
	h.say(first)
	if h.hear().GetWelcome() == nil {
		t.Fatal("no Welcome")
	}
	return h, conn
}

func (h *remote) say(f *hostv1.ConnectRequest) {
	h.t.Helper()
	if err := h.stream.Send(f); err != nil {
		h.t.Fatal(err)
	}
}

// hear returns the next frame. Chunks are kept in data.
func (h *remote) hear() *hostv1.ConnectResponse {
	h.t.Helper()
	f, err := h.stream.Recv()
	if err != nil {
		h.t.Fatal(err)
	}
	h.data = append(h.data, f.GetChunk().GetData()...)
	return f
}

func (h *remote) allow(id uint64) {
	h.t.Helper()
	h.say(verdict(&hostv1.Review{CallId: id}, 0, &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{
		Response: &admissionv1.AdmissionResponse{Allowed: true},
	}}))
}

// ask starts a review of the first hook about an object of so many bytes.
func (m *mesh) ask(bytesOfObject int) (result <-chan review.Result, cancel func(int)) {
	return m.askAbout(bytes.Repeat([]byte("x"), bytesOfObject))
}

// askAbout starts a review of the first hook about an object.
func (m *mesh) askAbout(object []byte) (result <-chan review.Result, cancel func(int)) {
	request := &admissionv1.AdmissionRequest{Object: &admissionv1.Object{Raw: object}}
	batch := &review.CallSet{
		Request: request, Body: wire.EncodeBody(request, trace.SpanContext{}),
		Calls: []review.Call{{Hook: m.snapshot.Hooks()[0], Deadline: time.Now().Add(time.Minute)}},
	}
	got := make(chan review.Result, 1)
	return got, m.router.Start(m.t.Context(), batch, func(_ int, r review.Result) { got <- r })
}

// chunkHost is the first frame of a host that takes chunks.
func chunkHost() *hostv1.ConnectRequest {
	return with(hello("one", "a"), func(h *hostv1.Hello) {
		h.Capabilities, h.MaxFrameBytes = []string{stream.CapabilityChunks}, 2*largeObject
	})
}

// aheadOfSmall is how much of a large review may reach a host before frames that became urgent when nothing moved any more: the
// transport had taken that much by then.
const aheadOfSmall = 1 << 20

func TestALargeReviewDelaysNothing(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		network := bufconn.Listen(1 << 16)
		stop := m.serve(network)
		defer stop()
		h, conn := dialRemote(t, chunkHost(), grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx) }))
		defer conn.Close()
		_, cancel := m.ask(10)
		unwanted := h.hear().GetReview()
		large, _ := m.ask(largeObject)
		synctest.Wait() // the host does not read: the transport takes all that it can
		small, _ := m.ask(10)
		cancel(0)
		elapse(stream.PingInterval + 2*stream.TickInterval)
		var ping, cancelled, asked bool
		for !ping || !cancelled || !asked {
			f := h.hear()
			if len(h.data) > aheadOfSmall {
				t.Fatalf("%d bytes of the large review came first: ping %t, cancel %t, small review %t", len(h.data), ping, cancelled, asked)
			}
			ping = ping || f.GetPing() != nil
			cancelled = cancelled || f.GetCancel().GetCallId() == unwanted.GetCallId()
			if r := f.GetReview(); r != nil {
				asked = true
				h.allow(r.GetCallId())
			}
		}
		if r := <-small; r.Failure != nil {
			t.Error(r.Failure)
		}
		select {
		case r := <-large:
			t.Errorf("the host does not have the large review, and %+v came of it", r)
		default:
		}
		h.finishLarge(large)
	})
}

// finishLarge reads the large review to its end, and allows it.
func (h *remote) finishLarge(result <-chan review.Result) {
	h.t.Helper()
	for {
		c := h.hear().GetChunk()
		if c == nil || uint64(len(h.data)) < c.GetTotalBytes() {
			continue
		}
		got := new(hostv1.Review)
		if err := proto.Unmarshal(h.data, got); err != nil {
			h.t.Fatal(err)
		}
		if n := len(got.GetRequest().GetObject().GetRaw()); n != largeObject || got.GetCallId() != c.GetCallId() {
			h.t.Errorf("an object of %d bytes in call %d", n, got.GetCallId())
		}
		h.allow(c.GetCallId())
		if r := <-result; r.Failure != nil {
			h.t.Error(r.Failure)
		}
		return
	}
}

// TestASlowLinkHoldsLittle has a link over which nothing comes while a large review is written, and asks how much of it lies in
// the buffers of the kernel, before urgent frames.
func TestASlowLinkHoldsLittle(t *testing.T) {
	r, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{t: t, router: r}
	m.configure("a")
	plain, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := m.serve(stream.Listener(plain))
	defer stop()
	link := &slowLink{gate: make(chan struct{}, 1)}
	link.gate <- struct{}{}
	h, conn := dialRemote(t, chunkHost(), grpc.WithInitialWindowSize(4*largeObject), grpc.WithInitialConnWindowSize(4*largeObject),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", plain.Addr().String())
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.SetReadBuffer(64 << 10)
			}
			link.Conn = c
			return link, err
		}))
	defer conn.Close()
	<-link.gate // nothing comes any more
	large, _ := m.ask(largeObject)
	s := r.all()[0]
	for written := -1; written != s.Figures().Unsent; { // until the writer does not get on
		written = s.Figures().Unsent
		<-time.After(100 * time.Millisecond)
	}
	small, _ := m.ask(10)
	link.gate <- struct{}{}
	for h.hear().GetReview() == nil {
	}
	if len(h.data) > aheadOfSmall {
		t.Errorf("%d bytes of the large review came first", len(h.data))
	}
	h.allow(2)
	if r := <-small; r.Failure != nil {
		t.Error(r.Failure)
	}
	h.finishLarge(large)
}

// slowLink is a connection that can be read from while its gate is open.
type slowLink struct {
	net.Conn

	gate chan struct{}
}

func (l *slowLink) Read(b []byte) (int, error) {
	open, ok := <-l.gate
	if !ok {
		return 0, io.EOF
	}
	l.gate <- open
	return l.Conn.Read(b)
}

// raw is a codec that sends bytes as they are.
type raw struct{ encoding.CodecV2 }

func (c raw) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// TestHostsWithoutMannersAreSentAway has a host break each rule over a real connection while another one does its work. Its
// calls go to the other one.
func TestHostsWithoutMannersAreSentAway(t *testing.T) {
	frame := func(f *hostv1.ConnectRequest) []byte {
		b, err := proto.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	stray := &hostv1.Verdict{CallId: 1 << 60, Outcome: &hostv1.Verdict_Response{
		Response: &admissionv1.AdmissionResponse{Allowed: true},
	}}
	verdicts := func(all []*hostv1.Verdict) []byte {
		return frame(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdicts{Verdicts: &hostv1.Verdicts{Verdicts: all}}})
	}
	credit := &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: &hostv1.Credit{MaxOutstanding: 1}}}
	unknown := func(lengthOf ...byte) []byte { return append([]byte{0xa2, 0x06}, lengthOf...) }
	for _, test := range []struct {
		name  string
		frame []byte
		times int
		want  codes.Code
	}{
		{"garbage", []byte{0xff}, 1, codes.InvalidArgument},
		{"verdicts of other sessions", verdicts([]*hostv1.Verdict{stray}), stream.MaxStrays + 1, codes.InvalidArgument},
		{"the same at once", verdicts(slices.Repeat([]*hostv1.Verdict{stray}, stream.MaxStrays+1)), 1, codes.InvalidArgument},
		{"large verdicts of other sessions", verdicts([]*hostv1.Verdict{{CallId: 1 << 60, Outcome: &hostv1.Verdict_Response{
			Response: &admissionv1.AdmissionResponse{Patch: make([]byte, 1<<20)},
		}}}), 5, codes.InvalidArgument},
		{"pongs", frame(pong()), stream.MaxStrays + 1, codes.InvalidArgument},
		{"empty frames", nil, stream.MaxStrays + 1, codes.InvalidArgument},
		{"credits", frame(credit), stream.MaxStrays + 1, codes.InvalidArgument},
		{"a large unknown frame", append(unknown(0x80, 0x80, 0x80, 0x02), make([]byte, 4<<20)...), 1, codes.ResourceExhausted},
		{"large unknown frames", append(unknown(0x80, 0x80, 0x40), make([]byte, 1<<20)...), 5, codes.InvalidArgument},
		{"a second hello", frame(hello("bad", "a")), 1, codes.InvalidArgument},
		{"more verdicts than there can be", verdicts(make([]*hostv1.Verdict, stream.MaxOutstanding+1)), 1, codes.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				network := bufconn.Listen(1 << 16)
				stop := m.serve(network)
				defer stop()
				dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx) })
				bad, badly := dialRemote(t, hello("bad", "a"), dial,
					grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{encoding.GetCodecV2("proto")})))
				defer badly.Close()
				got, _ := m.ask(10)
				if bad.hear().GetReview() == nil {
					t.Fatal("no review")
				}
				good, well := dialRemote(t, hello("good", "a"), dial)
				defer well.Close()
				for range test.times {
					if err := bad.stream.SendMsg(test.frame); err != nil {
						break // Recv says why
					}
				}
				good.allow(good.hear().GetReview().GetCallId())
				if r := <-got; r.Failure != nil {
					t.Error(r.Failure)
				}
				if _, err := bad.stream.Recv(); status.Code(err) != test.want {
					t.Errorf("the session ended with %v, want %v", err, test.want)
				}
			})
		})
	}
}
