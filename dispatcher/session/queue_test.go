package session

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// waitingTicket is a ticket of a cluster.
func waitingTicket(cluster string) *ticket {
	batch := &dispatcher.Batch{
		Request: &admissionv1.AdmissionRequest{Cluster: cluster}, Calls: []review.Call{{Hook: &match.Hook{}}},
	}
	return ticketOf(batch)
}

// ticketOf is a ticket of the first call of a batch, whose result is lost.
func ticketOf(b *dispatcher.Batch) *ticket {
	return &ticket{done: func(int, review.Result) {}, request: b.Request, call: &b.Calls[0], body: stream.NewBody(b, trace.SpanContext{})}
}

func TestALineIsAsLongAsTheRoomThatIsLeft(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		p := newPool(&m.registry.queued, time.Now())
		defer p.abandon()
		fill := func(cluster string) (n int) {
			for ; ; n++ {
				k := waitingTicket(cluster)
				if first, f := p.enqueue(k, time.Now()); f != nil {
					return n
				} else if first != (n == 0) {
					t.Fatalf("call %d of %s is the first: %t", n, cluster, first)
				}
			}
		}
		if n := fill("a"); n != MaxWaiting/2 {
			t.Errorf("one cluster has %d calls, want half of %d", n, MaxWaiting)
		}
		if n := fill("b"); n != MaxWaiting/4 {
			t.Errorf("the next one has %d", n)
		}
		for i := range MaxWaiting {
			if fill(fmt.Sprint(i)) == 0 {
				break
			}
		}
		if n := p.waiting.Len(); n > MaxWaiting || n < MaxWaiting-1 || m.registry.queued.Load() != int64(n) {
			t.Errorf("%d calls wait, at most %d may; %d are counted", n, MaxWaiting, m.registry.queued.Load())
		}
	})
}

func TestTheFloodOfAClusterIsNoOverloadForTheOthers(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		ended := make(chan string, MaxWaiting)
		call := func(cluster string) func(int) {
			batch := m.call()
			batch.Request = &admissionv1.AdmissionRequest{Cluster: cluster}
			return m.registry.Start(t.Context(), batch, func(_ int, r review.Result) {
				how := "allowed"
				if r.Failure != nil {
					how = r.Failure.Kind.String()
				}
				ended <- cluster + " " + how
			})
		}
		want := func(how string) {
			t.Helper()
			synctest.Wait()
			select {
			case got := <-ended:
				if got != how {
					t.Errorf("%s, want %s", got, how)
				}
			default:
				t.Errorf("nothing ended, want %s", how)
			}
		}
		var flood []func(int)
		for range 1 + MaxWaiting/2 { // one is on the host
			flood = append(flood, call("loud"))
		}
		call("loud")
		want("loud overload")
		call("quiet")
		h.allow(h.review(), 0)
		want("loud allowed")
		h.allow(h.review(), 0)
		want("loud allowed")
		h.allow(h.review(), 0)
		want("quiet allowed")
		for _, cancel := range flood {
			cancel(0)
		}
		h.allow(h.review(), 0)
	})
}
