package conversion_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	k8sv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	apiV1      = "admission.k8s.io/v1"
	apiV1beta1 = "admission.k8s.io/v1beta1"
)

// responseToKubernetes converts a response to the type of Kubernetes.
func responseToKubernetes(r *admissionv1.AdmissionResponse) *k8sv1.AdmissionResponse {
	out := &k8sv1.AdmissionResponse{
		UID: types.UID(r.GetUid()), Allowed: r.GetAllowed(), Patch: r.GetPatch(),
		AuditAnnotations: r.GetAuditAnnotations(), Warnings: r.GetWarnings(),
	}
	if r.GetPatchType() != "" {
		patchType := k8sv1.PatchType(r.GetPatchType())
		out.PatchType = &patchType
	}
	if s := r.GetStatus(); s != nil {
		out.Result = &metav1.Status{Status: s.GetStatus(), Message: s.GetMessage(), Reason: metav1.StatusReason(s.GetReason()), Code: s.GetCode()}
		if d := s.GetDetails(); d != nil {
			out.Result.Details = &metav1.StatusDetails{
				Name: d.GetName(), Group: d.GetGroup(), Kind: d.GetKind(), UID: types.UID(d.GetUid()), RetryAfterSeconds: d.GetRetryAfterSeconds(),
			}
			for _, c := range d.GetCauses() {
				out.Result.Details.Causes = append(out.Result.Details.Causes,
					metav1.StatusCause{Type: metav1.CauseType(c.GetReason()), Message: c.GetMessage(), Field: c.GetField()})
			}
		}
	}
	return out
}

// decodeResponse lets Kubernetes read an answer.
func decodeResponse(t testing.TB, o oracle, body []byte) *k8sv1.AdmissionReview {
	t.Helper()
	object, gvk, err := o.decoder.Decode(body, nil, nil)
	if err != nil {
		t.Fatalf("Kubernetes does not read it: %v\n%s", err, body)
	}
	review, ok := object.(*k8sv1.AdmissionReview)
	if !ok {
		review = fromV1beta1(asV1beta1(t, object))
	}
	review.APIVersion, review.Kind = gvk.ToAPIVersionAndKind()
	return review
}

func TestEncodeReview(t *testing.T) {
	status := &admissionv1.Status{
		Status: "Failure", Message: "a \"b\"\n\t\r\x00\x1f\x7f\\ <&> é \u2028 😀", Reason: "Forbidden", Code: 403,
		Details: &admissionv1.StatusDetails{
			Name: "n", Group: "g", Kind: "k", Uid: "u", RetryAfterSeconds: 7,
			Causes: []*admissionv1.StatusCause{{Reason: "FieldValueInvalid", Message: "m", Field: "spec.x"}, {}},
		},
	}
	tests := map[string]*admissionv1.AdmissionResponse{
		"a bare denial":         {Uid: "u"},
		"an empty uid":          {},
		"allowed":               {Uid: "u", Allowed: true},
		"a denial with reasons": {Uid: "u", Status: status},
		"an empty status":       {Uid: "u", Status: &admissionv1.Status{}},
		"empty details":         {Uid: "u", Status: &admissionv1.Status{Details: &admissionv1.StatusDetails{}, Code: -1}},
		"a patch":               {Uid: "u", Allowed: true, Patch: []byte("[{}]\xff"), PatchType: "JSONPatch"},
		"a patch type alone":    {Uid: "u", PatchType: "JSONPatch"},
		"everything": {
			Uid: "u", Allowed: true, Status: status, Patch: []byte("[]"), PatchType: "JSONPatch",
			AuditAnnotations: map[string]string{"b": "2", "a": "1", `"`: "", "": "é"}, Warnings: []string{"w", "", `"x"`},
		},
	}
	o := newOracle(t)
	for name, response := range tests {
		for _, apiVersion := range []string{apiV1, apiV1beta1} {
			t.Run(name+" in "+apiVersion, func(t *testing.T) {
				dst := []byte("before")
				out, err := conversion.EncodeReview(dst, &admissionv1.ReviewResponse{Response: response, ApiVersion: apiVersion})
				if err != nil {
					t.Fatal(err)
				}
				body, ok := strings.CutPrefix(string(out), "before")
				if !ok {
					t.Fatalf("dst is lost: %s", out)
				}
				review := decodeResponse(t, o, []byte(body))
				if review.APIVersion != apiVersion || review.Kind != "AdmissionReview" || review.Request != nil {
					t.Errorf("it is %s %s", review.APIVersion, review.Kind)
				}
				if diff := cmp.Diff(responseToKubernetes(response), review.Response, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("Kubernetes reads something else (-want +got):\n%s\n%s", diff, body)
				}
			})
		}
	}
}

func TestEncodeReviewIsDeterministicAndExact(t *testing.T) {
	response := &admissionv1.ReviewResponse{ApiVersion: apiV1, Response: &admissionv1.AdmissionResponse{
		Uid: "u", Status: &admissionv1.Status{Message: "no\xff\xc3!", Code: 403}, AuditAnnotations: map[string]string{"c": "3", "b": "2", "a": "1"},
	}}
	const want = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":false,` +
		`"status":{"metadata":{},"message":"no\ufffd\ufffd!","code":403},"auditAnnotations":{"a":"1","b":"2","c":"3"}}}`
	got, err := conversion.EncodeReview(nil, response)
	if err != nil || string(got) != want {
		t.Errorf("error %v\n got %s\nwant %s", err, got, want)
	}
}

func TestEncodeRefuses(t *testing.T) {
	response := &admissionv1.AdmissionResponse{}
	request := func(o *admissionv1.Object) *admissionv1.ReviewRequest {
		return &admissionv1.ReviewRequest{Request: &admissionv1.AdmissionRequest{Object: o}}
	}
	encode := func(r *admissionv1.ReviewResponse) error { _, err := conversion.EncodeReview(nil, r); return err }
	encodeRequest := func(r *admissionv1.ReviewRequest) error { _, err := conversion.EncodeReviewRequest(nil, r); return err }
	for name, err := range map[string]error{
		"an answer without a version":     encode(&admissionv1.ReviewResponse{Response: response}),
		"an answer in an unknown version": encode(&admissionv1.ReviewResponse{Response: response, ApiVersion: "admission.k8s.io/v1alpha2"}),
		"an answer without a response":    encode(&admissionv1.ReviewResponse{ApiVersion: apiV1}),
		"no answer":                       encode(nil),
		"no request":                      encodeRequest(nil),
		"a request in an unknown version": encodeRequest(&admissionv1.ReviewRequest{Request: &admissionv1.AdmissionRequest{}, ApiVersion: "v1"}),
		"an empty object":                 encodeRequest(request(&admissionv1.Object{})),
		"an object of another type":       encodeRequest(request(&admissionv1.Object{Raw: []byte("k8s\x00"), ContentType: "application/vnd.kubernetes.protobuf"})),
	} {
		var refused *conversion.Error
		if !errors.As(err, &refused) || refused.Code != 500 || refused.Reason != conversion.ReasonUnencodable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEncodeStringsAsEncodingJSON compares random strings as EncodeReviewRequest and encoding/json write them.
func TestEncodeStringsAsEncodingJSON(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", `"`, `\`, "\n", "\x00", "\x1f", "\x7f", "é", "\u2028", "😀", "\xff", "\xc3", "\xe2\x80", "\xed\xa0\x80", "/", "<"}
	for range 5000 {
		var text strings.Builder
		for range random.IntN(8) {
			text.WriteString(pieces[random.IntN(len(pieces))])
		}
		got, err := conversion.EncodeReview(nil, &admissionv1.ReviewResponse{ApiVersion: apiV1, Response: &admissionv1.AdmissionResponse{
			Uid: text.String(), Warnings: []string{text.String()}, AuditAnnotations: map[string]string{text.String(): text.String()},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var review k8sv1.AdmissionReview
		if err := json.Unmarshal(got, &review); err != nil {
			t.Fatalf("%q: %v\n%s", text.String(), err, got)
		}
		want := throughJSON(t, text.String())
		if r := review.Response; string(r.UID) != want || r.Warnings[0] != want || r.AuditAnnotations[want] != want {
			t.Errorf("%q is read back as %q, want %q", text.String(), r.UID, want)
		}
	}
}

// throughJSON encodes and decodes a string with encoding/json.
func throughJSON(t testing.TB, text string) string {
	t.Helper()
	data, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	var out string
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEncodeReviewRequestAsKubernetes compares the bytes with those that Kubernetes' own types are written as.
func TestEncodeReviewRequestAsKubernetes(t *testing.T) {
	yes := true
	o := newOracle(t)
	for name, request := range map[string]*admissionv1.AdmissionRequest{
		"empty":   {},
		"dry run": {Uid: "u", DryRun: &yes, Object: &admissionv1.Object{Raw: []byte(`{"a":1.0}`)}},
		"everything": {
			Uid: "u", Cluster: "not written", Kind: &admissionv1.GroupVersionKind{Group: "g", Version: "v", Kind: "k"},
			Resource: &admissionv1.GroupVersionResource{Group: "g", Version: "v", Resource: "r"}, SubResource: "s",
			RequestKind:     &admissionv1.GroupVersionKind{Version: "w"},
			RequestResource: &admissionv1.GroupVersionResource{Resource: "q"}, RequestSubResource: "rs",
			Name: "n", Namespace: "ns", Operation: "UPDATE",
			UserInfo: &admissionv1.UserInfo{Username: "me", Uid: "1", Groups: []string{"a", ""}, Extra: map[string]*admissionv1.ExtraValue{
				"b": {Items: []string{"1", "2"}}, "a": {Items: []string{""}},
			}},
			Object: &admissionv1.Object{Raw: []byte(`{"a":1e3}`), ContentType: "application/json"}, OldObject: &admissionv1.Object{Raw: []byte(`"None"`)},
			Options: &admissionv1.Object{Raw: []byte(`{}`)}, DryRun: new(bool), ObjectRevision: 3, Projection: admissionv1.Projection_PROJECTION_FULL,
		},
	} {
		got, err := conversion.EncodeReviewRequest(nil, &admissionv1.ReviewRequest{Request: request})
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(&k8sv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: apiV1}, Request: toKubernetes(request),
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-Kubernetes +ours):\n%s", name, diff)
		}
		if request.GetUid() != "" {
			_, _ = checkDecode(t, o, got)
		}
	}
}

// TestReviewRequestRoundTrip decodes and encodes the reviews of the corpus.
func TestReviewRequestRoundTrip(t *testing.T) {
	for _, path := range corpus(t, "admissionreviews") {
		first, err := conversion.DecodeReview(read(t, path))
		if err != nil {
			continue // TestDecodeReviewCorpus knows which.
		}
		body, err := conversion.EncodeReviewRequest(nil, first)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		second, err := conversion.DecodeReview(body)
		if err != nil {
			t.Fatalf("%s: %v\n%s", path, err, body)
		}
		if first.GetRequest().GetUserInfo() == nil { // Absent and empty are the same, and it is always written.
			first.Request.UserInfo = &admissionv1.UserInfo{}
		}
		if diff := cmp.Diff(first, second, protocmp.Transform()); diff != "" || !proto.Equal(first, second) {
			t.Errorf("%s does not come back (-first +second):\n%s", path, diff)
		}
	}
}
