package session

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// A host that answers pings and never a cancelled call is let go, and serves again when it comes back. Its calls that
// wait find the new session.
func TestAHostThatLeaksItsSlotsHasToDialAgain(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 4}, "a")
		for range 3 {
			got := m.reviewFor(time.Second, "a")
			h.review()
			got.cancel["a"]()
			got.want("a", "cancelled")
			h.hear() // Cancel
		}
		seeing, s := prometheus.NewRegistry(), m.registry.all()[0]
		if _, err := newInstrumentation(seeing, m.registry); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for s.cause() == nil && time.Since(begun) < time.Hour {
			elapse(PingInterval)
			h.tell(pong())
			h.hear() // Ping
		}
		if cause := s.cause(); !errors.Is(cause, errLeaks) {
			t.Fatalf("the session ended with %v, want %v", cause, errLeaks)
		}
		if after := time.Since(begun); after < LeakedAfter || after > 2*LeakedAfter+PingInterval {
			t.Errorf("the session ended after %s", after)
		}
		if code := h.end(); code != codes.Unavailable {
			t.Errorf("the host is told %s", code)
		}
		again := m.connect("two", &hostv1.Hello{MaxOutstanding: 4}, "a")
		got := m.review("a")
		again.allow(again.review(), 0)
		got.want("a", "allowed")
		if n, err := testutil.GatherAndCount(seeing, "portcullis_host_leaked_slots"); n != 1 || err != nil {
			t.Errorf("%d gauges of leaked slots: %v", n, err)
		}
	})
}
