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

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// converter is the clientConfig of a conversion webhook at w.
func (w *webhook) converter(path string) *apiextensionsv1.WebhookClientConfig {
	url := w.URL + path
	return &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: w.ca}
}

// echoing answers with the body of the request.
func echoing(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.Copy(w, r.Body)
}

// wantFailure checks how a call failed.
func wantFailure(t testing.TB, err error, kind review.FailureKind, text string) {
	t.Helper()
	var f *review.Failure
	if !errors.As(err, &f) || f.Kind != kind || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %s, %q", err, kind, text)
	}
}

func TestAConversionWebhookIsCalledAsAnAdmissionWebhookIs(t *testing.T) {
	requests := make(chan *http.Request, 1)
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		requests <- r.Clone(t.Context())
		echoing(rw, r)
	})
	c := newClient(t, Options{})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	latest := time.Now().Add(conversionTimeout)
	got, err := c.Conversions("prod-1").CallConversion(ctx, w.converter("/convert"), []byte(`{"a":1}`))
	if err != nil || string(got) != `{"a":1}` {
		t.Fatalf("%v: %s", err, got)
	}
	r := <-requests
	checkTold(t, r.URL.RawQuery, conversionTimeout, latest)
	if diff := cmp.Diff([]string{"POST /convert", "application/json", "00-01000000000000000000000000000000-0200000000000000-01"},
		[]string{r.Method + " " + r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Traceparent")}); diff != "" {
		t.Errorf("the request (-want +got):\n%s", diff)
	}
	const had = 14500 * time.Millisecond
	latest = time.Now().Add(had)
	ctx, cancel := context.WithDeadline(t.Context(), latest)
	defer cancel()
	if _, err = c.Conversions("prod-1").CallConversion(ctx, w.converter("/convert"), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	checkTold(t, (<-requests).URL.RawQuery, had, latest)
	if n := w.opened(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestWhatAConversionWebhookSaysAfterTheEndIsNoAnswer(t *testing.T) {
	c := newClient(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	carryBy(c, func(*http.Request) (*http.Response, error) {
		cancel()
		return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Body: http.NoBody}, nil
	})
	url := "https://hooks.example.com"
	_, err := c.Conversions("prod-1").CallConversion(ctx, &apiextensionsv1.WebhookClientConfig{URL: &url}, []byte(`{}`))
	wantFailure(t, err, review.FailureCancelled, "reading the answer")
}

func TestConversionsAndReviewsShareConnections(t *testing.T) {
	allow := allowing(t)
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/convert" {
			echoing(rw, r)
			return
		}
		allow(rw, r)
	})
	c := newClient(t, Options{})
	for range 5 {
		want(t, ask(t, c, w.hook("/validate")), "allowed")
		if _, err := c.Conversions("prod-1").CallConversion(t.Context(), w.converter("/convert"), []byte(`{}`)); err != nil {
			t.Error(err)
		}
	}
	if n := w.opened(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestTheServiceOfAConversionWebhookIsOneOfTheCluster(t *testing.T) {
	ca := authority(t)
	hosts := make(chan [2]string, 1)
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		hosts <- [2]string{r.Host + r.URL.Path, r.TLS.ServerName}
		echoing(rw, r)
	}, presenting(t, ca, "converter.widgets.svc"))
	resolved := make(chan Service, 1)
	c := newClient(t, Options{Resolver: resolverFunc(func(s Service) (string, error) {
		resolved <- s
		return w.Listener.Addr().String(), nil
	})})
	path, port := "/convert", int32(8443)
	for name, x := range map[string]struct {
		service apiextensionsv1.ServiceReference
		port    int32
		host    string
	}{
		"defaulted": {apiextensionsv1.ServiceReference{Namespace: "widgets", Name: "converter"}, 443, "converter.widgets.svc:443/"},
		"spelled":   {apiextensionsv1.ServiceReference{Namespace: "widgets", Name: "converter", Path: &path, Port: &port}, 8443, "converter.widgets.svc:8443/convert"},
	} {
		at := &apiextensionsv1.WebhookClientConfig{Service: &x.service, CABundle: ca.CA().CertPEM}
		if _, err := c.Conversions("prod-2").CallConversion(t.Context(), at, []byte(`{}`)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(Service{Cluster: "prod-2", Namespace: "widgets", Name: "converter", Port: x.port}, <-resolved); diff != "" {
			t.Errorf("%s: resolved (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff([2]string{x.host, "converter.widgets.svc"}, <-hosts); diff != "" {
			t.Errorf("%s: host and server name (-want +got):\n%s", name, diff)
		}
	}
}

func TestAConversionWebhookHasToBeTrusted(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	c := newClient(t, Options{}).Conversions("prod-1")
	for name, ca := range map[string][]byte{"by the system": nil, "by another authority": authority(t).CA().CertPEM} {
		at := w.converter("/")
		at.CABundle = ca
		_, err := c.CallConversion(t.Context(), at, []byte(`{}`))
		wantFailure(t, err, review.FailureUnavailable, "certificate")
		if t.Failed() {
			t.Error(name)
		}
	}
	plaintext := strings.Replace(w.URL, "https", "http", 1)
	_, err := c.CallConversion(t.Context(), &apiextensionsv1.WebhookClientConfig{URL: &plaintext}, []byte(`{}`))
	if err == nil || !strings.Contains(err.Error(), "want https://") {
		t.Errorf("plain text: %v", err)
	}
}

func TestAnAnswerOfAConversionIsAsLongAsItMayBe(t *testing.T) {
	const limit = 1 << 16
	answer := strings.Repeat("x", limit+1)
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		rest := strings.TrimPrefix(r.URL.Path, "/")
		_, _ = io.WriteString(rw, answer[len(rest):])
	})
	c := newClient(t, Options{limits: limits{answerBytes: limit}}).Conversions("prod-1")
	got, err := c.CallConversion(t.Context(), w.converter("/1"), []byte(`{}`))
	if err != nil || len(got) != limit {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	_, err = c.CallConversion(t.Context(), w.converter("/"), []byte(`{}`))
	wantFailure(t, err, review.FailureBadAnswer, "larger than 65536 bytes")
}

func TestASlowConversionEndsWithItsReview(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	w := serve(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	defer close(release)
	c := newClient(t, Options{}).Conversions("prod-1")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := c.CallConversion(ctx, w.converter("/"), []byte(`{}`))
	wantFailure(t, err, review.FailureCancelled, "waiting for the answer")

	ctx, cancel = context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err = c.CallConversion(ctx, w.converter("/"), []byte(`{}`))
	wantFailure(t, err, review.FailureTimeout, "context deadline exceeded")
}

func TestAConversionTakesNoLongerThanThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{Resolver: resolverFunc(func(Service) (string, error) { return "", errors.New("not reached") }), limits: limits{targetCalls: 1}})
		if err != nil {
			t.Fatal(err)
		}
		url := "https://webhook.invalid"
		at := &apiextensionsv1.WebhookClientConfig{URL: &url}
		e, err := c.locate(t.Context(), "", clientConfig(at))
		if err != nil {
			t.Fatal(err)
		}
		busy, f := c.targets.acquire(e, "prod-1") // Another call, which does not end.
		if f != nil {
			t.Fatal(f)
		}
		other := &callPermit{cluster: "prod-1", gate: &busy.gate}
		c.limit.enter(other)
		begun := time.Now()
		_, err = c.Conversions("prod-1").CallConversion(t.Context(), at, []byte(`{}`))
		wantFailure(t, err, review.FailureTimeout, "waiting for other calls to the same webhook")
		if took := time.Since(begun); took != conversionTimeout {
			t.Errorf("after %s", took)
		}
		c.limit.leave(other)
		c.targets.release(busy, "prod-1")
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseEndsConversionsAndWaitsForThem(t *testing.T) {
	arrived := make(chan struct{})
	w := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // Only then the server sees that the caller hangs up.
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	c := newClient(t, Options{})
	ended := make(chan error, 1)
	go func() {
		_, err := c.Conversions("prod-1").CallConversion(context.WithoutCancel(t.Context()), w.converter("/"), []byte(`{}`))
		ended <- err
	}()
	<-arrived
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	wantFailure(t, <-ended, review.FailureCancelled, "no longer waited for")
	_, err := c.Conversions("prod-1").CallConversion(t.Context(), w.converter("/"), []byte(`{}`))
	wantFailure(t, err, review.FailureUnavailable, "this process is stopping")
}

func TestTooManyConversionsFailAtOnce(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
		echoing(rw, r)
	})
	c := newClient(t, Options{limits: limits{calls: 1, waiting: 2}})
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := c.Conversions("prod-1").CallConversion(t.Context(), w.converter("/"), []byte(`{}`))
			ended <- err
		}()
	}
	<-arrived
	eventually(t, "one call waits", func() bool { return c.waiting() == 1 })
	_, err := c.Conversions("prod-1").CallConversion(t.Context(), w.converter("/"), []byte(`{}`))
	wantFailure(t, err, review.FailureOverload, `2 calls to webhooks are under way or wait, 2 of them of cluster "prod-1"`)
	close(release)
	<-arrived
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestAConversionWebhookMayAskForAnotherTry(t *testing.T) {
	tries := 0
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if tries++; tries < 3 {
			rw.Header().Set("Retry-After", "0")
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		echoing(rw, r)
	})
	got, err := newClient(t, Options{}).Conversions("prod-1").CallConversion(t.Context(), w.converter("/"), []byte(`{"a":1}`))
	if err != nil || string(got) != `{"a":1}` || tries != 3 {
		t.Errorf("%v after %d tries: %s", err, tries, got)
	}
}
