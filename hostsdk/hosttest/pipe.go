package hosttest

import (
	"context"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// pipeDepth is how many frames each direction of a Peer holds before the sender waits.
const pipeDepth = 16

// Peer is a stream in memory. A host opens it by [Peer.Open]; the test is the dispatcher at its other end. Frames go
// encoded, so that one which no real stream would take fails here too.
type Peer struct {
	toHost, toDispatcher chan []byte

	ended  chan struct{} // by the dispatcher
	finish sync.Once
	why    error // io.EOF, or the status that the host sees; set before ended is closed

	closed    chan struct{} // half-closed by the host
	closeHost sync.Once
	gone      chan struct{} // by the end of the host's context
	leave     sync.Once
}

// Pipe returns a stream that no host has opened yet.
func Pipe() *Peer {
	return &Peer{
		toHost: make(chan []byte, pipeDepth), toDispatcher: make(chan []byte, pipeDepth),
		ended: make(chan struct{}), closed: make(chan struct{}), gone: make(chan struct{}),
	}
}

// Open is the host's way in, a [hostsdk.OpenFunc]. Once.
func (p *Peer) Open(ctx context.Context) (hostsdk.Stream, error) {
	context.AfterFunc(ctx, p.hangUp)
	return &hostEnd{peer: p, ctx: ctx}, nil
}

// Send writes a frame to the host; io.EOF means that the host has left.
func (p *Peer) Send(frame *hostv1.ConnectResponse) error {
	bytes, err := proto.Marshal(frame)
	if err != nil {
		return err
	}
	select {
	case p.toHost <- bytes:
		return nil
	case <-p.gone:
		return io.EOF
	}
}

// Recv waits for the host's next frame; io.EOF means that the host sends no more, context.Canceled that it has left.
func (p *Peer) Recv() (*hostv1.ConnectRequest, error) {
	bytes, ok := next(p.toDispatcher, p.closed, p.gone)
	if !ok {
		return nil, p.farewell()
	}
	frame := &hostv1.ConnectRequest{}
	return frame, proto.Unmarshal(bytes, frame)
}

func (p *Peer) farewell() error {
	select {
	case <-p.closed:
		return io.EOF
	default:
		return context.Canceled
	}
}

// End ends the stream: nil cleanly, else with the error that the host sees.
func (p *Peer) End(why error) {
	p.finish.Do(func() {
		p.why = io.EOF
		if why != nil {
			p.why = why
		}
		close(p.ended)
	})
}

// hangUp ends the host's sending and reading, also if it never opened the stream.
func (p *Peer) hangUp() { p.leave.Do(func() { close(p.gone) }) }

// hostEnd is the host's end of a Peer.
type hostEnd struct {
	peer *Peer
	ctx  context.Context // of the stream, as a gRPC stream has one
}

var _ hostsdk.Stream = (*hostEnd)(nil)

// Send implements [hostsdk.Stream].
func (h *hostEnd) Send(frame []byte) error {
	if err := h.ctx.Err(); err != nil {
		return err // A select would pick any of its cases, and a stream that has broken takes nothing more.
	}
	select {
	case h.peer.toDispatcher <- frame:
		return nil
	case <-h.peer.ended:
		return io.EOF
	case <-h.ctx.Done():
		return h.ctx.Err()
	}
}

// Recv implements [hostsdk.Stream].
func (h *hostEnd) Recv() ([]byte, error) {
	frame, ok := next(h.peer.toHost, h.peer.ended, h.ctx.Done())
	if !ok {
		return nil, h.farewell()
	}
	return frame, nil
}

func (h *hostEnd) farewell() error {
	if err := h.ctx.Err(); err != nil {
		return err
	}
	return h.peer.why
}

// CloseSend implements [hostsdk.Stream].
func (h *hostEnd) CloseSend() error {
	h.peer.closeHost.Do(func() { close(h.peer.closed) })
	return nil
}

// next takes a frame, also a frame that was sent before the end; false when the stream has ended or broken.
func next(frames <-chan []byte, ended, broken <-chan struct{}) ([]byte, bool) {
	select {
	case frame := <-frames:
		return frame, true
	case <-broken:
		return nil, false
	case <-ended:
	}
	select {
	case frame := <-frames:
		return frame, true
	default:
		return nil, false
	}
}
