package session

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// network is a router behind a gRPC listener, and hosts that do as the test says.
type network struct {
	*mesh

	listener *bufconn.Listener
}

// overGRPC runs a test in a bubble, with hosts that dial.
func overGRPC(t *testing.T, hooks []string, test func(t *testing.T, n *network)) {
	t.Helper()
	inBubble(t, hooks, func(t *testing.T, m *mesh) {
		t.Helper()
		n := &network{m, bufconn.Listen(1 << 16)}
		stop := m.serve(n.listener)
		defer stop()
		test(t, n)
	})
}

// join connects a host, whose connection ends with hangUp.
func (n *network) join(first *hostv1.ConnectRequest) (h *remote, hangUp func()) {
	n.t.Helper()
	h, conn := dialRemote(n.t, first, n.dialer())
	return h, func() { _ = conn.Close() }
}

// dialer dials the router.
func (n *network) dialer() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return n.listener.DialContext(ctx) })
}

// pending fails the test if a call has ended.
func pending(t *testing.T, got <-chan review.Result) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-got:
		t.Fatalf("the call ended as %+v", r)
	default:
	}
}

// goodbye answers pings until the stream ends, and is how.
func (h *remote) goodbye() codes.Code {
	for {
		f, err := h.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return codes.OK
		case err != nil:
			return status.Code(err)
		case f.GetPing() != nil:
			_ = h.stream.Send(pong())
		}
	}
}

func TestAHostIsTakenAtItsFirstWordAndForItsOwnCallsAlone(t *testing.T) {
	overGRPC(t, []string{"a"}, func(t *testing.T, n *network) {
		bad, badly := n.join(hello("bad", "a"))
		defer badly()
		first, _ := n.ask(10)
		own := bad.hear().GetReview().GetCallId()
		bad.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: &hostv1.Credit{}}})
		synctest.Wait()
		good, well := n.join(hello("good", "a"))
		defer well()
		second, _ := n.ask(10)
		third, _ := n.ask(10)
		good.hear()
		other := good.hear().GetReview().GetCallId() // an id that the bad one has not been given
		bad.allow(other)
		answer := func(allowed bool) *hostv1.Verdict {
			return &hostv1.Verdict{CallId: own, Outcome: &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: allowed}}}
		}
		bad.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdicts{Verdicts: &hostv1.Verdicts{
			Verdicts: []*hostv1.Verdict{answer(false), answer(true)},
		}}})
		bad.allow(own)
		if r := <-first; r.Verdict == nil || r.Verdict.GetAllowed() {
			t.Errorf("a denial became %+v", r)
		}
		pending(t, second)
		pending(t, third)
		good.allow(other - 1)
		good.allow(other)
		for _, got := range []<-chan review.Result{second, third} {
			if r := <-got; !r.Verdict.GetAllowed() {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestAReviewThatEndsTwoConnectionsIsNotSentOverAThird(t *testing.T) {
	overGRPC(t, []string{"a"}, func(t *testing.T, n *network) {
		one, first := n.join(hello("one", "a"))
		got, _ := n.ask(10)
		one.hear()
		two, second := n.join(hello("two", "a"))
		first()
		two.hear()
		three, third := n.join(hello("three", "a"))
		defer third()
		second()
		if r := <-got; r.Failure == nil || r.Failure.Kind != review.FailureLost {
			t.Errorf("the call ended as %+v", r)
		}
		next, _ := n.ask(10)
		three.allow(three.hear().GetReview().GetCallId())
		if r := <-next; r.Failure != nil {
			t.Error(r.Failure)
		}
	})
}

func TestAHostThatDoesNotReadIsLostAndItsCallAnsweredByAnother(t *testing.T) {
	overGRPC(t, []string{"a"}, func(t *testing.T, n *network) {
		stuck, hangUp := n.join(hello("stuck", "a"))
		defer hangUp()
		got, _ := n.ask(1 << 20)
		urgent, _ := n.ask(10) // never handed over
		good, well := n.join(hello("good", "a"))
		defer well()
		begun := time.Now()
		for range 2 {
			for f := good.hear(); ; f = good.hear() {
				if f.GetPing() == nil {
					good.allow(f.GetReview().GetCallId())
					break
				}
				good.say(pong())
				stuck.say(pong()) // it lives, and does not read
			}
		}
		for _, x := range []<-chan review.Result{got, urgent} {
			if r := <-x; r.Failure != nil {
				t.Error(r.Failure)
			}
		}
		if took := time.Since(begun); took < stream.StuckAfter || took > stream.StuckAfter+2*stream.TickInterval {
			t.Errorf("the calls went elsewhere after %s", took)
		}
	})
}

func TestAHostThatConnectsAgainFinishesWhatItHas(t *testing.T) {
	overGRPC(t, []string{"a"}, func(t *testing.T, n *network) {
		old, hangUp := n.join(hello("one", "a"))
		defer hangUp()
		first, _ := n.ask(10)
		id := old.hear().GetReview().GetCallId()
		again, done := n.join(hello("one", "a"))
		defer done()
		if f := old.hear(); f.GetDrain() == nil {
			t.Errorf("the older session is told %v", f)
		}
		second, _ := n.ask(10)
		again.allow(again.hear().GetReview().GetCallId())
		old.allow(id)
		for _, got := range []<-chan review.Result{first, second} {
			if r := <-got; r.Failure != nil {
				t.Error(r.Failure)
			}
		}
		if code := old.goodbye(); code != codes.Aborted {
			t.Errorf("the older session ended with %v", code)
		}
	})
}

func TestAHostHearsWhyItsStreamEnds(t *testing.T) {
	overGRPC(t, []string{"a"}, func(t *testing.T, n *network) {
		h, hangUp := n.join(hello("one", "a"))
		defer hangUp()
		got, _ := n.ask(10)
		id := h.hear().GetReview().GetCallId()
		go n.router.Drain(t.Context(), stream.MaxReview)
		if f := h.hear(); f.GetDrain() == nil {
			t.Errorf("the host is told %v", f)
		}
		h.allow(id)
		if r := <-got; r.Failure != nil {
			t.Error(r.Failure)
		}
		if code := h.goodbye(); code != codes.OK {
			t.Errorf("a drained session ended with %v", code)
		}
	})
	overGRPC(t, []string{"a"}, func(t *testing.T, n *network) {
		conn, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()), n.dialer())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		mute, err := hostv1.NewHostServiceClient(conn).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mute.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a stream without Hello ended with %v", err)
		}
	})
}

func TestWhatALeavingHostSaysItHasNotStartedGoesElsewhere(t *testing.T) {
	overGRPC(t, []string{"a!"}, func(t *testing.T, n *network) {
		leaving, hangUp := n.join(hello("leaving", "a"))
		defer hangUp()
		first, _ := n.ask(10)
		started := leaving.hear().GetReview().GetCallId()
		second, _ := n.ask(10)
		crossed := leaving.hear().GetReview().GetCallId()
		leaving.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{Drain: &hostv1.HostDrain{LastStartedCallId: started}}})
		stays, done := n.join(hello("stays", "a"))
		defer done()
		stays.allow(stays.hear().GetReview().GetCallId())
		leaving.say(verdict(&hostv1.Review{CallId: crossed}, 0, &hostv1.Verdict{Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{}}}))
		leaving.allow(started)
		for _, got := range []<-chan review.Result{first, second} {
			if r := <-got; r.Failure != nil {
				t.Error(r.Failure)
			}
		}
	})
}

func TestHalfOfTheConnectionsOfAHookMayFallSilentAndNoMore(t *testing.T) {
	overGRPC(t, []string{"a"}, func(t *testing.T, n *network) {
		one, first := n.join(hello("one", "a"))
		defer first()
		two, second := n.join(hello("two", "a"))
		defer second()
		three, third := n.join(hello("three", "a"))
		defer third()
		begun := time.Now()
		go one.goodbye() // no other host answers
		lost := make(chan time.Duration, 2)
		for _, silent := range []*remote{two, three} {
			go func() {
				var err error
				for err == nil {
					_, err = silent.stream.Recv()
				}
				lost <- time.Since(begun)
			}()
		}
		for range cap(lost) { // two of three are too many to be their fault, up to the time after which hosts redial
			if after := <-lost; after < stream.HostSilence || after > stream.HostSilence+2*stream.TickInterval {
				t.Errorf("a silent host was lost after %s", after)
			}
		}
	})
}
