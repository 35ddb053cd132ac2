package bridge

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

func TestWhoSpeaksHTTPIsToldToSpeakHTTPS(t *testing.T) {
	e := serve(t, testOptions(allow))
	response, err := http.Post("http://"+e.addr+validatePath, "application/json", strings.NewReader(reviewOf("u1", 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "https://") {
		t.Errorf("status %d, body %q, error %v, want 400 that says what to do", response.StatusCode, body, err)
	}
}

// The time of a handshake is taken off the time of the connection's first request: its caller has counted it.
func TestTheFirstReviewOfAConnectionIsGivenWhatItsHandshakeHasLeft(t *testing.T) {
	var deadline time.Time
	b := newBridge(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		deadline = r.Deadline.Add(-r.Uncertain)
		return allow(ctx, r)
	}))
	for _, test := range []struct{ handshake, first time.Duration }{
		{0, 8900 * time.Millisecond},
		{2 * time.Second, 6900 * time.Millisecond},
		{time.Minute, 4450 * time.Millisecond}, // half of it is left in any case
	} {
		ctx := context.WithValue(t.Context(), connectionKey{}, &connection{channel: verified(trusted()), handshake: test.handshake})
		for _, want := range []time.Duration{test.first, 8900 * time.Millisecond} {
			before := time.Now()
			request := httptest.NewRequestWithContext(ctx, http.MethodPost, validatePath+"?timeout=10s", strings.NewReader(reviewOf("u1", 0)))
			request.Header.Set("Content-Type", "application/json")
			request.TLS = trusted()
			b.ServeHTTP(httptest.NewRecorder(), request)
			if deadline.Before(before.Add(want)) || deadline.After(time.Now().Add(want)) {
				t.Errorf("after a handshake of %v the deadline is %v after the start, want %v", test.handshake, deadline.Sub(before), want)
			}
		}
	}
}
