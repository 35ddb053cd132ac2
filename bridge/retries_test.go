package bridge

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// TestARetryForWantOfMemoryHasTheDeadlineOfItsFirstAttempt: each attempt of an API server announces the whole time, and the last one
// must bring the reason.
func TestARetryForWantOfMemoryHasTheDeadlineOfItsFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := testOptions(allow)
		options.MaxBodyBytes, options.Memory = 4<<10, ledger(4<<20)
		e := serveInBubble(t, newBridge(t, options), ServerOptions{})
		held, err := options.Memory.Reserve("prod-1", 2<<20)
		if err != nil {
			t.Fatal(err)
		}
		client := e.client(t)
		refused := func(uid, want string) {
			t.Helper()
			got := ask(t, client, e.url(validatePath+"?timeout=4s"), reviewOf(uid, 0))
			if retry := got.header.Get("Retry-After"); got.status != http.StatusTooManyRequests || retry != want || !strings.Contains(got.message, "no memory") {
				t.Errorf("%s: %+v, want 429 with Retry-After %q and the reason", uid, got, want)
			}
		}

		refused("first", "1")
		<-time.After(time.Second)
		refused("first", "1")
		refused("second", "1")
		<-time.After(time.Second)
		refused("first", "")
		refused("second", "1")
		<-time.After(time.Second)
		refused("first", "")
		refused("second", "")
		<-time.After(MaxTimeout)
		refused("first", "1") // a direct caller may use a uid again

		held.Release()
		client.CloseIdleConnections()
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestOverloadedDispatchersAreNotMistakenForDeadOnes: the remedy is another one. The error of the Reviewer is not for callers.
func TestOverloadedDispatchersAreNotMistakenForDeadOnes(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		status int
		says   string
	}{
		"none is reached":      {fmt.Errorf("%w: 10.0.0.7", ErrNoDispatcher), http.StatusServiceUnavailable, "reaches no dispatcher that judges"},
		"they are overloaded":  {fmt.Errorf("%w: %w: 10.0.0.7", ErrNoDispatcher, ErrOverloaded), http.StatusTooManyRequests, "the dispatchers are overloaded: try again, or add dispatchers"},
		"this process is full": {fmt.Errorf("%w: %w", ErrNoDispatcher, review.ErrNoMemory), http.StatusTooManyRequests, "raise --memory-budget of the dispatcher"},
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, testOptions(func(context.Context, *review.Request) (review.Answer, error) { return review.Answer{}, tt.err }))
			got := ask(t, e.client(t), e.url(validatePath), reviewOf("u", 0))
			if got.status != tt.status || got.header.Get("Retry-After") != "1" || !strings.Contains(got.message, tt.says) || strings.Contains(got.message, "10.0.0.7") {
				t.Errorf("%+v, want %d with %q", got, tt.status, tt.says)
			}
		})
	}
}
