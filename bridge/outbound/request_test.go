package outbound

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	k8sv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestAWebhookIsAskedAsKubernetesAsks(t *testing.T) {
	type asked struct {
		Method, Path, Query, Protocol, Host, ContentType, Accept, Agent, Parent string
		Length                                                                  bool
		Version, Object                                                         string
	}
	requests := make(chan asked, 1)
	var w *webhook
	answer := allowing(t)
	w = serve(t, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		review := &k8sv1.AdmissionReview{}
		if err := json.Unmarshal(body, review); err != nil {
			t.Error(err)
		}
		requests <- asked{
			r.Method, r.URL.Path, r.URL.RawQuery, r.Proto, r.Host, r.Header.Get("Content-Type"), r.Header.Get("Accept"),
			r.UserAgent(), r.Header.Get("Traceparent"), r.ContentLength == int64(len(body)),
			review.APIVersion, string(review.Request.Object.Raw),
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer(rw, r)
	})
	c := newClient(t, Options{})
	b := batch(w.hook("/a//b/../validate/"))
	const had = 19500 * time.Millisecond
	b.Calls[0].Deadline = time.Now().Add(had)
	b.Calls[0].Span = trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1})
	want(t, start(t, c, b).wait(), "allowed")
	got := <-requests
	checkTold(t, got.Query, had, b.Calls[0].Deadline)
	wanted := asked{
		"POST", "/a/validate", got.Query, "HTTP/1.1", strings.TrimPrefix(w.URL, "https://"), "application/json",
		"application/json, */*", "portcullis-admission", "00-01000000000000000000000000000000-0200000000000000-01", true,
		"admission.k8s.io/v1", string(b.Request.GetObject().GetRaw()),
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestAWebhookThatTakesNoKnownVersionIsNotCalled(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	got := ask(t, newClient(t, Options{}), taking(w.hook("/"), "v2"), taking(w.hook("/")))
	want(t, got, "unavailable", "unavailable")
	if !got[0].Failure.NotStarted {
		t.Error("a call that was never made counts as started")
	}
}

func TestEachCallHasAUIDOfItsOwnAndTheRestIsShared(t *testing.T) {
	reviews := make(chan *k8sv1.AdmissionReview, 6)
	w := serve(t, answering(t, nil), nil...)
	w.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got := readReview(t, r)
		reviews <- got
		answer := k8sv1.AdmissionReview{TypeMeta: got.TypeMeta, Response: &k8sv1.AdmissionResponse{UID: got.Request.UID, Allowed: true}}
		_ = json.NewEncoder(rw).Encode(answer)
	})
	var hooks []*match.Hook
	for range cap(reviews) / 2 {
		hooks = append(hooks, w.hook("/"), taking(w.hook("/"), "v1beta1"))
	}
	want(t, ask(t, newClient(t, Options{}), hooks...), "allowed", "allowed", "allowed", "allowed", "allowed", "allowed")
	uids, versions := map[types.UID]bool{"inbound": true}, map[string]int{}
	for range cap(reviews) {
		r := <-reviews
		if uids[r.Request.UID] {
			t.Errorf("uid %q twice, or not of its own", r.Request.UID)
		}
		uids[r.Request.UID] = true
		versions[r.APIVersion]++
	}
	if diff := cmp.Diff(map[string]int{jsonreview.V1: 3, jsonreview.V1beta1: 3}, versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

func TestAReviewThatIsNotJSONIsNotSent(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	b := batch(w.hook("/"))
	b.Request.Object = &admissionv1.Object{ContentType: "application/vnd.kubernetes.protobuf", Raw: []byte("k8s\x00")}
	want(t, start(t, newClient(t, Options{}), b).wait(), "refused")
}
