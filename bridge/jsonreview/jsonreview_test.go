package jsonreview_test

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// createWidget is a review of a custom resource.
func createWidget() *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: "inbound", Cluster: "prod-1",
		Kind:            &admissionv1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		Resource:        &admissionv1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		RequestKind:     &admissionv1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		RequestResource: &admissionv1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		Name:            "w", Namespace: "default", Operation: "CREATE",
		UserInfo: &admissionv1.UserInfo{Username: "jane"},
		Object:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}`)},
		Options:  &admissionv1.Object{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)},
		DryRun:   new(bool),
	}
}

func TestAWebhookIsToldNoMoreTimeThanItHas(t *testing.T) {
	for remaining, said := range map[time.Duration]string{
		-time.Second: "1s", 0: "1s", time.Nanosecond: "1s", time.Second: "1s", 1900*time.Millisecond - 1: "1s", 1900 * time.Millisecond: "2s",
		9*time.Second + 999*time.Millisecond: "10s", 9500 * time.Millisecond: "9s", 10 * time.Second: "10s", 30 * time.Second: "30s",
	} {
		if got := jsonreview.Timeout(remaining).String(); got != said {
			t.Errorf("%v is said as %s, want %s", remaining, got, said)
		}
	}
}

func TestTheFirstKnownVersionIsSpoken(t *testing.T) {
	for _, test := range []struct {
		takes []string
		want  string
	}{
		{[]string{"v1"}, jsonreview.V1},
		{[]string{"v1beta1", "v1"}, jsonreview.V1beta1},
		{[]string{"v2", "v1alpha1", "v1", "v1beta1"}, jsonreview.V1},
		{[]string{"v1alpha1", "v1beta1"}, jsonreview.V1beta1},
		{[]string{"v2", "v1alpha1"}, jsonreview.V1alpha1},
		{[]string{"v2"}, ""},
		{nil, ""},
	} {
		if got := jsonreview.Negotiate(admissionv1.Stage_STAGE_VALIDATE, test.takes); got != test.want {
			t.Errorf("%q: %q, want %q", test.takes, got, test.want)
		}
		if got := jsonreview.Negotiate(admissionv1.Stage_STAGE_MUTATE, test.takes); got != test.want && test.want != jsonreview.V1alpha1 || got == jsonreview.V1alpha1 {
			t.Errorf("%q: a mutating hook is asked in %q", test.takes, got)
		}
	}
}

func TestAReviewIsWrittenOnceForEachVersion(t *testing.T) {
	q := jsonreview.New(createWidget())
	first, err := q.In(jsonreview.V1)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := q.In(jsonreview.V1)
	other, _ := q.In(jsonreview.V1beta1)
	oldest, _ := q.In(jsonreview.V1alpha1)
	andAgain, _ := q.In(jsonreview.V1alpha1)
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
			for _, version := range []string{jsonreview.V1, jsonreview.V1beta1} {
				shared, err := jsonreview.New(request).In(version)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(jsonreview.NewBody(shared, "u").Open())
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

func TestABodyReadsTheSameHoweverItIsRead(t *testing.T) {
	for _, version := range []string{jsonreview.V1, jsonreview.V1alpha1} {
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
	b := jsonreview.NewBody(shared, request.GetRequest().GetUid())
	if b.Len() != int64(len(whole)) {
		t.Errorf("length %d, want %d", b.Len(), len(whole))
	}
	for name, read := range map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader,
		"in halves":    iotest.HalfReader,
	} {
		got, err := io.ReadAll(read(b.Open()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(whole), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if err := iotest.TestReader(b.Open(), whole); err != nil {
		t.Error(err)
	}
}
