package answers

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// failureOf is a Status whose JSON has a number of bytes.
func failureOf(bytes int) string {
	const form = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"%s"}`
	return fmt.Sprintf(form, strings.Repeat("x", bytes-len(form)+2))
}

// TestAStatusWithoutAnErrorOfHTTPIsAsShortAsAnError: client-go makes an error of it, which is kept.
func TestAStatusWithoutAnErrorOfHTTPIsAsShortAsAnError(t *testing.T) {
	long := strings.Repeat("x", MaxErrorBytes)
	const tooLarge = "a Status in the answer of the API server is larger than 65536 bytes"
	for name, test := range map[string]struct{ body, want, err string }{
		"a failure":                  {failureOf(MaxErrorBytes), `"message":"the API server answered HTTP 200: \"xxxx`, ""},
		"a larger one":               {failureOf(MaxErrorBytes + 1), "", tooLarge},
		"its kind comes last":        {`{"message":"` + long + `","status":"Failure","kind":"Status"}`, "", tooLarge},
		"escapes":                    {`{"\u006bind":"\u0053tatus","message":"` + long + `"}`, "", tooLarge},
		"its kind is a later one":    {`{"kind":"Pod","kind":"Status","message":"` + long + `"}`, "", tooLarge},
		"a success":                  {`{"kind":"Status","status":"Success","message":"all"}`, `"message":"all"`, ""},
		"no status":                  {`{"kind":"Status","message":"` + long[:1000] + `"}`, `HTTP 200: \"xxxx`, ""},
		"another object":             {`{"kind":"Pod","message":"` + long + `"}`, long, ""},
		"a member of another object": {`{"kind":"Pod","status":{"kind":"Status"},"message":"` + long + `"}`, long, ""},
		"another member":             {`{"reason":"Status","message":"` + long + `"}`, long, ""},
		"a longer name":              {`{"kind":"StatusList","kinds":"Status","message":"` + long + `"}`, long, ""},
	} {
		over := Transport{RoundTripper: &answering{header: typed("application/json"), body: test.body}}
		got, err := read(t, over, "")
		if (test.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.err) || !strings.Contains(got, test.want) {
			t.Errorf("%s: %.200q, %v", name, got, err)
		}
		if err == nil && strings.Contains(test.body, "Failure") && len(got) > 1000 {
			t.Errorf("%s: %d bytes are kept", name, len(got))
		}
	}
}

// TestTheErrorOfAStatusIsShort reads one by the client that the mesh has.
func TestTheErrorOfAStatusIsShort(t *testing.T) {
	config := rest.ClientContentConfig{Negotiator: runtime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), metav1.SchemeGroupVersion)}
	over := Transport{RoundTripper: &answering{header: typed("application/json"), body: failureOf(MaxErrorBytes)}}
	client, err := rest.NewRESTClient(mustURL(t), "", config, nil, &http.Client{Transport: over})
	if err != nil {
		t.Fatal(err)
	}
	err = client.Get().AbsPath("/api/v1/namespaces/a").Do(t.Context()).Into(&corev1.Namespace{})
	if err == nil || !apierrors.IsNotFound(err) || len(err.Error()) > 1000 {
		t.Errorf("%.200v", err)
	}
}

func TestAnEventOfAWatchThatIsAStatusIsBounded(t *testing.T) {
	event := func(object string) string { return `{"type":"ERROR","object":` + object + `}` }
	const around = len(`{"type":"ERROR","object":`)
	for name, test := range map[string]struct {
		body string
		ok   bool
	}{
		"a failure":              {event(failureOf(MaxErrorBytes - around - 1)), true},
		"a larger one":           {event(failureOf(MaxErrorBytes - around)), false},
		"its kind comes last":    {event(`{"message":"` + strings.Repeat("x", MaxErrorBytes) + `","kind":"Status"}`), false},
		"an object behind one":   {event(failureOf(1000)) + "\n" + event(`{"kind":"Pod","message":"`+strings.Repeat("x", MaxErrorBytes)+`"}`), true},
		"the event is no Status": {`{"kind":"Status","object":{"kind":"Pod","message":"` + strings.Repeat("x", MaxErrorBytes) + `"}}`, true},
	} {
		got, err := read(t, Transport{RoundTripper: &answering{header: typed("application/json"), body: test.body}}, "?watch=1")
		if (err == nil) != test.ok || err == nil && got != test.body {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func TestErrorsOfAWatchAreAsShortAsErrors(t *testing.T) {
	long := strings.Repeat("x", MaxErrorBytes)
	gone := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: long}
	loose := &unstructured.Unstructured{Object: map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": int64(http.StatusGone), "reason": "Expired", "message": long,
	}}
	pod := &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "apiVersion": "v1", "message": long}}
	fake := watch.NewFake()
	w := Shortened(fake)
	defer w.Stop()
	for name, test := range map[string]struct {
		event   watch.Event
		expired bool
		short   bool
	}{
		"a Status":       {watch.Event{Type: watch.Error, Object: gone}, true, true},
		"of no type":     {watch.Event{Type: watch.Error, Object: loose}, true, true},
		"another object": {watch.Event{Type: watch.Error, Object: pod}, false, true},
		"no error":       {watch.Event{Type: watch.Modified, Object: pod}, false, false},
	} {
		go fake.Action(test.event.Type, test.event.Object)
		select {
		case got := <-w.ResultChan():
			err := apierrors.FromObject(got.Object)
			if apierrors.IsResourceExpired(err) != test.expired || got.Type != test.event.Type {
				t.Errorf("%s: %s, %.200v", name, got.Type, err)
			}
			if s := apierrors.APIStatus(nil); test.short && (!errors.As(err, &s) || len(err.Error()) > 1000) || !test.short && got.Object != test.event.Object {
				t.Errorf("%s: %.200v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatal("no event comes")
		}
	}
}

func mustURL(t *testing.T) *url.URL {
	t.Helper()
	u, err := url.Parse("http://cluster")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestAShortenedWatchThatIsStoppedLeavesNothing: with an event that is not read, and twice.
func TestAShortenedWatchThatIsStoppedLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails while a goroutine is left
		fake := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 3})
		w := Shortened(fake)
		fake.Action(watch.Error, &metav1.Status{})
		fake.Action(watch.Error, &metav1.Status{})
		synctest.Wait()
		w.Stop()
		w.Stop()
		synctest.Wait()
		if _, open := <-w.ResultChan(); open {
			t.Error("an event comes after the end")
		}
	})
}
