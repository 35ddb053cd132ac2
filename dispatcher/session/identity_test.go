package session

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/wire"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// lasting is the channel of a host, until a test ends it.
type lasting struct {
	peer  identity.Peer
	ended atomic.Pointer[error]
}

func (c *lasting) end(why error) { c.ended.Store(&why) }

// Identity implements [identity.Channel].
func (c *lasting) Identity() (identity.Peer, error) {
	if why := c.ended.Load(); why != nil {
		return identity.Peer{}, *why
	}
	return c.peer, nil
}

// bind has these authorities alone vouch for "host" on hook a.
func (m *mesh) bind(authorities ...string) {
	m.t.Helper()
	m.authorities = authorities
	m.configure("a")
}

func TestAHostIsGrantedByItsAuthorityToo(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.bind("sha256:ours")
		stranger := m.dialAs(identity.Named("host", "sha256:theirs"), 8)
		stranger.say(hello("one", "a"))
		state := stranger.hear().GetWelcome().GetHooks()[0]
		if state.GetState() != hostv1.State_STATE_NOT_AUTHORIZED || !strings.Contains(state.GetMessage(), "sha256:theirs") {
			t.Errorf("a host of another authority: %v", state)
		}
		ours := m.dialAs(identity.Named("host", "sha256:root", "sha256:ours"), 8)
		ours.say(hello("one", "a"))
		if state := ours.hear().GetWelcome().GetHooks()[0]; state.GetState() != hostv1.State_STATE_IN_ROTATION {
			t.Errorf("a host of the authority: %v", state)
		}
		if f := stranger.hear(); f != nil {
			t.Errorf("one instance of another authority was told %v", f)
		}
		m.bind("sha256:theirs") // a route that changes moves the hook
		if state := ours.hear().GetHookState(); state.GetState() != hostv1.State_STATE_NOT_AUTHORIZED {
			t.Errorf("after another authority was named: %v", state)
		}
		if state := stranger.hear().GetHookState(); state.GetState() != hostv1.State_STATE_IN_ROTATION {
			t.Errorf("after its authority was named: %v", state)
		}
	})
}

func TestASessionEndsWithTheIdentityOfItsHost(t *testing.T) {
	for _, why := range []error{identity.ErrExpired, identity.ErrUntrusted} {
		inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
			channel := &lasting{peer: identity.Named("host")}
			h := m.dialAs(channel, 64)
			h.say(hello("one", "a"))
			h.hear()
			got := m.review("a")
			r := h.review()
			channel.end(why)
			elapse(stream.TickInterval)
			if g := h.hear().GetDrain().GetGraceMs(); g != wire.Milliseconds(stream.LapsedGrace) {
				t.Errorf("calls in flight have %d ms", g)
			}
			waits := m.review("a") // for a host that is known
			h.allow(r, 0)
			got.want("a", "allowed")
			h.pongs()
			if err := <-h.ended; status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), why.Error()) {
				t.Errorf("the session ended with %v", err)
			}
			again := m.connect("one", &hostv1.Hello{}, "a")
			again.allow(again.review(), 0)
			waits.want("a", "allowed")
		})
	}
}

func TestACallThatOutlastsTheIdentityOfItsHostIsLost(t *testing.T) {
	inBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
		channel := &lasting{peer: identity.Named("host")}
		h := m.dialAs(channel, 64)
		h.say(hello("one", "a"))
		h.hear()
		got := m.review("a")
		h.review()
		channel.end(identity.ErrExpired)
		for range stream.LapsedGrace / stream.TickInterval {
			elapse(stream.TickInterval)
			h.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{}}})
		}
		elapse(2 * stream.TickInterval)
		if c := h.end(); c != codes.Unauthenticated {
			t.Errorf("the session ended with %v", c)
		}
		got.want("a", "lost")
	})
}

func TestAHostWithoutAnIdentityIsNotServed(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		if c := m.dialAs(identity.Peer{}, 8).end(); c != codes.Unauthenticated {
			t.Errorf("the session ended with %v", c)
		}
	})
}

func TestAHostReadsWhyItsIdentityEnded(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		channel := &lasting{peer: identity.Named("host")}
		network := bufconn.Listen(1 << 16)
		m.server = NewServer(m.router, func(context.Context) identity.Channel { return channel })
		server := grpc.NewServer(ServerOptions()...)
		hostv1.RegisterHostServiceServer(server, m.server)
		go func() { _ = server.Serve(network) }()
		defer server.Stop()
		h, conn := dialRemote(t, chunkHost(), grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx) }))
		defer conn.Close()
		channel.end(identity.ErrExpired)
		for {
			f, err := h.stream.Recv()
			if err != nil {
				if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "expired") {
					t.Errorf("the stream ended with %v", err)
				}
				return
			}
			if p := f.GetPing(); p != nil {
				h.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: p.GetSeq()}}})
			}
		}
	})
}

// pongs has a host say something until its session has ended.
func (h *host) pongs() {
	for h.ctx.Err() == nil {
		select {
		case h.in <- &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{}}}:
			elapse(stream.TickInterval / 4)
		case <-h.ctx.Done():
		}
	}
}

func TestAHostOfAnotherAuthorityTakesNoSessionsOfTheGranted(t *testing.T) {
	d := newDoor(t)
	d.mesh.t, d.mesh.authorities = t, []string{"sha256:ours"}
	d.mesh.configure("a")
	came := 0
	for i := range 2 * MaxUngrantedOfIdentity {
		stranger := identity.Named("host", "sha256:theirs")
		if d.joinAs(stranger, hello(fmt.Sprint(i), "a").GetHello()) == nil {
			came++
		}
	}
	if came != MaxUngrantedOfIdentity {
		t.Errorf("%d sessions of the name with another authority came, want %d", came, MaxUngrantedOfIdentity)
	}
	for i := range 2 * MaxUngrantedOfIdentity {
		if err := d.joinAs(identity.Named("host", "sha256:ours"), hello(fmt.Sprint(i), "a").GetHello()); err != nil {
			t.Fatalf("session %d of the authority: %v", i, err)
		}
	}
	for _, s := range d.router.all() {
		if vouched := s.Peer.VouchedBy(d.mesh.authorities); vouched == (s.tenant.ungranted.Load() != 0) {
			t.Errorf("%v is granted: %v", s.Peer, !vouched)
		}
	}
}
