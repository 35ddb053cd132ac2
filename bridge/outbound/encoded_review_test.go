package outbound

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	k8sv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/conversion"
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

func TestAWebhookIsToldNoMoreTimeThanItHas(t *testing.T) {
	for remaining, said := range map[time.Duration]string{
		-time.Second: "1s", 0: "1s", time.Nanosecond: "1s", time.Second: "1s", 1900*time.Millisecond - 1: "1s", 1900 * time.Millisecond: "2s",
		9*time.Second + 999*time.Millisecond: "10s", 9500 * time.Millisecond: "9s", 10 * time.Second: "10s", 30 * time.Second: "30s",
	} {
		if got := queryTimeout(remaining).String(); got != said {
			t.Errorf("%v is said as %s, want %s", remaining, got, said)
		}
	}
}

func TestTheFirstKnownVersionIsSpoken(t *testing.T) {
	for _, test := range []struct {
		takes []string
		want  string
	}{
		{[]string{"v1"}, versionV1},
		{[]string{"v1beta1", "v1"}, versionV1beta1},
		{[]string{"v2", "v1alpha1", "v1", "v1beta1"}, versionV1},
		{[]string{"v1alpha1", "v1beta1"}, versionV1beta1},
		{[]string{"v2", "v1alpha1"}, versionV1alpha1},
		{[]string{"v2"}, ""},
		{nil, ""},
	} {
		h := &match.Hook{ID: match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE}, ReviewVersions: test.takes}
		if got := negotiate(h); got != test.want {
			t.Errorf("%q: %q, want %q", test.takes, got, test.want)
		}
		if got := negotiate(mutating(h)); got != test.want && test.want != versionV1alpha1 || got == versionV1alpha1 {
			t.Errorf("%q: a mutating hook is asked in %q", test.takes, got)
		}
	}
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
	if diff := cmp.Diff(map[string]int{versionV1: 3, versionV1beta1: 3}, versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

func TestAReviewIsWrittenOnceForEachVersion(t *testing.T) {
	q := newEncodedReview(createWidget())
	first, err := q.in(versionV1)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := q.in(versionV1)
	other, _ := q.in(versionV1beta1)
	oldest, _ := q.in(versionV1alpha1)
	andAgain, _ := q.in(versionV1alpha1)
	if first != again || first == other || oldest == first || oldest == other || oldest != andAgain {
		t.Errorf("v1 %p and %p, v1beta1 %p, v1alpha1 %p and %p", first, again, other, oldest, andAgain)
	}
}

func TestAWebhookSeesWhatItTakesAndWhatTheClientAskedFor(t *testing.T) {
	gvk := func(group, version, kind string) *admissionv1.GroupVersionKind {
		return &admissionv1.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	gvr := func(group, version, resource string) *admissionv1.GroupVersionResource {
		return &admissionv1.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	const converted = `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{},"spec":{"replicas":2}}`
	for name, test := range map[string]struct {
		change func(*admissionv1.AdmissionRequest)
		want   string // request.* in their order, between the uid and the name
	}{
		"converted for the hook": {
			func(r *admissionv1.AdmissionRequest) {
				r.Kind, r.Resource, r.SubResource = gvk("autoscaling", "v1", "Scale"), gvr("apps", "v1", "deployments"), "scale"
				r.RequestKind, r.RequestResource = gvk("extensions", "v1beta1", "Scale"), gvr("extensions", "v1beta1", "deployments")
				r.RequestSubResource = "scale"
				r.Object = &admissionv1.Object{Raw: []byte(converted)}
			},
			`"kind":{"group":"autoscaling","version":"v1","kind":"Scale"},"resource":{"group":"apps","version":"v1","resource":"deployments"},` +
				`"subResource":"scale","requestKind":{"group":"extensions","version":"v1beta1","kind":"Scale"},` +
				`"requestResource":{"group":"extensions","version":"v1beta1","resource":"deployments"},"requestSubResource":"scale",`,
		},
		"from a caller that does not say what it was asked": {
			func(r *admissionv1.AdmissionRequest) {
				r.RequestKind, r.RequestResource, r.SubResource = nil, nil, "status"
			},
			`"kind":{"group":"example.com","version":"v1","kind":"Widget"},"resource":{"group":"example.com","version":"v1","resource":"widgets"},` +
				`"subResource":"status","requestKind":{"group":"example.com","version":"v1","kind":"Widget"},` +
				`"requestResource":{"group":"example.com","version":"v1","resource":"widgets"},"requestSubResource":"status",`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := createWidget()
			test.change(request)
			for _, version := range []string{versionV1, versionV1beta1} {
				shared, err := newEncodedReview(request).in(version)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(reviewBody(shared, "u").open())
				if err != nil {
					t.Fatal(err)
				}
				want := `"uid":"u",` + test.want + `"name":"w","namespace":"default","operation":"CREATE","userInfo":{"username":"jane"},` +
					`"object":` + string(request.GetObject().GetRaw()) + `,"oldObject":null,"dryRun":false,"options":` + string(request.GetOptions().GetRaw())
				if diff := cmp.Diff(`{"kind":"AdmissionReview","apiVersion":"`+version+`","request":{`+want+`}}`, string(body)); diff != "" {
					t.Errorf("review (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestAReviewThatIsNotJSONIsNotSent(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	b := batch(w.hook("/"))
	b.Request.Object = &admissionv1.Object{ContentType: "application/vnd.kubernetes.protobuf", Raw: []byte("k8s\x00")}
	want(t, start(t, newClient(t, Options{}), b).wait(), "refused")
}

func TestABodyReadsTheSameHoweverItIsRead(t *testing.T) {
	for _, version := range []string{versionV1, versionV1alpha1} {
		t.Run(version, func(t *testing.T) { checkBody(t, version) })
	}
}

func checkBody(t *testing.T, version string) {
	t.Helper()
	request := &admissionv1.ReviewRequest{Request: createWidget(), ApiVersion: version}
	shared, err := conversion.EncodeSharedReview(request)
	if err != nil {
		t.Fatal(err)
	}
	request.Request.Uid = "0df28fbd"
	head, tail := shared.Pieces(request.GetRequest().GetUid())
	whole := slices.Concat(head, bytes.Join(tail, nil))
	b := reviewBody(shared, request.GetRequest().GetUid())
	if b.len() != int64(len(whole)) {
		t.Errorf("length %d, want %d", b.len(), len(whole))
	}
	for name, read := range map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader,
		"in halves":    iotest.HalfReader,
	} {
		got, err := io.ReadAll(read(b.open()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(whole), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if err := iotest.TestReader(b.open(), whole); err != nil {
		t.Error(err)
	}
}
