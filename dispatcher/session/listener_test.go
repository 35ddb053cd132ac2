package session

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// narrow is a connection that takes so many bytes in a second.
type narrow struct {
	net.Conn

	rate int
}

func (c narrow) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		piece := b[n:min(len(b), n+1<<10)]
		<-time.After(time.Duration(len(piece)) * time.Second / time.Duration(c.rate))
		var more int
		more, err = c.Conn.Write(piece)
		n += more
	}
	return n, err
}

// TestALargeVerdictOnASlowLinkIsNoSilence has a verdict that takes 8 s, with a Pong behind it. Without a count of the bytes the
// host is silent all that time.
func TestALargeVerdictOnASlowLinkIsNoSilence(t *testing.T) {
	for name, test := range map[string]struct {
		listener func(net.Listener) net.Listener
		lost     bool
	}{
		"counted":     {listener: stream.Listener},
		"not counted": {listener: func(l net.Listener) net.Listener { return l }, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				network := bufconn.Listen(1 << 16)
				stop := m.serve(test.listener(network))
				defer stop()
				h, conn := dialRemote(t, hello("one", "a"), grpc.WithContextDialer(
					func(ctx context.Context, _ string) (net.Conn, error) {
						c, err := network.DialContext(ctx)
						return narrow{c, 1_000_000 / 8}, err
					}))
				defer conn.Close()
				result, _ := m.ask(10)
				r := h.hear().GetReview()
				h.say(verdict(r, 0, &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{
					Response: &admissionv1.AdmissionResponse{Allowed: true, Patch: make([]byte, 1_000_000), PatchType: "JSONPatch"},
				}}))
				synctest.Wait()
				if got := <-result; got.Failure != nil != test.lost {
					t.Errorf("the call ended with %v", got.Failure)
				}
			})
		})
	}
}
