package outbound

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// held is a webhook whose answers wait: for answer to be closed, or for their caller to give up.
type held struct {
	*webhook
	entered, left chan struct{}
	answer        chan struct{}
}

func hold(t testing.TB, configure ...func(*httptest.Server)) *held {
	t.Helper()
	h := &held{entered: make(chan struct{}, 100), left: make(chan struct{}, 100), answer: make(chan struct{})}
	allow := allowing(t)
	h.webhook = serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer func() { h.left <- struct{}{} }()
		body, err := io.ReadAll(r.Body) // Only a request that was read to its end notices that its caller has gone.
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.entered <- struct{}{}
		select {
		case <-h.answer:
			allow(w, r)
		case <-r.Context().Done():
		}
	}, configure...)
	return h
}

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("not reached")
	}
}

func TestACallEndsWithItsDeadline(t *testing.T) {
	w := hold(t)
	b := batch(w.hook("/"))
	b.Calls[0].Deadline = time.Now().Add(200 * time.Millisecond)
	got := start(t, newClient(t, Options{}), b).wait()
	want(t, got, "timeout")
	if begun := len(w.entered) > 0; begun && got[0].Failure.NotStarted { // It has not on a machine that is busy enough.
		t.Error("the webhook has begun")
	}
}

func TestACallWhoseDeadlineHasPassedIsNotMade(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	b := batch(w.hook("/"))
	b.Calls[0].Deadline = time.Now().Add(-time.Second)
	got := start(t, newClient(t, Options{}), b).wait()
	want(t, got, "timeout")
	if !got[0].Failure.NotStarted {
		t.Error("nothing was sent")
	}
}

func TestACancelledCallEndsAtOnceAndAloneAtItsWebhookToo(t *testing.T) {
	w := hold(t)
	f := start(t, newClient(t, Options{}), batch(w.hook("/"), w.hook("/")))
	receive(t, w.entered)
	receive(t, w.entered)
	f.cancel(0)
	if d := f.next(); d.i != 0 || kindOf(d.r) != "cancelled" {
		t.Errorf("call %d: %s", d.i, kindOf(d.r))
	}
	f.cancel(0) // Says nothing more.
	receive(t, w.left)
	close(w.answer)
	if d := f.next(); d.i != 1 || kindOf(d.r) != "allowed" {
		t.Errorf("call %d: %s (%v)", d.i, kindOf(d.r), d.r.Failure)
	}
	f.cancel(1)
	select {
	case d := <-f.results:
		t.Errorf("one more result: %v", d)
	default:
	}
}

// The review is over, and its call is not: it may still be sending the object.
func TestACallHoldsTheReservationOfItsReviewUntilItHasEnded(t *testing.T) {
	ledger, err := memory.New(memory.Options{Total: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	reservation, err := ledger.Reserve("prod-1", 100)
	if err != nil {
		t.Fatal(err)
	}
	w, c := hold(t), newClient(t, Options{limits: limits{calls: 1, waiting: 2}})
	b := batch(w.hook("/"), w.hook("/"), w.hook("/")) // the third is refused, and holds nothing
	b.Reservation = reservation
	f := start(t, c, b)
	receive(t, w.entered)
	reservation.Release()
	if n := ledger.InUse(); n != 100 {
		t.Errorf("%d bytes are booked during the calls", n)
	}
	close(w.answer)
	want(t, f.wait(), "allowed", "allowed", "overload")
	eventually(t, "nothing is booked any more", func() bool { return ledger.InUse() == 0 })
}

func TestTheEndOfTheReviewsContextDoesNotEndCalls(t *testing.T) {
	w := hold(t)
	c := newClient(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan review.Result, 1)
	c.Start(ctx, batch(w.hook("/")), func(_ int, r review.Result) { results <- r })
	receive(t, w.entered)
	cancel()
	close(w.answer)
	want(t, []review.Result{receive(t, results)}, "allowed")
}

func TestATargetTakesSoManyCallsAndTheNextOnesWait(t *testing.T) {
	w, other := hold(t), serve(t, allowing(t))
	metrics := prometheus.NewRegistry()
	c := newClient(t, Options{limits: limits{targetCalls: 2, targetWaiting: 3}, Metrics: metrics})
	f := start(t, c, batch(w.hook("/"), w.hook("/"), w.hook("/")))
	receive(t, w.entered)
	receive(t, w.entered)
	eventually(t, "the third call waits", func() bool { return c.waiting() == 1 })

	got := ask(t, c, w.hook("/"), other.hook("/"))
	want(t, got, "overload", "allowed")
	if !got[0].Failure.NotStarted || !strings.Contains(got[0].Failure.Error(), "3 calls") {
		t.Errorf("failure %v", got[0].Failure)
	}
	if n, err := testutil.GatherAndCount(metrics); err != nil || n != 6 {
		t.Errorf("%d metrics, error %v", n, err)
	}
	select {
	case <-w.entered:
		t.Error("a third call is under way")
	default:
	}
	close(w.answer)
	want(t, f.wait(), "allowed", "allowed", "allowed")
}

func TestSoManyCallsAreUnderWayAndTheNextOnesWait(t *testing.T) {
	w, other := hold(t), hold(t)
	c := newClient(t, Options{limits: limits{calls: 1, waiting: 2}})
	first := start(t, c, batch(w.hook("/")))
	receive(t, w.entered)
	second := start(t, c, batch(other.hook("/")))
	got := ask(t, c, other.hook("/"))
	want(t, got, "overload")
	if !got[0].Failure.NotStarted {
		t.Error("nothing was sent")
	}
	close(w.answer)
	want(t, first.wait(), "allowed")
	receive(t, other.entered)
	close(other.answer)
	got = second.wait()
	want(t, got, "allowed")
	if got[0].Timing.Queued <= 0 || got[0].Timing.Wire <= 0 || got[0].Timing.Instance == "" {
		t.Errorf("timing %+v", got[0].Timing)
	}
}

func TestAWaitingCallEndsWithItsDeadline(t *testing.T) {
	for name, l := range map[string]limits{"for its target": {targetCalls: 1}, "for any": {calls: 1}} {
		t.Run(name, func(t *testing.T) {
			w := hold(t)
			c := newClient(t, Options{limits: l})
			first := start(t, c, batch(w.hook("/")))
			receive(t, w.entered)
			b := batch(w.hook("/"))
			b.Calls[0].Deadline = time.Now().Add(20 * time.Millisecond)
			got := start(t, c, b).wait()
			want(t, got, "timeout")
			if !got[0].Failure.NotStarted {
				t.Error("nothing was sent")
			}
			close(w.answer)
			want(t, first.wait(), "allowed")
			want(t, ask(t, c, w.hook("/")), "allowed") // No place was lost.
		})
	}
}

func TestCloseEndsWhatIsUnderWayAndWhatComes(t *testing.T) {
	w := hold(t, func(s *httptest.Server) { s.EnableHTTP2 = true })
	old := hold(t)
	c := newClient(t, Options{limits: limits{targetCalls: 1}})
	f := start(t, c, batch(w.hook("/"), w.hook("/"), old.hook("/")))
	receive(t, w.entered)
	receive(t, old.entered)
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := f.wait()
	want(t, got, "unavailable", "unavailable", "unavailable")
	want(t, ask(t, c, w.hook("/")), "unavailable")
	if n := c.connections.len(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

func TestCloseDoesNotWaitLongerThanItMay(t *testing.T) {
	stuck := make(chan struct{})
	c := newClient(t, Options{Resolver: resolverFunc(func(Service) (string, error) { <-stuck; return "127.0.0.1:1", nil })})
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	f := start(t, c, batch(service(w.hook("/"), "n", "s")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Close(ctx); err == nil {
		t.Error("closed, though a call does not end")
	}
	want(t, f.wait(), "unavailable") // Its result came all the same.
	close(stuck)
}

func TestAPanicCostsItsCallAlone(t *testing.T) {
	w := serve(t, allowing(t))
	c := newClient(t, Options{Resolver: resolverFunc(func(Service) (string, error) { panic("boom") })})
	got := ask(t, c, service(w.hook("/"), "n", "s"), w.hook("/"))
	want(t, got, "panic", "allowed")
	if !strings.Contains(got[0].Failure.Error(), "boom") {
		t.Errorf("failure %v", got[0].Failure)
	}
}

func TestRetryAfterIsHeeded(t *testing.T) {
	for name, test := range map[string]struct {
		status    int
		after     string
		refusals  int32 // how often it is said
		kind      string
		calls     int32
		connected int
	}{
		"429 once":                         {429, "0", 1, "allowed", 2, 1},
		"503 once":                         {503, "0", 1, "allowed", 2, 1},
		"500 as often as it may be":        {500, "0", 10, "allowed", 11, 1},
		"500 once more":                    {500, "0", 11, "handler", 11, 1},
		"a negative time is none":          {503, "-5", 1, "allowed", 2, 1},
		"a time past the deadline":         {503, "86400", 1, "unavailable", 1, 1},
		"a time past all deadlines":        {503, "9223372036854775807", 1, "unavailable", 1, 1},
		"no time":                          {503, "", 1, "unavailable", 1, 1},
		"a date":                           {503, "Wed, 21 Oct 2015 07:28:00 GMT", 1, "unavailable", 1, 1},
		"400 does not ask for it":          {400, "0", 1, "handler", 1, 1},
		"200 does not ask for it":          {200, "0", 1, "bad_answer", 1, 1},
		"a redirect does not ask for it":   {307, "0", 1, "bad_answer", 1, 1},
		"408, though a timeout, does not ": {408, "0", 1, "handler", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			refuse, allow := saying(t, test.status, http.Header{"Retry-After": {test.after}}, "later"), allowing(t)
			w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
				if calls.Add(1) <= test.refusals {
					refuse(rw, r)
					return
				}
				allow(rw, r)
			})
			c := newClient(t, Options{RetryInterval: 1})
			want(t, ask(t, c, w.hook("/")), test.kind)
			if n := calls.Load(); n != test.calls {
				t.Errorf("called %d times, want %d", n, test.calls)
			}
			if n := w.opened(); n != test.connected {
				t.Errorf("%d connections, want %d", n, test.connected)
			}
			if n := testutil.ToFloat64(c.metrics.retries); n != float64(test.calls-1) {
				t.Errorf("%v retries were counted, want %d", n, test.calls-1)
			}
		})
	}
}

// roundTripperFunc is an http.RoundTripper of one function.
type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRetriesAreMadeWhenTheWebhookSaysAndWhileThereIsTime(t *testing.T) {
	for name, test := range map[string]struct {
		after   string
		timeout time.Duration
		asked   []string
		took    time.Duration
	}{
		"in seconds": {"4", 10 * time.Second, []string{"0s timeout=10s", "4s timeout=6s", "8s timeout=2s"}, 8 * time.Second},
		"at once, which is not sooner than the least interval": {
			"0", 350 * time.Millisecond, []string{"0s timeout=1s", "100ms timeout=1s", "200ms timeout=1s", "300ms timeout=1s"}, 300 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				var asked []string
				c := newClient(t, Options{})
				c.targets.dial = func(*endpoint) (*targetTransport, error) {
					return &targetTransport{closeIdle: func() {}, RoundTripper: roundTripperFunc(func(r *http.Request) (*http.Response, error) {
						asked = append(asked, time.Since(begun).String()+" "+r.URL.RawQuery)
						return &http.Response{
							StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {test.after}}, Body: http.NoBody,
						}, nil
					})}, nil
				}
				url := "https://hooks.example.com"
				b := batch(&match.Hook{
					ClientConfig:   admissionregistrationv1.WebhookClientConfig{URL: &url},
					ReviewVersions: []string{"v1"},
				})
				b.Calls[0].Deadline = begun.Add(test.timeout)
				want(t, start(t, c, b).wait(), "unavailable")
				if diff := cmp.Diff(test.asked, asked); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
				if took := time.Since(begun); took != test.took {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestADenialWithRetryAfterEndsTheCall(t *testing.T) {
	const denial = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%UID%","allowed":false,"status":{"message":"no"}}`
	for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		for name, body := range map[string]string{
			"whole": denial + "}", "cut off behind the denial": denial, "larger than an answer may be": denial + strings.Repeat(" ", 4096) + "}",
		} {
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				var calls atomic.Int32
				deny, allow := saying(t, status, http.Header{"Retry-After": {"0"}}, body), allowing(t)
				w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
					if calls.Add(1) == 1 {
						deny(rw, r)
						return
					}
					allow(rw, r)
				})
				want(t, ask(t, newClient(t, Options{limits: limits{answerBytes: 2048}}), w.hook("/")), "denied")
				if n := calls.Load(); n != 1 {
					t.Errorf("asked %d times", n)
				}
			})
		}
	}
}

func TestACallThatWaitsToRetryCanBeCancelled(t *testing.T) {
	w := serve(t, saying(t, http.StatusServiceUnavailable, http.Header{"Retry-After": {strconv.Itoa(int(patience.Seconds()) - 5)}}, ""))
	c := newClient(t, Options{})
	f := start(t, c, batch(w.hook("/")))
	eventually(t, "the call waits to retry", func() bool { return testutil.ToFloat64(c.metrics.retries) == 1 })
	f.cancel(0)
	want(t, f.wait(), "cancelled")
}

func TestManyCallsAtOnce(t *testing.T) {
	w := serve(t, allowing(t))
	c := newClient(t, Options{limits: limits{targetCalls: 8}})
	hooks := make([]*match.Hook, 200)
	kinds := make([]string, len(hooks))
	for i := range hooks {
		hooks[i], kinds[i] = w.hook("/"), "allowed"
	}
	for range 5 {
		want(t, ask(t, c, hooks...), kinds...)
	}
	// A few more than 8: net/http also opens one when a call finds none free, though one comes free before it is open.
	if n := w.opened(); n > len(hooks)/2 {
		t.Errorf("%d connections for 8 calls at a time", n)
	}
	eventually(t, "all calls have left", func() bool { return c.waiting() == 0 && c.limit.inFlight() == 0 })
}
