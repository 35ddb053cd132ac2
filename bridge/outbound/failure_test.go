package outbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestFailuresNameTheRequestAsKubernetesDoes: its own test suite looks for the path and the timeout of the query.
func TestFailuresNameTheRequestAsKubernetesDoes(t *testing.T) {
	const post = `Post "https://hooks.example.com/check?timeout=2s": `
	for name, test := range map[string]struct {
		roundTrip roundTripperFunc
		timeout   time.Duration
		cancel    bool
		kind      string
		text      string
	}{
		"a timeout while connecting": {wait, 2 * time.Second, false, "timeout", post + context.DeadlineExceeded.Error() + ", while connecting"},
		"a timeout of less than a second": {
			wait, time.Second / 2, false, "timeout",
			`Post "https://hooks.example.com/check?timeout=1s": ` + context.DeadlineExceeded.Error() + ", while connecting",
		},
		"a timeout while the webhook works": {connectAndWait, 2 * time.Second, false, "timeout", post + context.DeadlineExceeded.Error() + ", while waiting for the answer"},
		"a deadline that has passed":        {wait, 0, false, "timeout", `/check?timeout=1s": ` + context.DeadlineExceeded.Error()},
		"a caller that hangs up":            {connectAndWait, 2 * time.Second, true, "cancelled", "no longer waited for"},
		"a refused connection":              {refuse, 2 * time.Second, false, "unavailable", post + "connection refused"},
		"a connection that is cut off":      {cutOff, 2 * time.Second, false, "lost", post + "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, Options{})
				carryBy(c, test.roundTrip)
				b := batch(exampleHook())
				b.Calls[0].Deadline = time.Now().Add(test.timeout)
				f := start(t, c, b)
				synctest.Wait()
				if test.cancel {
					f.cancel(0)
				}
				got := f.wait()
				want(t, got, test.kind)
				if text := got[0].Failure.Error(); !strings.Contains(text, test.text) {
					t.Errorf("failure %s, want %s in it", text, test.text)
				}
			})
		})
	}
}

func wait(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func connectAndWait(r *http.Request) (*http.Response, error) {
	connectTo(r)
	return wait(r)
}

func refuse(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }

func cutOff(r *http.Request) (*http.Response, error) {
	connectTo(r)
	return nil, io.ErrUnexpectedEOF
}

func TestFailuresDoNotNameThePasswordOfAURL(t *testing.T) {
	for _, url := range []string{"https://me:secret@hooks.example.com:x/check", "http://me:secret@hooks.example.com", "https://me:secret@hooks.example.com/check"} {
		h := exampleHook()
		h.ClientConfig.URL = &url
		c := newClient(t, Options{})
		carryBy(c, refuse)
		got := ask(t, c, h)
		want(t, got, "unavailable")
		if text := got[0].Failure.Error(); strings.Contains(text, "secret") {
			t.Errorf("the failure of %s: %s", url, text)
		}
	}
}
