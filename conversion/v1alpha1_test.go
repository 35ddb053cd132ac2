package conversion_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	k8sv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const apiV1alpha1 = "admission.k8s.io/v1alpha1"

// alphaReview is AdmissionReview as k8s.io/api/admission/v1alpha1 had it in Kubernetes 1.7 and 1.8; its fields are in the
// order in which they were written. No module that can be required has it any more.
type alphaReview struct {
	metav1.TypeMeta `json:",inline"`

	Spec   alphaSpec   `json:"spec,omitempty"`
	Status alphaStatus `json:"status,omitempty"`
}

// alphaSpec also remembers whether there was one.
type alphaSpec struct {
	alphaFields
	said bool
}

type alphaFields struct {
	Kind        metav1.GroupVersionKind     `json:"kind,omitempty"`
	Object      runtime.RawExtension        `json:"object,omitempty"`
	OldObject   runtime.RawExtension        `json:"oldObject,omitempty"`
	Operation   string                      `json:"operation,omitempty"`
	Name        string                      `json:"name,omitempty"`
	Namespace   string                      `json:"namespace,omitempty"`
	Resource    metav1.GroupVersionResource `json:"resource,omitempty"`
	SubResource string                      `json:"subResource,omitempty"`
	UserInfo    authenticationv1.UserInfo   `json:"userInfo,omitempty"`
}

type alphaStatus struct {
	Allowed bool           `json:"allowed"`
	Result  *metav1.Status `json:"status,omitempty"`
}

// UnmarshalJSON reads a spec as if it were its fields.
func (s *alphaSpec) UnmarshalJSON(data []byte) error {
	s.said = s.said || string(data) != "null"
	return kjson.UnmarshalCaseSensitivePreserveInts(data, &s.alphaFields)
}

// MarshalJSON writes a spec as its fields.
func (s alphaSpec) MarshalJSON() ([]byte, error) { return json.Marshal(s.alphaFields) }

// DeepCopyObject implements runtime.Object; nobody changes a copy.
func (r *alphaReview) DeepCopyObject() runtime.Object {
	out := *r
	return &out
}

func addV1alpha1(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "admission.k8s.io", Version: "v1alpha1", Kind: "AdmissionReview"}, &alphaReview{})
	return nil
}

// fromV1alpha1 is a review in today's type.
func fromV1alpha1(r *alphaReview) *k8sv1.AdmissionReview {
	out := &k8sv1.AdmissionReview{}
	if s := r.Spec; s.said {
		out.Request = &k8sv1.AdmissionRequest{
			Kind: s.Kind, Object: s.Object, OldObject: s.OldObject, Operation: k8sv1.Operation(s.Operation), Name: s.Name,
			Namespace: s.Namespace, Resource: s.Resource, SubResource: s.SubResource, UserInfo: s.UserInfo,
		}
	}
	return out
}

// alphaRequest is a request as far as v1alpha1 has a place for it.
func alphaRequest(r *admissionv1.AdmissionRequest) alphaFields {
	k := toKubernetes(r)
	return alphaFields{
		Kind: k.Kind, Object: k.Object, OldObject: k.OldObject, Operation: string(k.Operation), Name: k.Name,
		Namespace: k.Namespace, Resource: k.Resource, SubResource: k.SubResource, UserInfo: k.UserInfo,
	}
}

// spec is a review of v1alpha1 with the given members in its spec, behind the name.
func spec(members string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":{"name":"n"` + members + `}}`
}

func TestDecodeReviewOfKubernetes18(t *testing.T) {
	const ok = ""
	tests := []struct{ name, body, reason string }{
		{"a review is read", spec(`,"kind":{"kind":"Pod"},"operation":"CREATE","object":{"a":1},"userInfo":{"username":"u","extra":{"k":["v"]}}`), ok},
		{"it need not say much", spec(``), ok},
		{"a status stands in it as the API server wrote it", strings.Replace(spec(``), `"spec"`, `"status":{"allowed":false},"spec"`, 1), ok},
		{"a status has to be one", strings.Replace(spec(``), `"spec"`, `"status":{"allowed":"no"},"spec"`, 1), conversion.ReasonWrongType},
		{"a null status is none", strings.Replace(spec(``), `"spec"`, `"status":null,"spec"`, 1), ok},
		{"without a spec there is nothing to judge", strings.Replace(spec(``), `"spec"`, `"x"`, 1), conversion.ReasonNoRequest},
		{"a null spec is none", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":null}`, conversion.ReasonNoRequest},
		{"a null takes no spec back", strings.TrimSuffix(spec(``), "}") + `,"spec":null}`, ok},
		{"specs merge", strings.TrimSuffix(spec(``), "}") + `,"spec":{"namespace":"ns"}}`, ok},
		{"a spec has to be an object", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":[]}`, conversion.ReasonWrongType},
		{"a field has to have its type", spec(`,"operation":1`), conversion.ReasonWrongType},
		{"what came later is unknown here", spec(`,"uid":1,"requestKind":1,"requestResource":1,"requestSubResource":1,"dryRun":1,"options":1`), ok},
		{"a request is unknown here", strings.Replace(spec(``), `"spec"`, `"request":5,"response":5,"spec"`, 1), ok},
		{"the version may come last", `{"spec":{"name":"n"},"request":5,"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1"}`, ok},
		{"a spec is unknown in v1", strings.Replace(v1(``), `"request"`, `"spec":5,"status":5,"request"`, 1), ok},
		{"a spec is no request in v1", strings.Replace(spec(``), "v1alpha1", "v1", 1), conversion.ReasonNoRequest},
		{"another kind is wrong", strings.Replace(spec(``), "AdmissionReview", "Review", 1), conversion.ReasonWrongKind},
		{"what is cut off is not read", spec(`,"object":{"a":1}`)[:100], conversion.ReasonMalformedJSON},
	}
	o := newOracle(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := checkDecode(t, o, []byte(test.body))
			switch {
			case err == nil && test.reason != ok:
				t.Errorf("read, want %s", test.reason)
			case err != nil && err.Reason != test.reason:
				t.Errorf("refused with %s (%v), want %q", err.Reason, err, test.reason)
			case err == nil && got.GetApiVersion() == apiV1alpha1 && got.GetRequest().GetUid() != "":
				t.Errorf("uid %q of a review that has none", got.GetRequest().GetUid())
			}
		})
	}
}

func TestWhoAsksAsKubernetes18CanBeAnsweredWithoutAUID(t *testing.T) {
	for body, want := range map[string]bool{
		spec(`,"object":{"a":"b`)[:90]: true, spec(`,"name":5`): true,
		spec(``)[:60]: false, strings.Replace(spec(``), "AdmissionReview", "Review", 1): false,
		strings.Replace(spec(``), `"spec"`, `"x"`, 1): false,
	} {
		uid, apiVersion, ok := conversion.DecodeHead([]byte(body))
		if ok != want || uid != "" || (apiVersion == apiV1alpha1) != want {
			t.Errorf("%q %q %v of %s", uid, apiVersion, ok, body)
		}
	}
}

func TestErrorsNameTheFieldsOfKubernetes18(t *testing.T) {
	for body, want := range map[string]string{
		spec(`,"userInfo":{"groups":{}}`):                                          "spec.userInfo.groups is an object, want an array",
		strings.Replace(spec(``), `"spec"`, `"status":{"allowed":"no"},"spec"`, 1): "status: ",
	} {
		if _, err := conversion.DecodeReview([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", body, err, want)
		}
	}
}

func TestEncodeReviewRequestAsKubernetes18(t *testing.T) {
	o := newOracle(t)
	for name, request := range map[string]*admissionv1.AdmissionRequest{
		"empty":       {},
		"without uid": {Object: &admissionv1.Object{Raw: []byte(`{"a":1.0}`)}, Operation: "CREATE"},
		"everything": {
			Uid: "not written", Cluster: "not written", Kind: &admissionv1.GroupVersionKind{Group: "g", Version: "v", Kind: "k"},
			Resource: &admissionv1.GroupVersionResource{Group: "g", Version: "v", Resource: "r"}, SubResource: "s",
			RequestKind: &admissionv1.GroupVersionKind{Version: "not written"},
			Name:        "n\n", Namespace: "ns", Operation: "UPDATE",
			UserInfo: &admissionv1.UserInfo{Username: "me", Uid: "1", Groups: []string{"a", ""}, Extra: map[string]*admissionv1.ExtraValue{
				"b": {Items: []string{"1", "2"}}, "a": {Items: []string{""}},
			}},
			Object: &admissionv1.Object{Raw: []byte(`{"a":1e3}`)}, OldObject: &admissionv1.Object{Raw: []byte(`"None"`)},
			Options: &admissionv1.Object{Raw: []byte(`{"not":"written"}`)}, DryRun: new(bool),
		},
	} {
		got, err := conversion.EncodeReviewRequest(nil, &admissionv1.ReviewRequest{Request: request, ApiVersion: apiV1alpha1})
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(&alphaReview{
			TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: apiV1alpha1}, Spec: alphaSpec{alphaFields: alphaRequest(request)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-Kubernetes +ours):\n%s", name, diff)
		}
		again, refused := checkDecode(t, o, got)
		if refused != nil {
			t.Fatal(refused)
		}
		if diff := cmp.Diff(alphaRequest(request), alphaRequest(again.GetRequest()), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s does not come back (-first +second):\n%s", name, diff)
		}
	}
}

func TestEncodeReviewAsKubernetes18(t *testing.T) {
	denied := &admissionv1.Status{Status: "Failure", Message: "no <&>", Reason: "Forbidden", Code: 403}
	for name, response := range map[string]*admissionv1.AdmissionResponse{
		"a bare denial":         {},
		"allowed":               {Uid: "not written", Allowed: true, Warnings: []string{"not written"}},
		"a denial with reasons": {Status: denied, AuditAnnotations: map[string]string{"not": "written"}},
		"a denial and a patch":  {Status: denied, Patch: []byte("not written")},
	} {
		got, err := conversion.EncodeReview([]byte("before"), &admissionv1.ReviewResponse{Response: response, ApiVersion: apiV1alpha1})
		if err != nil {
			t.Fatal(err)
		}
		var review alphaReview
		if err := json.Unmarshal(bytes.TrimPrefix(got, []byte("before")), &review); err != nil {
			t.Fatalf("%v: %s", err, got)
		}
		want := alphaReview{TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: apiV1alpha1}, Status: alphaStatus{
			Allowed: response.GetAllowed(), Result: responseToKubernetes(response).Result,
		}}
		if diff := cmp.Diff(want, review, cmp.AllowUnexported(alphaSpec{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: Kubernetes reads something else (-want +got):\n%s\n%s", name, diff, got)
		}
		if bytes.Contains(got, []byte("not written")) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestEncodeReviewAsKubernetes18LosesNoPatch(t *testing.T) {
	dst := []byte("before")
	got, err := conversion.EncodeReview(dst, &admissionv1.ReviewResponse{
		Response: &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte("[]"), PatchType: "JSONPatch"}, ApiVersion: apiV1alpha1,
	})
	var refused *conversion.Error
	if !errors.As(err, &refused) || refused.Reason != conversion.ReasonUnencodable || string(got) != "before" {
		t.Errorf("%v: %s", err, got)
	}
}

// alphaOracle reads answers as the GenericAdmissionWebhook plugin of Kubernetes 1.8 did: into the review that was sent, with
// the codec of its version; then its status counts.
type alphaOracle struct{ codec runtime.Codec }

func newAlphaOracle(t testing.TB) alphaOracle {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := addV1alpha1(scheme); err != nil {
		t.Fatal(err)
	}
	return alphaOracle{serializer.NewCodecFactory(scheme).LegacyCodec(schema.GroupVersion{Group: "admission.k8s.io", Version: "v1alpha1"})}
}

func (o alphaOracle) verify(body []byte) (*alphaStatus, error) {
	if !yaml.IsJSONBuffer(body) {
		return nil, errors.New("not JSON")
	}
	into := &alphaReview{Spec: alphaSpec{alphaFields: alphaFields{Name: "n", UserInfo: authenticationv1.UserInfo{Groups: []string{"a", "b"}}}}}
	if _, _, err := o.codec.Decode(body, nil, into); err != nil {
		return nil, err
	}
	return &into.Status, nil
}

// checkAlphaResponse is checkResponse for v1alpha1.
func checkAlphaResponse(t testing.TB, o alphaOracle, body []byte) (*admissionv1.AdmissionResponse, *conversion.Error) {
	t.Helper()
	before := bytes.Clone(body)
	want, wantErr := o.verify(body)
	got, err := conversion.DecodeResponse(body, apiV1alpha1, askedUID)
	if !bytes.Equal(body, before) {
		t.Fatalf("the body was written to\n%q\n%q", before, body)
	}
	checkDenial(t, body, apiV1alpha1, got)
	switch {
	case wantErr != nil && err == nil && !got.GetAllowed() && bytes.Contains(body, []byte("false")):
		// A denial stays one, whatever else is wrong.
	case (err == nil) != (wantErr == nil):
		t.Fatalf("DecodeResponse error %v, Kubernetes says %v\n%q", err, wantErr, body)
	case wantErr == nil:
		ignored := cmpopts.IgnoreFields(alphaStatus{}, "Result.TypeMeta", "Result.ListMeta")
		converted := alphaStatus{Allowed: got.GetAllowed(), Result: responseToKubernetes(got).Result}
		if diff := cmp.Diff(*want, converted, cmpopts.EquateEmpty(), ignored); diff != "" {
			t.Fatalf("status differs (-Kubernetes +ours):\n%s\n%q", diff, body)
		}
		if got.GetUid() != "" || got.GetPatch() != nil || got.GetPatchType() != "" || got.GetWarnings() != nil || got.GetAuditAnnotations() != nil {
			t.Fatalf("there is more in it than v1alpha1 has: %v\n%q", got, body)
		}
	}
	if err == nil {
		return got, nil
	}
	var refused *conversion.Error
	if !errors.As(err, &refused) || refused.Reason == "" || refused.Message == "" || got != nil {
		t.Fatalf("%v and an incomplete error %+v", got, err)
	}
	return nil, refused
}

// status is an answer of v1alpha1 with the given members in its status.
func status(members string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","status":{` + members + `}}`
}

func TestDecodeResponseAsKubernetes18(t *testing.T) {
	const ok, denial = "", "denied" // Otherwise the reason of the error.
	tests := []struct{ name, body, want string }{
		{"an allowing answer is read", status(`"allowed":true`), ok},
		{"a denying answer is read", status(`"allowed":false,"status":{"code":403,"message":"no","reason":"Forbidden"}`), denial},
		{"an answer that says nothing denies", status(``), denial},
		{"an answer without a status denies", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1"}`, denial},
		{"a null status denies", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","status":null}`, denial},
		{"an empty object denies", `{}`, denial},
		{"a null takes no status back", strings.TrimSuffix(status(`"allowed":true`), "}") + `,"status":null}`, ok},
		{"a null takes a result back", status(`"allowed":true,"status":{"code":1},"status":null`), ok},
		{"statuses merge", strings.TrimSuffix(status(`"allowed":true`), "}") + `,"status":{"status":{"code":1}}}`, ok},
		{"kind and version may be missing", `{"status":{"allowed":true}}`, ok},
		{"another kind is wrong", strings.Replace(status(`"allowed":true`), "AdmissionReview", "Pod", 1), conversion.ReasonWrongKind},
		{"another version is wrong", strings.Replace(status(`"allowed":true`), "v1alpha1", "v1beta1", 1), conversion.ReasonUnsupportedVersion},
		{"a denial survives another version", strings.Replace(status(`"allowed":false`), "v1alpha1", "v1beta1", 1), denial},
		{"a spec that is sent back is skipped", strings.Replace(status(`"allowed":true`), `"status"`, `"spec":{"object":{"a":1},"uid":1},"status"`, 1), ok},
		{"a spec of a wrong type refuses the answer", strings.Replace(status(`"allowed":true`), `"status"`, `"spec":{"name":1},"status"`, 1), conversion.ReasonWrongType},
		{"what came later is unknown here", status(`"allowed":true,"uid":1,"patch":1,"patchType":1,"warnings":1,"auditAnnotations":1`), ok},
		{"a response is unknown here", strings.Replace(status(`"allowed":true`), `"status"`, `"request":1,"response":{"allowed":false},"status"`, 1), ok},
		{"a Status of the server is no answer", `{"kind":"Status","apiVersion":"v1","status":"Failure"}`, conversion.ReasonWrongType},
		{"nothing is no answer", "", conversion.ReasonNotJSON},
		{"a denial survives a status that is none", status(`"status":"not signed","allowed":false`), denial},
		{"a denial survives being cut off", status(`"allowed":false,"status":{"code":403,"mess`)[:110], denial},
		{"a denial has to be said when the rest is wrong", status(`"status":"?"`), conversion.ReasonWrongType},
	}
	o := newAlphaOracle(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := checkAlphaResponse(t, o, []byte(test.body))
			switch {
			case err != nil && err.Reason != test.want:
				t.Errorf("refused with %s (%v), want %q", err.Reason, err, test.want)
			case err == nil && (test.want != ok && test.want != denial || got.GetAllowed() != (test.want == ok)):
				t.Errorf("read %v, want %q", got, test.want)
			}
		})
	}
}

// TestDecodeResponseOfAnythingAsKubernetes18 is TestDecodeResponseOfAnything for v1alpha1.
func TestDecodeResponseOfAnythingAsKubernetes18(t *testing.T) {
	o := newAlphaOracle(t)
	random := answerSource{reviewSource{rand.New(rand.NewPCG(11, 12))}}
	read := 0
	for range 3000 {
		body := []byte(random.alphaAnswer())
		if random.IntN(4) == 0 {
			body[random.IntN(len(body))] = "\x00 \"\\,:{}[]0-e.ntu\xff"[random.IntN(18)]
		}
		if got, _ := checkAlphaResponse(t, o, body); got != nil {
			read++
		}
	}
	if read < 1000 {
		t.Errorf("only %d of the answers were read: the test says little", read)
	}
}

func (s answerSource) alphaAnswer() string {
	return s.object([]field{
		{"kind", func() string { return s.mostly(`"AdmissionReview"`) }},
		{"apiVersion", func() string {
			return s.mostly(s.oneOf(`"admission.k8s.io/v1alpha1"`, `"admission.k8s.io/v1alpha1"`, `"admission.k8s.io/"`, `"/"`, `""`, `"v1alpha1"`))
		}},
		{"status", s.response},
		{"spec", s.request},
		{"response", func() string { return s.value(1) }},
	}, 3)
}

// FuzzDecodeResponseAsKubernetes18 compares DecodeResponse with the plugin of Kubernetes 1.8.
func FuzzDecodeResponseAsKubernetes18(f *testing.F) {
	for _, members := range []string{
		``, `"allowed":true`, `"allowed":false,"status":{"code":403,"details":{"causes":[{}]}}`, `"allowed":false,"status":"?`,
		`"allowed":true},"spec":{"userInfo":{"groups":["a",null]},"object":null},"status":{"status":null`,
	} {
		f.Add([]byte(status(members)))
	}
	o := newAlphaOracle(f)
	f.Fuzz(func(t *testing.T, body []byte) { _, _ = checkAlphaResponse(t, o, body) })
}
