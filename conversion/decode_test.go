package conversion_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// checkDecode compares DecodeReview with the oracle and returns the result of DecodeReview.
func checkDecode(t testing.TB, o oracle, body []byte) (*admissionv1.ReviewRequest, *conversion.Error) {
	t.Helper()
	before := bytes.Clone(body)
	want, wantErr := o.review(body)
	got, err := conversion.DecodeReview(body)
	if !bytes.Equal(body, before) {
		t.Fatalf("the body was written to\n%q\n%q", before, body)
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("DecodeReview error %v, Kubernetes says %v\n%q", err, wantErr, body)
	}
	uid, apiVersion, ok := conversion.DecodeHead(body)
	if err != nil {
		refused := asError(t, err)
		if ok != (refused.APIVersion != "") || uid != refused.UID || apiVersion != refused.APIVersion {
			t.Fatalf("DecodeHead says %q %q %v beside %+v", uid, apiVersion, ok, refused)
		}
		return nil, refused
	}
	if got.GetApiVersion() != want.APIVersion {
		t.Errorf("apiVersion %q, Kubernetes says %q", got.GetApiVersion(), want.APIVersion)
	}
	if diff := cmp.Diff(want.Request, toKubernetes(got.GetRequest()), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("request differs (-Kubernetes +ours):\n%s\n%q", diff, body)
	}
	if !ok || uid != got.GetRequest().GetUid() || apiVersion != got.GetApiVersion() {
		t.Fatalf("DecodeHead says %q %q %v of a good review", uid, apiVersion, ok)
	}
	checkAliases(t, body, got.GetRequest())
	return got, nil
}

func asError(t testing.TB, err error) *conversion.Error {
	t.Helper()
	var refused *conversion.Error
	if !errors.As(err, &refused) {
		t.Fatalf("%T is no *conversion.Error: %v", err, err)
	}
	if refused.Code != 400 || refused.Reason == "" || refused.Message == "" || (refused.UID == "") != (refused.APIVersion == "" || refused.APIVersion == apiV1alpha1) {
		t.Fatalf("incomplete error %+v", refused)
	}
	return refused
}

// checkAliases checks that the objects are parts of body and cannot grow into it.
func checkAliases(t testing.TB, body []byte, r *admissionv1.AdmissionRequest) {
	t.Helper()
	first := uintptr(unsafe.Pointer(unsafe.SliceData(body)))
	for _, o := range []*admissionv1.Object{r.GetObject(), r.GetOldObject(), r.GetOptions()} {
		if o == nil {
			continue
		}
		at := uintptr(unsafe.Pointer(unsafe.SliceData(o.GetRaw())))
		if at < first || at+uintptr(len(o.GetRaw())) > first+uintptr(len(body)) {
			t.Errorf("an object is a copy: %.40q", o.GetRaw())
		}
		if len(o.GetRaw()) == 0 || cap(o.GetRaw()) != len(o.GetRaw()) {
			t.Errorf("an object of %d bytes with capacity %d", len(o.GetRaw()), cap(o.GetRaw()))
		}
	}
}

func TestDecodeReviewCorpus(t *testing.T) {
	refused := map[string]string{
		"connaisseur-broken.v1.json":                          conversion.ReasonNoUID,
		"namespace-reservation.v1beta1.json":                  conversion.ReasonNoUID,
		"gatekeeper-library-capabilities-update.v1beta1.yaml": conversion.ReasonNotJSON,
		"gatekeeper-library-probes-update.v1beta1.yaml":       conversion.ReasonNotJSON,
	}
	o := newOracle(t)
	for _, path := range corpus(t, "admissionreviews") {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			want := refused[name]
			if strings.HasSuffix(name, ".request.json") {
				want = conversion.ReasonWrongType // A bare request: its kind is an object.
			}
			_, err := checkDecode(t, o, read(t, path))
			switch {
			case err == nil && want != "":
				t.Errorf("read, want %s", want)
			case err != nil && err.Reason != want:
				t.Errorf("refused with %s (%v), want %q", err.Reason, err, want)
			}
		})
	}
}

// v1 is a review with the given members in its request.
func v1(members string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u"` + members + `}}`
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestDecodeReviewAsKubernetes(t *testing.T) {
	const head = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",`
	tests := []struct {
		name   string
		body   string
		reason string // Empty when it is read.
		uid    string // Of the error.
	}{
		{"a minimal v1 review is read", v1(""), "", ""},
		{"a minimal v1beta1 review is read", strings.Replace(v1(""), "/v1", "/v1beta1", 1), "", ""},
		{"white space may stand everywhere", " \t\r\n" + strings.NewReplacer(":", " \n: ", ",", "\t, ", "{", "{\r ", "}", " }").Replace(v1("")) + " \n", "", ""},
		{"an empty body is refused", "", conversion.ReasonNotJSON, ""},
		{"white space alone is refused", " \n", conversion.ReasonNotJSON, ""},
		{"an array is refused", "[]", conversion.ReasonNotJSON, ""},
		{"null is refused", "null", conversion.ReasonNotJSON, ""},
		{"a string is refused", `"AdmissionReview"`, conversion.ReasonNotJSON, ""},
		{"YAML is refused", "kind: AdmissionReview\napiVersion: admission.k8s.io/v1\n", conversion.ReasonNotJSON, ""},
		{"protobuf is refused", "k8s\x00\n", conversion.ReasonNotJSON, ""},
		{"a byte order mark is refused", "\ufeff" + v1(""), conversion.ReasonNotJSON, ""},
		{"a no-break space in front is refused", "\u00a0" + v1(""), conversion.ReasonNotJSON, ""},
		{"an empty object is refused", "{}", conversion.ReasonWrongKind, ""},
		{"another kind is refused", `{"kind":"Pod","apiVersion":"v1"}`, conversion.ReasonWrongKind, ""},
		{"a kind that Kubernetes' scheme also knows in the group is refused",
			strings.Replace(v1(""), "AdmissionReview", "ListOptions", 1), conversion.ReasonWrongKind, ""},
		{"a review without apiVersion is refused", `{"kind":"AdmissionReview","request":{"uid":"u"}}`, conversion.ReasonUnsupportedVersion, ""},
		{"v1alpha1 has a spec in the place of a request", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":{}}`, "", ""},
		{"an unknown version is refused", strings.Replace(v1(""), "/v1", "/v2", 1), conversion.ReasonUnsupportedVersion, ""},
		{"an apiVersion with two slashes is refused", strings.Replace(v1(""), "/v1", "/v1/", 1), conversion.ReasonUnsupportedVersion, ""},
		{"another group is refused", strings.Replace(v1(""), "admission.k8s.io", "admission.example.com", 1), conversion.ReasonUnsupportedVersion, ""},
		{"no request is refused", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, conversion.ReasonNoRequest, ""},
		{"a null request is refused", head + `"request":null}`, conversion.ReasonNoRequest, ""},
		{"no uid is refused", head + `"request":{}}`, conversion.ReasonNoUID, ""},
		{"an empty uid is refused", head + `"request":{"uid":""}}`, conversion.ReasonNoUID, ""},
		{"a null uid is refused", head + `"request":{"uid":null}}`, conversion.ReasonNoUID, ""},
		{"a request that is an array is refused", head + `"request":[]}`, conversion.ReasonWrongType, ""},
		{"a uid that is a number is refused", head + `"request":{"uid":1}}`, conversion.ReasonWrongType, ""},
		{"a kind that is an object is refused", `{"kind":{},"apiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}`, conversion.ReasonWrongType, ""},

		{"the uid is known when a later field has a wrong type", v1(`,"name":1`), conversion.ReasonWrongType, "u"},
		{"the uid is known when an earlier field has a wrong type", head + `"request":{"name":[],"uid":"u"}}`, conversion.ReasonWrongType, "u"},
		{"the uid is known when the object is malformed", v1(`,"object":{"a":tru}`), conversion.ReasonMalformedJSON, "u"},
		{"the uid is known when the body is cut off", v1(`,"object":{"a":`)[:90], conversion.ReasonMalformedJSON, "u"},
		{"the uid is known when something follows", v1("") + "{}", conversion.ReasonMalformedJSON, "u"},
		{"the uid is of no use before the apiVersion", `{"kind":"AdmissionReview","request":{"uid":"u"},,`, conversion.ReasonMalformedJSON, ""},
		{"half a uid is none", head + `"request":{"uid":"12345`, conversion.ReasonMalformedJSON, ""},

		{"unknown fields are skipped", v1(`,"future":{"a":[1,{"b":null}]},"Name":5`), "", ""},
		{"the names of fields are matched by case", v1(`,"Name":"n","NAMESPACE":"n","userinfo":7`), "", ""},
		{"escapes in the names of fields count", v1(`,"\u006eame":"n"`), "", ""},
		{"kind and apiVersion are found whatever their case", `{"KIND":"AdmissionReview","ApiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}`, "", ""},
		{"kind is found by Unicode folding",
			`{"` + "\u212a" + `ind":"AdmissionReview","apiVer` + "\u017f" + `ion":"admission.k8s.io/v1","request":{"uid":"u"}}`, "", ""},
		{"request is matched by case", head + `"Request":{"uid":"u"}}`, conversion.ReasonNoRequest, ""},
		{"the last kind counts, whatever its case",
			`{"kind":"Pod","apiVersion":"v1","Kind":"AdmissionReview","APIVERSION":"admission.k8s.io/v1","request":{"uid":"u"}}`, "", ""},
		{"the last kind counts against", v1("")[:len(v1(""))-1] + `,"Kind":"Pod"}`, conversion.ReasonWrongKind, ""},
		{"a kind of a wrong type counts whatever its case", v1("")[:len(v1(""))-1] + `,"Kind":5}`, conversion.ReasonWrongType, "u"},
		{"a null kind changes nothing", v1("")[:len(v1(""))-1] + `,"kind":null,"apiVersion":null}`, "", ""},

		{"of duplicate strings the last counts", v1(`,"name":"a","name":"b","name":null`), "", ""},
		{"duplicate structures merge", v1(`,"kind":{"group":"g","version":"v"},"kind":{"version":"w","kind":"K"},"kind":null`), "", ""},
		{"a null takes back a pointer",
			v1(`,"requestKind":{"group":"g"},"requestKind":null,"requestKind":{"version":"v"},"requestResource":{"group":"g"},"requestResource":null`), "", ""},
		{"a null takes back dryRun", v1(`,"dryRun":true,"dryRun":null`), "", ""},
		{"the last dryRun counts", v1(`,"dryRun":true,"dryRun":false`), "", ""},
		{"duplicate requests merge", head + `"request":{"uid":"u","name":"n"},"request":{"namespace":"m"}}`, "", ""},
		{"a null takes back a request", head + `"request":{"uid":"u","name":"n"},"request":null,"request":{"uid":"v"}}`, "", ""},
		{"the last object counts, and null changes nothing", v1(`,"object":{"a":1},"object":{"b":2},"object":null`), "", ""},
		{"duplicate users merge",
			v1(`,"userInfo":{"username":"a","extra":{"k":["1"]}},"userInfo":{"uid":"b","extra":{"l":["2"],"k":["3",null]}},"userInfo":null`), "", ""},
		{"a null takes back extra", v1(`,"userInfo":{"extra":{"k":["1"]},"extra":null,"extra":{"l":null}}`), "", ""},
		{"null groups keep what stood at their place", v1(`,"userInfo":{"groups":["a","b","c"],"groups":["d"],"groups":["e",null,null,null]}`), "", ""},
		{"an empty array forgets what stood at its place", v1(`,"userInfo":{"groups":["a","b"],"groups":[],"groups":[null,"c"]}`), "", ""},
		{"a null forgets what stood at its place", v1(`,"userInfo":{"groups":["a","b"],"groups":null,"groups":[null,"c"]}`), "", ""},
		{"empty groups stay", v1(`,"userInfo":{"groups":["","a",null]}`), "", ""},

		{"groups of a wrong type are refused", v1(`,"userInfo":{"groups":"a"}`), conversion.ReasonWrongType, "u"},
		{"a group of a wrong type is refused", v1(`,"userInfo":{"groups":[1]}`), conversion.ReasonWrongType, "u"},
		{"extra of a wrong type is refused", v1(`,"userInfo":{"extra":[]}`), conversion.ReasonWrongType, "u"},
		{"an extra value of a wrong type is refused", v1(`,"userInfo":{"extra":{"a":"b"}}`), conversion.ReasonWrongType, "u"},
		{"userInfo of a wrong type is refused", v1(`,"userInfo":"me"`), conversion.ReasonWrongType, "u"},
		{"a resource of a wrong type is refused", v1(`,"resource":"pods"`), conversion.ReasonWrongType, "u"},
		{"a requestResource of a wrong type is refused", v1(`,"requestResource":true`), conversion.ReasonWrongType, "u"},
		{"a dryRun of a wrong type is refused", v1(`,"dryRun":"true"`), conversion.ReasonWrongType, "u"},

		{"an object may be any JSON value", v1(`,"object":"None","oldObject":-1.5e+3,"options":[true]`), "", ""},
		{"an object may be false", v1(`,"object":false`), "", ""},
		{"a null object is absent", v1(`,"object":null,"oldObject": null ,"options":null`), "", ""},
		{"an object keeps its bytes", v1(`,"object": {"b" : 1.0,"a":1e3 , "a":12345678901234567890,"s":"<\u00e9\u0000"} `), "", ""},
		{"invalid UTF-8 in an object is refused", v1(`,"object":{"s":"` + "\xff" + `"}`), conversion.ReasonMalformedJSON, "u"},
		{"half a surrogate pair in an object is refused", v1(`,"options":{"\ud800":1}`), conversion.ReasonMalformedJSON, "u"},
		{"an object that does not count may be anything", v1(`,"object":"` + "\xff" + `","object":{}`), "", ""},
		{"invalid UTF-8 in a string is replaced", v1(`,"name":"a` + "\xff\xc3" + `b"`), "", ""},
		{"invalid UTF-8 in an extra key is replaced", v1(`,"userInfo":{"extra":{"` + "\xff" + `":["` + "\xe2\x80" + `"]}}`), "", ""},
		{"surrogates are joined or replaced", v1(`,"name":"\ud83d\ude00 \ud83d \ude00\ud83dx"`), "", ""},
		{"all escapes are read", v1(`,"name":"\"\\\/\b\f\n\r\t\u00e9"`), "", ""},

		{"the response is checked though nobody reads it", v1(`},"response":{"uid":5`), conversion.ReasonWrongType, "u"},
		{"a patch in the response must be base64", v1(`},"response":{"patch":"?"`), conversion.ReasonWrongType, "u"},
		{"a code in the response must fit", v1(`},"response":{"status":{"code":2147483648}`), conversion.ReasonWrongType, "u"},
		{"a good response is skipped", v1(`},"response":{"uid":"x","allowed":true,"status":{"code":200,"metadata":{}},"patch":"W10="`), "", ""},
		{"a null response is skipped", v1(`},"response":null,"x":{`), "", ""},

		{"nesting may be as deep as Kubernetes reads it", v1(`,"object":` + nested(9998)), "", ""},
		{"deeper nesting is refused", v1(`,"object":` + nested(9999)), conversion.ReasonMalformedJSON, "u"},
		{"deep nesting in an unknown field is refused", v1(`,"x":` + nested(9999)), conversion.ReasonMalformedJSON, "u"},
		{"endless nesting is refused", v1(`,"object":` + strings.Repeat(`{"a":[`, 100000)), conversion.ReasonMalformedJSON, "u"},
		{"siblings do not add to the depth", v1(`,"object":[` + strings.Repeat(`{"a":[]},`, 20000) + `{}]`), "", ""},
	}
	o := newOracle(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := checkDecode(t, o, []byte(test.body))
			switch {
			case err == nil && test.reason != "":
				t.Errorf("read, want %s", test.reason)
			case err != nil && (err.Reason != test.reason || err.UID != test.uid):
				t.Errorf("refused with %s, uid %q (%v), want %q, uid %q", err.Reason, err.UID, err, test.reason, test.uid)
			}
		})
	}
}

// TestDecodeReviewGrammar puts each value in each place: as the object, as an unknown field and as a field of a type.
func TestDecodeReviewGrammar(t *testing.T) {
	values := []string{
		"", "0", "-0", "01", "-", "-a", "1.", ".5", "1.5", "1.e5", "1e", "1e+", "1E-07", "1e5.5", "+1", "0x1", "1_0", "Infinity", "NaN",
		"true", "tru", "truex", "True", "false", "fals", "null", "nul", "nullx", "NULL",
		`"`, `""`, `"a`, `"\`, `"\"`, `"\a"`, `"\u"`, `"\u12"`, `"\u12g4"`, `"\u12G4"`, `"\uABcd"`, `'a'`, `"\'"`,
		"\"a\x1f\"", "\"a\x7f\"", "\"a\x00\"", "\"a\n\"", "\"12345678\x01\"", `"1234567\"`, `"1234567\\"`, "\"\xff\"", "\"1234567\xffabc\"",
		"[", "]", "[]", "[,]", "[1,]", "[1 2]", "[1,2", "[[]", "[}", `["a":1]`,
		"{", "}", "{}", "{,}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`, `{a:1}`, `{1:1}`, `{"a"::1}`, `{"a":1]`, `{"a" 1}`, `{"a":1,,}`,
		"1 2", "//", "/**/1", "\x00", "\v1", "\u00a01",
	}
	o := newOracle(t)
	for _, value := range values {
		for _, place := range []string{
			`,"object":`, `,"unknown":`, `,"name":`, `,"kind":`, `,"userInfo":`, `,"dryRun":`, `},"response":`, `},"kind":`, `},`,
		} {
			_, _ = checkDecode(t, o, []byte(v1(place+value)))
		}
	}
}

// TestDecodeReviewTruncated cuts a review at each byte.
func TestDecodeReviewTruncated(t *testing.T) {
	body := v1(`,"kind":{"group":"g"},"name":"n\u00e9","userInfo":{"groups":["a"],"extra":{"k":["v"]}},"object":{"a":[1.5e3,true,null,"\n"]},"dryRun":false`)
	o := newOracle(t)
	for n := range len(body) {
		_, err := checkDecode(t, o, []byte(body[:n]))
		if err == nil {
			t.Fatalf("the first %d bytes are read", n)
		}
		if known := strings.Contains(body[:n], `"uid":"u"`); known != (err.UID == "u") {
			t.Errorf("uid %q after %q", err.UID, body[:n])
		}
	}
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	for body, want := range map[string]string{
		v1(`,"userInfo":{"groups":{}}`):    "request.userInfo.groups is an object, want an array",
		v1(`,"requestKind":{"version":1}`): "request.requestKind.version is a number, want a string",
		v1(`,"object":{"a":1,}`):           "unexpected '}', want the name of a member, at byte 98",
		v1(`,"object":{"a":"b`)[:100]:      "unexpected end of the document in a string at byte 100",
		`{"kind":"Pod"}`:                   `the body is of kind "Pod": send an AdmissionReview`,
	} {
		_, err := conversion.DecodeReview([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", body, err, want)
		}
	}
}
