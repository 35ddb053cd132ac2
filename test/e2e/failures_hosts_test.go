package e2e

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// hostStream is the stream of a host without an SDK.
type hostStream = grpc.BidiStreamingClient[hostv1.ConnectRequest, hostv1.ConnectResponse]

// strangeAnswer is a verdict of a strange host; nil ends its stream.
type strangeAnswer func(of failureCell, call uint64) *hostv1.Verdict

// strangeHost is a host without an SDK that serves the hook of one cell, and answers reviews as it likes. When its stream has ended it
// dials again.
type strangeHost struct {
	cell    failureCell
	conn    *grpc.ClientConn
	answer  strangeAnswer
	serving atomic.Bool // its hook is in rotation, here
}

// errHangsUp ends the stream of a host that wants to.
var errHangsUp = errors.New("the host hangs up")

// garbage stands for a verdict that is none.
var garbage = &hostv1.Verdict{CallId: 1 << 40}

// run serves until ctx ends.
func (h *strangeHost) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = h.session(ctx)
		h.serving.Store(false)
		select {
		case <-time.After(interval):
		case <-ctx.Done():
		}
	}
}

// session is one stream, to its end.
func (h *strangeHost) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := hostv1.NewHostServiceClient(h.conn).Connect(ctx)
	if err != nil {
		return err
	}
	hello := &hostv1.Hello{
		ProtocolMin: 1, ProtocolMax: 1, Host: hostName, Instance: rand.Text(), Hooks: []*hostv1.HookOffer{{Name: h.cell.hook, Stage: h.cell.stage}},
	}
	err = stream.Send(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: hello}})
	for err == nil {
		var frame *hostv1.ConnectResponse
		if frame, err = stream.Recv(); err == nil {
			err = h.hears(stream, frame)
		}
	}
	return err
}

// hears answers a frame.
func (h *strangeHost) hears(stream hostStream, frame *hostv1.ConnectResponse) error {
	h.stands(frame.GetWelcome().GetHooks()...)
	h.stands(frame.GetHookState())
	switch x := frame.GetFrame().(type) {
	case *hostv1.ConnectResponse_Ping:
		return stream.Send(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: x.Ping.GetSeq()}}})
	case *hostv1.ConnectResponse_Probe:
		ready := &hostv1.ProbeResult{Seq: x.Probe.GetSeq(), Ready: true}
		return stream.Send(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_ProbeResult{ProbeResult: ready}})
	case *hostv1.ConnectResponse_Review:
		return h.judges(stream, x.Review)
	}
	return nil
}

// stands records the state of the hook.
func (h *strangeHost) stands(states ...*hostv1.HookState) {
	for _, s := range states {
		if s != nil {
			h.serving.Store(s.GetState() == hostv1.State_STATE_IN_ROTATION)
		}
	}
}

// judges answers a review.
func (h *strangeHost) judges(stream hostStream, r *hostv1.Review) error {
	v := h.answer(h.cell, r.GetCallId())
	if v == nil {
		return errHangsUp
	}
	frame := &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: v}}
	if v == garbage {
		frame = new(hostv1.ConnectRequest)
		frame.ProtoReflect().SetUnknown([]byte{0xff, 0xff, 0xff})
	}
	return stream.Send(frame)
}

// strange starts hosts for each cell, and returns when all of them serve. They end with the function that is returned, or when the test
// does.
func (f *failures) strange(t *testing.T, replicas int, answer strangeAnswer) (end func()) {
	t.Helper()
	pair, err := f.Authority().Client(hostName)
	if err != nil {
		t.Fatal(err)
	}
	hosts, stop := f.dial(t, pair, replicas, answer)
	for _, h := range hosts {
		eventually(t, h.cell.hook+" is in rotation", func() error {
			if !h.serving.Load() {
				return errors.New("it is not")
			}
			return nil
		})
	}
	return func() {
		stop()
		eventually(t, "the hosts are gone", func() error { return f.dispatcher.HasMetric(t.Context(), "portcullis_host_sessions 0") })
	}
}

// dial starts so many hosts for each cell with a certificate.
func (f *failures) dial(t *testing.T, pair pki.Pair, replicas int, answer strangeAnswer) (hosts []*strangeHost, end func()) {
	t.Helper()
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	to := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: f.Authority().Pool(), Certificates: []tls.Certificate{certificate}})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	end = func() { cancel(); running.Wait() }
	t.Cleanup(end)
	for _, c := range slices.Repeat(f.cells, replicas) {
		conn, err := grpc.NewClient(f.dispatcher.Hosts, grpc.WithTransportCredentials(to))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		h := &strangeHost{cell: c, conn: conn, answer: answer}
		hosts = append(hosts, h)
		running.Go(func() { h.run(ctx) })
	}
	return hosts, end
}

// strangeHosts are the rows of hosts that die, or answer nonsense.
func (f *failures) strangeHosts(t *testing.T) {
	t.Helper()
	const quick = "timeout|unavailable"
	for _, row := range []struct {
		what, todo string
		replicas   int
		unlike     string
		answer     strangeAnswer
	}{
		{"The host dies with the review", "Look why. A review that ends two hosts is not given to a third.", 1, quick, dies},
		{"One of two replicas of the host dies with the review", "Look why. Hooks with side effects are not called again: for them it is as above.", 2, quick, diesOnce()},
		{
			"The host sends frames that cannot be read", "Mend the host, or its library for the [protocol](hosts.md#without-the-sdk).", 1, quick,
			func(failureCell, uint64) *hostv1.Verdict { return garbage },
		},
		{
			"The host answers another call", "Mend the host: to the call that it has, it gives no answer.", 1, "unavailable",
			func(_ failureCell, call uint64) *hostv1.Verdict { return allows(call + 1000) },
		},
		{
			"The host sends a verdict without an outcome", "Mend the host.", 1, quick,
			func(_ failureCell, call uint64) *hostv1.Verdict { return &hostv1.Verdict{CallId: call} },
		},
		{
			"The hook sends a patch that it may not send", "Mend the hook: a validating one sends no patch, and a mutating one a JSON Patch.", 1, quick,
			func(_ failureCell, call uint64) *hostv1.Verdict {
				return patches(call, "MergePatch", `{"metadata":{}}`)
			},
		},
		{
			"The patch cannot be read", "Mend the hook.", 1, quick,
			func(of failureCell, call uint64) *hostv1.Verdict {
				if of.stage == admissionv1.Stage_STAGE_VALIDATE {
					return allows(call)
				}
				return patches(call, "JSONPatch", `[{"op":`)
			},
		},
	} {
		f.row(t, row.what, row.todo, func(t *testing.T) func() {
			f.unlike = row.unlike
			return f.strange(t, row.replicas, row.answer)
		})
	}
}

// dies ends the stream.
func dies(failureCell, uint64) *hostv1.Verdict { return nil }

// diesOnce ends the stream of the host that has the first review of a cell, and allows the others.
func diesOnce() strangeAnswer {
	var dead sync.Map
	return func(of failureCell, call uint64) *hostv1.Verdict {
		if _, before := dead.LoadOrStore(of.hook, true); !before {
			return nil
		}
		return allows(call)
	}
}

// allows is the verdict that allows.
func allows(call uint64) *hostv1.Verdict {
	return &hostv1.Verdict{CallId: call, Outcome: &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true}}}
}

// patches is a verdict that allows, with a patch.
func patches(call uint64, kind, patch string) *hostv1.Verdict {
	v := allows(call)
	v.GetResponse().PatchType, v.GetResponse().Patch = kind, []byte(patch)
	return v
}

// expireHosts has hosts dial whose certificate is over.
func (f *failures) expireHosts(t *testing.T) (mend func()) {
	t.Helper()
	f.unlike = "timeout"
	pair, err := f.Authority().Expired().Client(hostName)
	if err != nil {
		t.Fatal(err)
	}
	_, end := f.dial(t, pair, 1, func(_ failureCell, call uint64) *hostv1.Verdict { return allows(call) })
	eventually(t, "no host serves", func() error { return f.all(t, "unavailable") })
	eventually(t, "the log has it", func() error { return logHas(f.dispatcher.LogFile(), "certificate of the peer has expired") })
	return end
}
