package conversion_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	k8sv1 "k8s.io/api/admission/v1"
	k8sv1beta1 "k8s.io/api/admission/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const askedUID = "0df28fbd-5f5f-11e8-bc74-36e6bb280816"

// responseOracle reads answers with the codec of kube-apiserver's webhook client and with its checks.
type responseOracle struct{ codec runtime.Codec }

func newResponseOracle(t testing.TB) responseOracle {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{k8sv1beta1.AddToScheme, k8sv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	// As k8s.io/apiserver/pkg/util/webhook NewClientManager, with the arguments of the admission plugins.
	return responseOracle{serializer.NewCodecFactory(scheme).LegacyCodec(k8sv1beta1.SchemeGroupVersion, k8sv1.SchemeGroupVersion)}
}

// verify reads an answer to a mutating or a validating hook with the code of kube-apiserver.
func (o responseOracle) verify(body []byte, apiVersion string, mutating bool) (*k8sv1.AdmissionResponse, error) {
	if !yaml.IsJSONBuffer(body) {
		return nil, errors.New("not JSON")
	}
	var into runtime.Object = &k8sv1.AdmissionReview{}
	if apiVersion == apiV1beta1 {
		into = &k8sv1beta1.AdmissionReview{}
	}
	// As client-go's Result.Into: another object than into is dropped.
	if _, _, err := o.codec.Decode(body, nil, into); err != nil {
		return nil, err
	}
	verified, err := webhookrequest.VerifyAdmissionResponse(askedUID, mutating, into)
	if err != nil {
		return nil, err
	}
	out := &k8sv1.AdmissionResponse{
		Allowed: verified.Allowed, Result: verified.Result, Patch: verified.Patch,
		AuditAnnotations: verified.AuditAnnotations, Warnings: verified.Warnings,
	}
	if verified.PatchType != "" {
		out.PatchType = &verified.PatchType
	}
	return out, nil
}

// wellFormed does the checks that DecodeResponse leaves to its caller.
func wellFormed(r *admissionv1.AdmissionResponse, apiVersion string, mutating bool) (*admissionv1.AdmissionResponse, error) {
	patch, patchType := len(r.GetPatch()) > 0, r.GetPatchType() != ""
	switch {
	case apiVersion == apiV1 && mutating && patch != patchType:
		return nil, errors.New("patch and patch type do not fit together")
	case apiVersion == apiV1 && !mutating && (patch || patchType):
		return nil, errors.New("a validating hook sends a patch")
	case mutating:
		return r, nil
	}
	without := proto.CloneOf(r)
	without.Patch, without.PatchType = nil, ""
	return without, nil
}

// checkResponse holds DecodeResponse against kube-apiserver. The one difference that it accepts is a denial.
func checkResponse(t testing.TB, o responseOracle, body []byte, apiVersion string) (*admissionv1.AdmissionResponse, *conversion.Error) {
	t.Helper()
	before := bytes.Clone(body)
	got, err := conversion.DecodeResponse(body, apiVersion, askedUID)
	if !bytes.Equal(body, before) {
		t.Fatalf("the body was written to\n%q\n%q", before, body)
	}
	for _, mutating := range []bool{true, false} {
		want, wantErr := o.verify(body, apiVersion, mutating)
		formed, formErr := got, err
		if err == nil {
			formed, formErr = wellFormed(got, apiVersion, mutating)
		}
		switch {
		case wantErr != nil && err == nil && !got.GetAllowed() && bytes.Contains(body, []byte("false")):
			// A denial stays one, whatever else is wrong.
		case (formErr == nil) != (wantErr == nil):
			t.Fatalf("DecodeResponse error %v, Kubernetes says %v (mutating %v)\n%s\n%q", formErr, wantErr, mutating, apiVersion, body)
		case wantErr == nil:
			converted := responseToKubernetes(formed)
			converted.UID = "" // Kubernetes has checked it.
			ignored := cmpopts.IgnoreFields(k8sv1.AdmissionResponse{}, "Result.TypeMeta", "Result.ListMeta")
			if diff := cmp.Diff(want, converted, cmpopts.EquateEmpty(), ignored); diff != "" {
				t.Fatalf("response differs (-Kubernetes +ours, mutating %v):\n%s\n%q", mutating, diff, body)
			}
		}
	}
	checkDenial(t, body, apiVersion, got)
	if err == nil {
		if _, err := proto.Marshal(got); err != nil {
			t.Fatalf("the response does not marshal: %v\n%q", err, body)
		}
		return got, nil
	}
	var refused *conversion.Error
	if !errors.As(err, &refused) || refused.Reason == "" || refused.Message == "" || got != nil {
		t.Fatalf("%v and an incomplete error %+v", got, err)
	}
	return nil, refused
}

// checkDenial compares DecodeDenial with DecodeResponse, on one answer.
func checkDenial(t testing.TB, body []byte, apiVersion string, got *admissionv1.AdmissionResponse) {
	t.Helper()
	denial := conversion.DecodeDenial(body, apiVersion, askedUID)
	switch {
	case denial == nil:
	case !proto.Equal(denial, got) || denial.GetAllowed():
		t.Fatalf("DecodeDenial says %v, DecodeResponse %v\n%q", denial, got, body)
	case !bytes.Contains(body, []byte("false")):
		t.Fatalf("DecodeDenial says %v of an answer that does not\n%q", denial, body)
	}
}

// answer is an AdmissionReview with the given members in its response, behind the uid.
func answer(members string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"` + askedUID + `"` + members + `}}`
}

func TestDecodeResponseAsKubernetes(t *testing.T) {
	const (
		head    = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",`
		allowed = `"response":{"uid":"` + askedUID + `","allowed":true}}`
		denied  = `"response":{"uid":"` + askedUID + `","allowed":false}}`
	)
	const ok, denial = "", "denied" // Otherwise the reason of the error.
	tests := []struct {
		name     string
		body     string
		v1, beta string // v1 is the result; beta the result of the same answer in v1beta1, to a review in v1beta1.
	}{
		{"an allowing answer is read", answer(`,"allowed":true`), ok, ok},
		{"a denying answer is read", answer(`,"allowed":false,"status":{"code":403,"message":"no","reason":"Forbidden"}`), denial, denial},
		{"an answer that says nothing denies", answer(``), denial, denial},
		{"allowed null denies", answer(`,"allowed":null`), denial, denial},
		{"everything is read", answer(`,"allowed":true,"patch":"W10=","patchType":"JSONPatch","auditAnnotations":{"a":"b","c":null},"warnings":["w",null],` +
			`"status":{"metadata":{"resourceVersion":"1","remainingItemCount":2},"status":"Success","details":{"name":"n","group":"g","kind":"k","uid":"u","causes":[{"reason":"r","message":"m","field":"f"},null],"retryAfterSeconds":3},"code":200}`), ok, ok},

		{"nothing is no answer", "", conversion.ReasonNotJSON, conversion.ReasonNotJSON},
		{"a web page is no answer", "<html>", conversion.ReasonNotJSON, conversion.ReasonNotJSON},
		{"YAML is no answer", "kind: AdmissionReview\n", conversion.ReasonNotJSON, conversion.ReasonNotJSON},
		{"an answer that is cut off is none", answer(`,"allowed":true`)[:120], conversion.ReasonMalformedJSON, conversion.ReasonMalformedJSON},
		{"an answer and more is none", answer(`,"allowed":true`) + "x", conversion.ReasonMalformedJSON, conversion.ReasonMalformedJSON},
		{"an answer without a response is none", strings.TrimSuffix(head, ",") + "}", conversion.ReasonNoResponse, conversion.ReasonNoResponse},
		{"a null response is none", head + `"response":null}`, conversion.ReasonNoResponse, conversion.ReasonNoResponse},
		{"a response that is a list is none", head + `"response":[]}`, conversion.ReasonWrongType, conversion.ReasonWrongType},

		{"the uid has to be that of the review", strings.Replace(answer(`,"allowed":true`), "0df", "1df", 1), conversion.ReasonWrongUID, ok},
		{"the uid may not be missing", head + `"response":{"allowed":true}}`, conversion.ReasonWrongUID, ok},
		{"a denial under another uid is of another review", head + `"response":{"uid":"x","allowed":false}}`, conversion.ReasonWrongUID, denial},
		{"the kind may not be missing", `{"apiVersion":"admission.k8s.io/v1",` + allowed, conversion.ReasonWrongKind, ok},
		{"the apiVersion may not be missing", `{"kind":"AdmissionReview",` + allowed, conversion.ReasonWrongKind, ok},
		{"another kind is wrong", `{"kind":"Pod","apiVersion":"admission.k8s.io/v1",` + allowed, conversion.ReasonWrongKind, conversion.ReasonWrongKind},
		{"another group is wrong", `{"kind":"AdmissionReview","apiVersion":"admission.example.com/v1",` + allowed, conversion.ReasonUnsupportedVersion, conversion.ReasonUnsupportedVersion},
		{"a version without its group is wrong", `{"kind":"AdmissionReview","apiVersion":"v1",` + allowed, conversion.ReasonUnsupportedVersion, conversion.ReasonUnsupportedVersion},
		{"a group without a version stands for the asked one", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/",` + allowed, conversion.ReasonWrongKind, ok},
		{"the kind has to be spelled right", `{"Kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",` + allowed, conversion.ReasonWrongKind, ok},
		{"another spelling of kind counts too", head + `"KIND":"Pod",` + allowed, conversion.ReasonWrongKind, conversion.ReasonWrongKind},
		{"a null kind changes nothing", head + `"kind":null,` + allowed, ok, ok},
		{"a null after another spelling leaves the kind unsaid", `{"Kind":"AdmissionReview","kind":null,"apiVersion":"admission.k8s.io/v1",` + allowed, conversion.ReasonWrongKind, ok},

		{"a request that is sent back is skipped", head + `"request":{"uid":"x","object":{"a":1}},` + allowed, ok, ok},
		{"a request of a wrong type refuses the answer", head + `"request":{"uid":1},` + allowed, conversion.ReasonWrongType, conversion.ReasonWrongType},
		{"unknown fields are skipped", head + `"x":[{}],` + allowed, ok, ok},
		{"allowed has to be a boolean", answer(`,"allowed":"true"`), conversion.ReasonWrongType, conversion.ReasonWrongType},
		{"a status has to be an object", answer(`,"allowed":true,"status":"fine"`), conversion.ReasonWrongType, conversion.ReasonWrongType},
		{"a code has to fit", answer(`,"allowed":true,"status":{"code":2147483648}`), conversion.ReasonWrongType, conversion.ReasonWrongType},
		{"a patch has to be base64", answer(`,"allowed":true,"patchType":"JSONPatch","patch":"[]"`), conversion.ReasonWrongType, conversion.ReasonWrongType},
		{"a patch may have line ends", answer(`,"allowed":true,"patchType":"JSONPatch","patch":"W1\r\n0=\n"`), ok, ok},
		{"a patch may be a list of numbers", answer(`,"allowed":true,"patchType":"JSONPatch","patch":[91,93]`), ok, ok},
		{"a patch may not be a patch", answer(`,"allowed":true,"patchType":"JSONPatch","patch":[{"op":"remove","path":"/a"}]`), conversion.ReasonWrongType, conversion.ReasonWrongType},
		{"an empty patch is none", answer(`,"allowed":true,"patch":""`), ok, ok},
		{"an empty patch type is one", answer(`,"allowed":true,"patchType":""`), conversion.ReasonWrongPatchType, ok},
		{"a null patch type is none", answer(`,"allowed":true,"patchType":"","patchType":null`), ok, ok},
		{"a patch without its type is read", answer(`,"allowed":true,"patch":"W10="`), ok, ok},
		{"a type without its patch is read", answer(`,"allowed":true,"patchType":"JSONPatch"`), ok, ok},
		{"a patch type of Kubernetes' future is read", answer(`,"allowed":true,"patch":"W10=","patchType":"Apply"`), ok, ok},
		{"annotations have to be strings", answer(`,"allowed":true,"auditAnnotations":{"a":1}`), conversion.ReasonWrongType, conversion.ReasonWrongType},
		{"annotations have to be an object", answer(`,"allowed":true,"auditAnnotations":["a"]`), conversion.ReasonWrongType, conversion.ReasonWrongType},
		{"warnings have to be strings", answer(`,"allowed":true,"warnings":"w"`), conversion.ReasonWrongType, conversion.ReasonWrongType},

		{"of duplicates the last counts", answer(`,"allowed":false,"allowed":true`), ok, ok},
		{"duplicate responses merge", head + `"response":{"allowed":true,"status":{"code":1}},"response":{"uid":"` + askedUID + `","status":{"message":"m"}}}`, ok, ok},
		{"a null takes a response back", head + `"response":{"allowed":true},"response":null,` + denied, denial, denial},
		{"duplicate annotations merge", answer(`,"allowed":true,"auditAnnotations":{"a":"1"},"auditAnnotations":{"b":"2","a":"3"}`), ok, ok},
		{"a null takes annotations back", answer(`,"allowed":true,"auditAnnotations":{"a":"1"},"auditAnnotations":null`), ok, ok},
		{"a null takes a status back", answer(`,"allowed":true,"status":{"code":1},"status":null`), ok, ok},
		{"a null takes a patch back", answer(`,"allowed":true,"patch":"W10=","patch":null`), ok, ok},
		{"names are matched by case", answer(`,"Allowed":true`), denial, denial},

		{"a denial survives a patch that is none", answer(`,"allowed":false,"patch":"?"`), denial, denial},
		{"a denial survives a status that is none", answer(`,"status":"not signed","allowed":false`), denial, denial},
		{"a denial survives an empty patch type", answer(`,"allowed":false,"patchType":""`), denial, denial},
		{"a denial survives a wrong kind", `{"kind":"Review",` + denied, denial, denial},
		{"a denial survives another version", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2",` + denied, denial, denial},
		{"a denial survives being cut off", answer(`,"allowed":false,"status":{"code":403,"mess`)[:140], denial, denial},
		{"a denial survives what follows it", answer(`,"allowed":false`) + "\n<!-- served by -->", denial, denial},
		{"a denial has to be said when the rest is wrong", answer(`,"patch":"?"`), conversion.ReasonWrongType, conversion.ReasonWrongType},
		{"half a denial is none", strings.TrimSuffix(answer(`,"allowed":false`), "se}}"), conversion.ReasonMalformedJSON, conversion.ReasonMalformedJSON},
		{"an allowance takes a denial back", answer(`,"allowed":false,"allowed":true,"patch":"?"`), conversion.ReasonWrongType, conversion.ReasonWrongType},
	}
	o := newResponseOracle(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for apiVersion, want := range map[string]string{apiV1: test.v1, apiV1beta1: test.beta} {
				body := test.body
				if apiVersion == apiV1beta1 {
					body = strings.Replace(body, `admission.k8s.io/v1"`, `admission.k8s.io/v1beta1"`, 1)
				}
				got, err := checkResponse(t, o, []byte(body), apiVersion)
				switch {
				case err != nil && err.Reason != want:
					t.Errorf("%s: refused with %s (%v), want %q", apiVersion, err.Reason, err, want)
				case err == nil && (want != ok && want != denial || got.GetAllowed() != (want == ok)):
					t.Errorf("%s: read %v, want %q", apiVersion, got, want)
				}
			}
		})
	}
}

func TestDecodeDenialWantsItSaid(t *testing.T) {
	for body, want := range map[string]bool{
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"","allowed":false}}`: false, // of no review
		answer(`,"allowed":false`): true, answer(`,"allowed":true,"allowed":false`): true, answer(`,"allowed":false,"x`): true,
		answer(``): false, answer(`,"allowed":null`): false, answer(`,"allowed":true`): false, answer(`,"allowed":false,"allowed":true`): false, "": false,
		strings.Replace(answer(`,"allowed":false`), "0df", "1df", 1): false,
	} {
		if got := conversion.DecodeDenial([]byte(body), apiV1, askedUID); (got != nil) != want {
			t.Errorf("%v of %s", got, body)
		}
	}
}

func TestDecodeResponseInAnotherVersionThanAsked(t *testing.T) {
	o := newResponseOracle(t)
	v1, beta := answer(`,"allowed":true`), strings.Replace(answer(`,"allowed":true`), "/v1", "/v1beta1", 1)
	if _, err := checkResponse(t, o, []byte(beta), apiV1); err == nil {
		t.Error("v1beta1 was taken as an answer to v1")
	}
	if _, err := checkResponse(t, o, []byte(v1), apiV1beta1); err == nil {
		t.Error("v1 was taken as an answer to v1beta1")
	}
}

func TestDecodeResponseKeepsNothingOfTheBody(t *testing.T) {
	body := []byte(answer(`,"allowed":true,"patch":"W10=","patchType":"JSONPatch","warnings":["a warning"],"auditAnnotations":{"k":"v"}`))
	got, err := conversion.DecodeResponse(body, apiV1, askedUID)
	if err != nil {
		t.Fatal(err)
	}
	before := proto.CloneOf(got)
	for i := range body {
		body[i] = 'x'
	}
	if !proto.Equal(before, got) {
		t.Errorf("the response changed with the body: %v", got)
	}
}

// TestDecodeResponseOfAnything is TestDecodeReviewOfAnything for answers.
func TestDecodeResponseOfAnything(t *testing.T) {
	o := newResponseOracle(t)
	random := answerSource{reviewSource{rand.New(rand.NewPCG(9, 10))}}
	read := 0
	for range 3000 {
		body := []byte(random.answer())
		if random.IntN(4) == 0 {
			body[random.IntN(len(body))] = "\x00 \"\\,:{}[]0-e.ntu\xff"[random.IntN(18)]
		}
		for _, apiVersion := range []string{apiV1, apiV1beta1} {
			if got, _ := checkResponse(t, o, body, apiVersion); got != nil {
				read++
			}
		}
	}
	if read < 1000 {
		t.Errorf("only %d of the answers were read: the test says little", read)
	}
}

// answerSource makes answers.
type answerSource struct{ reviewSource }

func (s answerSource) answer() string {
	return s.object([]field{
		{"kind", func() string { return s.mostly(`"AdmissionReview"`) }},
		{"apiVersion", func() string {
			return s.mostly(s.oneOf(`"admission.k8s.io/v1"`, `"admission.k8s.io/v1"`, `"admission.k8s.io/v1beta1"`, `"admission.k8s.io/"`, `"/"`, `""`, `"v1"`))
		}},
		{"response", s.response},
		{"request", s.request},
		{"x", func() string { return s.value(2) }},
	}, 3)
}

func (s answerSource) response() string {
	return s.mostly(s.object([]field{
		{"uid", func() string { return s.mostly(`"` + askedUID + `"`) }},
		{"allowed", func() string { return s.mostly(s.oneOf("true", "true", "false")) }},
		{"status", s.status},
		{"patch", func() string {
			return s.mostly(s.oneOf(`"W10="`, `""`, `"\u00571\n0="`, `"W10"`, "[91,93]", "[1,null]", "[256]"))
		}},
		{"patchType", func() string { return s.mostly(s.oneOf(`"JSONPatch"`, `""`, `"x"`)) }},
		{"auditAnnotations", func() string { return s.mostly(s.object([]field{{"a", s.text}, {"b\\u0000", s.text}}, 0)) }},
		{"warnings", s.texts},
	}, 2))
}

func (s answerSource) status() string {
	number := func() string { return s.mostly(s.oneOf("0", "403", "-0", "1e2", "1.0", "2147483648")) }
	cause := []field{{"reason", s.text}, {"message", s.text}, {"field", s.text}}
	details := func() string {
		return s.mostly(s.object([]field{
			{"name", s.text}, {"group", s.text}, {"kind", s.text}, {"uid", s.text}, {"retryAfterSeconds", number},
			{"causes", func() string { return fmt.Sprintf("[%s,%s]", s.object(cause, 0), s.mostly(s.object(cause, 1))) }},
		}, 0))
	}
	return s.mostly(s.object([]field{
		{"metadata", func() string { return s.mostly(`{"resourceVersion":"1"}`) }},
		{"status", s.text}, {"message", s.text}, {"reason", s.text}, {"details", details}, {"code", number},
	}, 0))
}

// FuzzDecodeResponse compares DecodeResponse with kube-apiserver's client.
func FuzzDecodeResponse(f *testing.F) {
	for _, members := range []string{
		``, `,"allowed":true,"patch":"W10=","patchType":"JSONPatch"`, `,"allowed":false,"status":{"code":403,"details":{"causes":[{}]}}`,
		`,"warnings":["a",null],"warnings":[null,"b"],"auditAnnotations":{"a":null}`, `,"patch":[91,93],"patchType":""`, `,"allowed":false,"patch":"?`,
		`},"request":{"uid":1},"Kind":"x","y":{`,
	} {
		f.Add([]byte(answer(members)), true)
		f.Add([]byte(strings.Replace(answer(members), "/v1", "/v1beta1", 1)), false)
	}
	o := newResponseOracle(f)
	f.Fuzz(func(t *testing.T, body []byte, isV1 bool) {
		apiVersion := apiV1beta1
		if isV1 {
			apiVersion = apiV1
		}
		_, _ = checkResponse(t, o, body, apiVersion)
	})
}

func TestEncodeSharedReviewCopiesNoObject(t *testing.T) {
	review := decodeForBenchmark(t, aReview(2000))
	shared, err := conversion.EncodeSharedReview(review)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := conversion.EncodeReviewRequest(nil, review)
	if err != nil {
		t.Fatal(err)
	}
	head, tail := shared.Pieces(review.GetRequest().GetUid())
	joined, aliases := slices.Concat(head, bytes.Join(tail, nil)), 0
	for _, piece := range tail {
		if &piece[0] == &review.GetRequest().GetObject().GetRaw()[0] {
			aliases++
		}
	}
	if diff := cmp.Diff(string(whole), string(joined)); diff != "" {
		t.Errorf("in pieces it is another review (-whole +pieces):\n%s", diff)
	}
	if aliases != 1 {
		t.Errorf("the object is there %d times", aliases)
	}
}
