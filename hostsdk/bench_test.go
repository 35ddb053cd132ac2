package hostsdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// object is an object of 2 kB.
var object = `{"kind":"Pod","metadata":{"annotations":{"a":"` + strings.Repeat("x", 2000) + `"}}}`

// BenchmarkReview is one review of a 2 kB object at a time, from the fake dispatcher's question to its answer.
func BenchmarkReview(b *testing.B) {
	d := hosttest.Start(b, benchHost(b, 1))
	request := hosttest.Create(object)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Ask(b.Context(), "allow-0", request); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHost measures the cost of a review of a 2 kB object for a host whose handlers do nothing, from an encoded
// frame to an encoded verdict, with 32 reviews under way. One operation is one review for all its hooks.
func BenchmarkHost(b *testing.B) {
	for _, hooks := range []int{1, 8} {
		for _, together := range []int{1, 8} {
			b.Run(fmt.Sprintf("%d hooks, %d reviews to a frame", hooks, together), func(b *testing.B) {
				host, s := benchHost(b, hooks), newReplay(b, hooks, together)
				defer s.report()
				if err := host.Serve(b.Context(), func(context.Context) (hostsdk.Stream, error) { return s, nil }); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkStream is the same over gRPC on loopback, with both ends in the figures.
func BenchmarkStream(b *testing.B) {
	for _, hooks := range []int{1, 8} {
		for _, together := range []int{1, 8} {
			b.Run(fmt.Sprintf("%d hooks, %d reviews to a frame", hooks, together), func(b *testing.B) {
				host, s := benchHost(b, hooks), newReplay(b, hooks, together)
				address := s.serve()
				defer s.report()
				open := func(ctx context.Context) (hostsdk.Stream, error) { return hostsdk.Dial(ctx, address) }
				if err := host.Serve(b.Context(), open); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func benchHost(b *testing.B, hooks int) *hostsdk.Host {
	b.Helper()
	all := make([]hostsdk.Hook, hooks)
	for i := range all {
		all[i] = hostsdk.Validate(fmt.Sprintf("allow-%d", i), allow)
	}
	host, err := hostsdk.New(hostsdk.Options{Name: "bench", Logger: quiet(), MaxOutstanding: 1 << 10}, all...)
	if err != nil {
		b.Fatal(err)
	}
	return host
}

// replay is a stream that asks the same again and again, and takes every verdict.
type replay struct {
	b        *testing.B
	together int
	review   []byte // encoded, without the id of the call
	asked    int
	frames   int
	free     chan struct{} // a place for each (call, hook) pair that may be outstanding
	hooks    int
	before   int64 // time of the processor
	id       [16]byte
}

// underWay is how many reviews wait for their verdicts.
const underWay = 32

func newReplay(b *testing.B, hooks, together int) *replay {
	b.Helper()
	r := &hostv1.Review{Request: hosttest.Create(object)}
	for i := range hooks {
		r.Hooks = append(r.Hooks, &hostv1.HookCall{
			Name: fmt.Sprintf("allow-%d", i), Configuration: "bench", Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 10_000,
		})
	}
	encoded, err := proto.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return &replay{
		before: used(b), b: b, together: together, review: encoded, hooks: hooks, free: make(chan struct{}, underWay*hooks),
	}
}

// Recv implements [hostsdk.Stream]: the next reviews, as soon as there are places for them.
func (s *replay) Recv() ([]byte, error) {
	if s.asked == 0 {
		s.asked++
		return proto.Marshal(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Welcome{Welcome: &hostv1.Welcome{
			Protocol: 1, Capabilities: []string{"batches"},
		}}})
	}
	n := min(s.together, s.b.N+1-s.asked)
	if n == 0 {
		for range cap(s.free) { // The last verdicts.
			s.free <- struct{}{}
		}
		return nil, io.EOF
	}
	const most = 32 // of the bytes around a review
	members := make([]byte, most, most+n*(most+len(s.review)))
	for range n {
		for range s.hooks {
			s.free <- struct{}{}
		}
		id := protowire.AppendVarint(protowire.AppendTag(s.id[:0], 1, protowire.VarintType), uint64(s.asked))
		members = protowire.AppendTag(members, 1, protowire.BytesType)
		members = protowire.AppendVarint(members, uint64(len(id)+len(s.review)))
		members = append(append(members, id...), s.review...)
		s.asked++
	}
	if s.together == 1 {
		members[most] = 2<<3 | byte(protowire.BytesType)
		return members[most:], nil
	}
	head := protowire.AppendVarint(protowire.AppendTag(s.id[:0], 11, protowire.BytesType), uint64(len(members)-most))
	return members[most-copy(members[most-len(head):], head):], nil
}

// Send implements [hostsdk.Stream].
func (s *replay) Send(frame []byte) error {
	m := &hostv1.ConnectRequest{}
	if err := proto.Unmarshal(frame, m); err != nil {
		return err
	}
	verdicts := len(m.GetVerdicts().GetVerdicts())
	if m.GetVerdict() != nil {
		verdicts = 1
	}
	for range verdicts {
		<-s.free
	}
	s.frames++
	return nil
}

// report reports the cost in processor time, since the machine may do other things.
func (s *replay) report() {
	s.b.Helper()
	s.b.ReportMetric(float64(s.frames)/float64(s.b.N), "frames/op")
	s.b.ReportMetric(float64(used(s.b)-s.before)/float64(s.b.N), "cpu-ns/op")
}

// used is the time of the processor that this process has used.
func used(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// serve is the other end of a gRPC stream.
func (s *replay) serve() (address string) {
	s.b.Helper()
	listener, err := (&net.ListenConfig{}).Listen(s.b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.b.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: hostv1.HostService_ServiceDesc.ServiceName, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Connect", Handler: s.connect, ServerStreams: true, ClientStreams: true}},
	}, s)
	served := make(chan struct{})
	go func() { // Waited for by the end of the benchmark.
		defer close(served)
		_ = server.Serve(listener) // It ends by Stop.
	}()
	s.b.Cleanup(func() { server.Stop(); <-served })
	return listener.Addr().String()
}

// connect is the stream's handler: it sends the frames of Recv, and gives the received frames to Send.
func (s *replay) connect(_ any, stream grpc.ServerStream) error {
	var hello []byte
	if err := stream.RecvMsg(&hello); err != nil {
		return err
	}
	go func() { // Ends with the stream.
		var frame []byte
		for stream.RecvMsg(&frame) == nil && s.Send(frame) == nil {
		}
	}()
	for {
		frame, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := errors.Join(err, stream.SendMsg(&frame)); err != nil {
			return err
		}
	}
}

// rawCodec passes frames on as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }

// CloseSend implements [hostsdk.Stream].
func (s *replay) CloseSend() error { return nil }
