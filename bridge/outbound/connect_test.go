package outbound

import (
	"errors"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// exampleHook is a hook at a webhook that no test connects to.
func exampleHook() *match.Hook {
	url := "https://hooks.example.com/check"
	return &match.Hook{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}, ReviewVersions: []string{"v1"}}
}

// carryBy lets a function stand for the connections of a client.
func carryBy(c *Client, roundTrip roundTripperFunc) {
	c.targets.dial = func(*endpoint) (*targetTransport, error) {
		return &targetTransport{closeIdle: func() {}, RoundTripper: roundTrip}, nil
	}
}

// connectTo makes a new connection for a request, as net/http reports it.
func connectTo(r *http.Request) {
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
}

// connectWindow is how many calls may connect at a time to the only target of a client.
func connectWindow(t testing.TB, c *Client) int {
	t.Helper()
	for _, x := range c.targets.byKey {
		return x.gate.connecting.Limit()
	}
	t.Fatal("there is no target")
	return 0
}

func TestOnlyAConnectThatFailedOrTookLongMakesTheWindowSmall(t *testing.T) {
	for name, test := range map[string]struct {
		deadline, cancelAfter time.Duration
		refused               bool
		end                   string
		window                int
	}{
		"a connect that is refused":                    {time.Minute, 0, true, "unavailable", maxConnecting},
		"a deadline shorter than a connect may take":   {minConnectWait - 1, 0, false, "timeout", maxConnecting + 1},
		"a deadline as long as a connect may take":     {minConnectWait, 0, false, "timeout", maxConnecting},
		"a cancellation sooner than a connect may end": {time.Minute, minConnectWait - 1, false, "cancelled", maxConnecting + 1},
		"a cancellation after that":                    {time.Minute, minConnectWait, false, "cancelled", maxConnecting},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, Options{})
				first := true
				carryBy(c, func(r *http.Request) (*http.Response, error) {
					if first {
						first = false
						connectTo(r)
						return nil, errors.New("cut off")
					}
					if test.refused {
						return nil, errors.New("refused")
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
				want(t, ask(t, c, exampleHook()), "lost")
				b := batch(exampleHook())
				b.Calls[0].Deadline = time.Now().Add(test.deadline)
				f := start(t, c, b)
				if test.cancelAfter > 0 {
					<-time.After(test.cancelAfter)
					f.cancel(0)
				}
				want(t, f.wait(), test.end)
				synctest.Wait()
				if n := connectWindow(t, c); n != test.window {
					t.Errorf("%d calls may connect at a time, want %d", n, test.window)
				}
			})
		})
	}
}
