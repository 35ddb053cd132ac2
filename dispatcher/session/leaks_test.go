package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
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
		seeing := prometheus.NewRegistry()
		if _, err := newInstrumentation(seeing, m.router); err != nil {
			t.Fatal(err)
		}
		var cause error
		begun := time.Now()
		for cause == nil && time.Since(begun) < time.Hour {
			elapse(stream.PingInterval)
			select {
			case cause = <-h.ended:
			default:
				h.tell(pong())
				h.hear() // Ping
			}
		}
		if !strings.Contains(fmt.Sprint(cause), "cancelled calls that the host never answered") {
			t.Fatalf("the session ended with %v", cause)
		}
		if after := time.Since(begun); after < stream.LeakedAfter || after > 2*stream.LeakedAfter+stream.PingInterval {
			t.Errorf("the session ended after %s", after)
		}
		if code := status.Code(cause); code != codes.Unavailable {
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
