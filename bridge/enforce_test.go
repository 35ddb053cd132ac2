package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/testing/protocmp"
	k8sadmission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const enforcePath = "/v1/clusters/prod-1/enforce"

// specOf is a document in the proposal's own form, with a spec.
func specOf(spec string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","spec":` + spec + `,"status":{}}`
}

// goodSpec is the example of the proposal, with an object.
const goodSpec = `{"resource":"pods","subresource":"","operation":"Create",` +
	`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default"}},"oldObject":null,` +
	`"userInfo":{"name":"user1","uid":"cn=user,dn=ou","groups":["g=1"]}}`

// verdictOf reads an answer as a caller does that knows nothing but the proposal.
func verdictOf(t testing.TB, response *http.Response, body []byte) (status metav1.Status, said enforcement) {
	t.Helper()
	if response.StatusCode == http.StatusNoContent {
		if len(body) != 0 || response.Header.Get("Content-Type") != "" || response.ContentLength > 0 {
			t.Errorf("204 with a body of %d bytes, headers %v", len(body), response.Header)
		}
		return metav1.Status{}, enforcement{}
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusBadRequest {
		understand(t, response, body)
		return metav1.Status{}, enforcement{}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&said); err != nil || said.Kind != "AdmissionReview" || said.APIVersion == "" {
		t.Errorf("the body of a %d is no AdmissionReview (%v):\n%s", response.StatusCode, err, body)
	}
	want := map[int]string{http.StatusOK: metav1.StatusSuccess, http.StatusBadRequest: metav1.StatusFailure}
	if said.Status.Status != want[response.StatusCode] || said.Status.Code == 0 {
		t.Errorf("a %d with status %+v", response.StatusCode, said.Status)
	}
	if response.Header.Get("Content-Type") != "application/json" || response.ContentLength != int64(len(body)) {
		t.Errorf("content type %q, content length %d for %d bytes", response.Header.Get("Content-Type"), response.ContentLength, len(body))
	}
	return said.Status, said
}

func TestVerdictsOfEnforce(t *testing.T) {
	tests := map[string]struct {
		answer *admissionv1.AdmissionResponse
		code   int
		status metav1.Status
	}{
		"Admitted, with nothing more to say": {&admissionv1.AdmissionResponse{Allowed: true}, 204, metav1.Status{}},
		"Admitted, with a warning": {
			&admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"think again"}}, 200,
			metav1.Status{Status: "Success", Code: 200},
		},
		"Admitted, with an annotation": {
			&admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"failed-open": "a.b.c"}}, 200,
			metav1.Status{Status: "Success", Code: 200},
		},
		"Admitted, with no annotation but the revision": {
			&admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"revision": "r1"}}, 204, metav1.Status{},
		},
		"Admitted, with a status that nobody reads": {
			&admissionv1.AdmissionResponse{Allowed: true, Status: &admissionv1.Status{Code: 500}}, 204, metav1.Status{},
		},
		"Rejected": {
			&admissionv1.AdmissionResponse{
				Warnings: []string{"and this"},
				Status: &admissionv1.Status{
					Status: "Failure", Message: "no <b>", Reason: "Forbidden", Code: 403,
					Details: &admissionv1.StatusDetails{
						Name: "a", Group: "g", Kind: "k", Uid: "u", RetryAfterSeconds: 7,
						Causes: []*admissionv1.StatusCause{{Reason: "FieldValueInvalid", Message: "m", Field: "spec.x"}},
					},
				},
			}, 400,
			metav1.Status{
				Status: "Failure", Message: "no <b>", Reason: "Forbidden", Code: 403,
				Details: &metav1.StatusDetails{
					Name: "a", Group: "g", Kind: "k", UID: "u", RetryAfterSeconds: 7,
					Causes: []metav1.StatusCause{{Type: "FieldValueInvalid", Message: "m", Field: "spec.x"}},
				},
			},
		},
		"Rejected for no reason": {&admissionv1.AdmissionResponse{}, 400, metav1.Status{Status: "Failure", Code: 400}},
	}
	for name, test := range tests {
		for form, document := range map[string]string{"spec": specOf(goodSpec), "request": reviewOf("u1", 0)} {
			t.Run(name+", to a "+form, func(t *testing.T) {
				e := serve(t, testOptions(func(_ context.Context, r *review.Request) (review.Answer, error) {
					if r.Stage != admissionv1.Stage_STAGE_VALIDATE || r.Entry.Name != "closed" {
						t.Errorf("asked for stage %v of entry %q", r.Stage, r.Entry)
					}
					test.answer.Uid = r.Admission.GetUid()
					return review.Answer{Response: test.answer, Revision: "r1"}, nil
				}))
				conn := e.dial(t)
				conn.send(t, post(enforcePath+"/closed", document))
				response, body := conn.receive(t)
				status, said := verdictOf(t, response, body)
				if response.StatusCode != test.code || response.Header.Get(revisionHeader) != "r1" {
					t.Errorf("status %d, headers %v, want %d with the revision", response.StatusCode, response.Header, test.code)
				}
				if diff := cmp.Diff(test.status, status); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
				if test.code == http.StatusNoContent {
					return
				}
				want := &k8sadmission.AdmissionResponse{
					UID: said.Response.UID, Allowed: test.answer.GetAllowed(),
					Warnings: test.answer.GetWarnings(), AuditAnnotations: test.answer.GetAuditAnnotations(),
				}
				if !want.Allowed {
					want.Result = &status
				}
				if diff := cmp.Diff(want, said.Response); diff != "" || want.UID == "" {
					t.Errorf("response (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// The request that a spec gives, and the fields that the object completes.
func TestRequestsOfSpecs(t *testing.T) {
	const deployment = `{"apiVersion":"apps/v1beta1","kind":"Deployment","metadata":{"name":"d","namespace":"n"}}`
	tests := map[string]struct {
		spec string
		want *admissionv1.AdmissionRequest
	}{
		"The example of the proposal": {goodSpec, &admissionv1.AdmissionRequest{
			Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Name:     "a", Namespace: "default", Operation: "CREATE",
			UserInfo: &admissionv1.UserInfo{Username: "user1", Uid: "cn=user,dn=ou", Groups: []string{"g=1"}},
			Object:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default"}}`)},
		}},
		"An update of another group, by names that are said": {
			`{"resource":"deployments","operation":"UPDATE","object":` + deployment + `,"oldObject":` + deployment +
				`,"group":"extensions","version":"v1beta1","name":"x","namespace":"y","dryRun":true,` +
				`"userInfo":{"username":"u","extra":{"k":["v"]}}}`,
			&admissionv1.AdmissionRequest{
				Kind:     &admissionv1.GroupVersionKind{Group: "apps", Version: "v1beta1", Kind: "Deployment"},
				Resource: &admissionv1.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"},
				Name:     "x", Namespace: "y", Operation: "UPDATE", DryRun: new(true),
				UserInfo:  &admissionv1.UserInfo{Username: "u", Extra: map[string]*admissionv1.ExtraValue{"k": {Items: []string{"v"}}}},
				Object:    &admissionv1.Object{Raw: []byte(deployment)},
				OldObject: &admissionv1.Object{Raw: []byte(deployment)},
			},
		},
		"A deletion, of which only the old object is left": {
			`{"resource":"deployments","operation":"delete","oldObject":` + deployment + `}`,
			&admissionv1.AdmissionRequest{
				Kind:     &admissionv1.GroupVersionKind{Group: "apps", Version: "v1beta1", Kind: "Deployment"},
				Resource: &admissionv1.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "deployments"},
				Name:     "d", Namespace: "n", Operation: "DELETE", UserInfo: &admissionv1.UserInfo{},
				OldObject: &admissionv1.Object{Raw: []byte(deployment)},
			},
		},
		"A deletion of which nothing is left": {
			`{"resource":"pods","version":"v1","operation":"Delete","name":"a","namespace":"n"}`,
			&admissionv1.AdmissionRequest{
				Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
				Name:     "a", Namespace: "n", Operation: "DELETE", UserInfo: &admissionv1.UserInfo{},
			},
		},
		"A subresource whose object is of another group": {
			`{"resource":"pods","subresource":"eviction","version":"v1","operation":"Create",` +
				`"object":{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}}`,
			&admissionv1.AdmissionRequest{
				Kind:     &admissionv1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
				Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, SubResource: "eviction",
				Name: "a", Operation: "CREATE", UserInfo: &admissionv1.UserInfo{},
				Object: &admissionv1.Object{Raw: []byte(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`)},
			},
		},
		"A namespace, which is in itself": {
			`{"resource":"namespaces","operation":"Create","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}}`,
			&admissionv1.AdmissionRequest{
				Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Namespace"},
				Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
				Name:     "n", Namespace: "n", Operation: "CREATE", UserInfo: &admissionv1.UserInfo{},
				Object: &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`)},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, refused := decodeEnforce([]byte(specOf(test.spec)))
			if refused != nil {
				t.Fatal(refused.message)
			}
			if got.GetApiVersion() != "admission.k8s.io/v1" || got.GetRequest().GetUid() == "" {
				t.Errorf("apiVersion %q, uid %q", got.GetApiVersion(), got.GetRequest().GetUid())
			}
			test.want.Uid = got.GetRequest().GetUid()
			if diff := cmp.Diff(test.want, got.GetRequest(), protocmp.Transform()); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// Every error in the input of /enforce, on one connection. Only a caller that may not ask, and a time when nothing may judge, have
// another status than 400.
func TestBadInputToEnforce(t *testing.T) {
	good := specOf(goodSpec)
	deep := strings.Repeat("[", 10001) + strings.Repeat("]", 10001)
	spec := func(from, to string) string { return post(enforcePath, strings.Replace(good, from, to, 1)) }
	tests := map[string]struct {
		request string
		status  int
		code    int32
		message string
	}{
		"No body":                  {post(enforcePath, ""), 400, 400, "not a JSON object"},
		"A body that is not JSON":  {post(enforcePath, "kind: AdmissionReview"), 400, 400, "not a JSON object"},
		"Malformed JSON":           {post(enforcePath, good[:len(good)-1]), 400, 400, "malformed JSON"},
		"Text behind the review":   {post(enforcePath, good+"x"), 400, 400, "malformed JSON"},
		"Malformed JSON and a uid": {post(enforcePath, reviewOf("u1", 0)+"x"), 400, 400, "malformed JSON"},
		"Another kind":             {post(enforcePath, `{"kind":"Pod","apiVersion":"v1"}`), 400, 400, `kind "Pod"`},
		"A version that never was": {spec("admission.k8s.io/v1", "admission.k8s.io/v9"), 400, 400, "admission.k8s.io/v9"},
		"Neither spec nor request": {post(enforcePath, specOf("null")), 400, 400, "neither spec nor request"},
		"A request without uid":    {post(enforcePath, reviewOf("", 0)), 400, 400, "no uid"},
		"A spec that is no object": {post(enforcePath, specOf(`"pods"`)), 400, 400, "spec of the AdmissionReview cannot be read"},
		"A field that is misspelt": {spec("subresource", "subResource"), 400, 400, `unknown field "subResource"`},
		"A field that comes twice": {spec(`"subresource":""`, `"resource":"nodes"`), 400, 400, "duplicate field"},
		"An object with a field twice": {
			spec(`"oldObject":null`, `"oldObject":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"skip":""}},"metadata":{}}`),
			400, 400, `duplicate field "metadata"`,
		},
		"An object that is no text": {
			spec(`"oldObject":null`, `"oldObject":{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a":"`+"\xff"+`"}}}`),
			400, 400, "request.oldObject cannot be judged: invalid UTF-8 in a string",
		},
		"A request with an object that is no text": {
			post(enforcePath, strings.Replace(reviewOf("u1", 0), `"operation":`, `"oldObject":{"a":"\udc00"},"operation":`, 1)),
			400, 400, "request.oldObject of the AdmissionReview cannot be read: invalid UTF-8 in a string",
		},
		"Options with a field twice": {
			post(enforcePath, strings.Replace(reviewOf("u1", 0), `"operation":`, `"options":{"a":1,"a":2},"operation":`, 1)),
			400, 400, `request.options cannot be judged: duplicate field "a"`,
		},
		"A resource as rules have none": {
			spec(`"pods"`, `"pods/exec"`), 400, 400, `spec.resource is "pods/exec"`,
		},
		"No resource":                       {spec(`"resource":"pods",`, ""), 400, 400, `spec.resource is ""`},
		"A resource as now, an object":      {spec(`"pods"`, `{"resource":"pods"}`), 400, 400, "cannot be read"},
		"A subresource that none is":        {spec(`"subresource":""`, `"subresource":"*"`), 400, 400, `spec.subresource is "*"`},
		"No operation":                      {spec(`"Create"`, `""`), 400, 400, `spec.operation is ""`},
		"An operation that never was":       {spec(`"Create"`, `"Patch"`), 400, 400, `spec.operation is "Patch"`},
		"An object that is none":            {spec(`"oldObject":null`, `"oldObject":7`), 400, 400, "the object of the spec cannot be read"},
		"An object without kind":            {spec(`"kind":"Pod"`, `"kind":""`), 400, 400, "write both"},
		"An object of no group and version": {spec(`"apiVersion":"v1","kind":"Pod"`, `"apiVersion":"a/b/c","kind":"Pod"`), 400, 400, `apiVersion "a/b/c"`},
		"Nothing to tell the version by": {
			post(enforcePath, specOf(`{"resource":"pods","operation":"Delete"}`)), 400, 400, "spec.version is missing",
		},
		"A subresource without version": {spec(`"subresource":""`, `"subresource":"status"`), 400, 400, "spec.version is missing"},
		"Nesting of 10,001 levels":      {spec(`"oldObject":null`, `"oldObject":`+deep), 400, 400, "malformed JSON"},
		"A body over the limit":         {post(enforcePath, reviewOf("u1", testLimit+1)), 400, 413, "larger than"},
		"A body over the limit, in chunks": {
			post(enforcePath, chunked(reviewOf("u1", testLimit+1)), "Transfer-Encoding: chunked", "Content-Length: "), 400, 413, "larger than",
		},
		"A body over the limit that is no review": {post(enforcePath, strings.Repeat("x", testLimit+1)), 400, 413, "larger than"},
		"A timeout of words":                      {post(enforcePath+"?timeout=soon", good), 400, 400, `timeout="soon"`},
		"Another content type": {
			post(enforcePath, good, "Content-Type: application/vnd.kubernetes.protobuf"), 400, 415, "kubernetes.protobuf",
		},
		"A compressed body":          {post(enforcePath, good, "Content-Encoding: gzip"), 400, 415, "uncompressed"},
		"Another method":             {strings.Replace(post(enforcePath, good), "POST", "PUT", 1), 405, 405, "method PUT"},
		"An empty entry":             {post(enforcePath+"/", good), 404, 404, "no such path"},
		"A cluster of somebody else": {post("/v1/clusters/prod-9/enforce", good), 403, 403, "spec.identities"},
	}
	e := serve(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		if r.Admission.GetUid() != "again" {
			t.Errorf("a review that is refused reached the Reviewer: %v", r)
		}
		return allow(ctx, r)
	}))
	conn := e.dial(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			conn.send(t, test.request)
			response, body := conn.receive(t)
			status, _ := verdictOf(t, response, body)
			if response.StatusCode != http.StatusBadRequest {
				got := understand(t, response, body)
				status.Code, status.Message = got.code, got.message
			}
			if response.StatusCode != test.status || status.Code != test.code {
				t.Fatalf("status %d with code %d, want %d with %d (%s)", response.StatusCode, status.Code, test.status, test.code, status.Message)
			}
			if !strings.Contains(status.Message, test.message) || !strings.HasPrefix(status.Message, "portcullis: ") {
				t.Errorf("message = %q, want it to say %q", status.Message, test.message)
			}
			conn.send(t, post(enforcePath, reviewOf("again", 0)))
			if response, _ := conn.receive(t); response.StatusCode != http.StatusNoContent {
				t.Errorf("the next review on the connection: %d", response.StatusCode)
			}
			if held := e.options.Memory.InUse(); held != 0 {
				t.Errorf("%d bytes are still held", held)
			}
		})
	}
}

// The common failures happen here too, in the form of this protocol.
func TestFailuresToEnforce(t *testing.T) {
	tests := map[string]struct {
		reviewer reviewerFunc
		status   int
		code     int32
		outcome  review.Outcome
	}{
		"Nothing may judge": {
			func(context.Context, *review.Request) (review.Answer, error) {
				return review.Answer{}, errors.New("stale")
			}, 503, 503, review.OutcomeRefused,
		},
		"A panic": {
			func(context.Context, *review.Request) (review.Answer, error) { panic("boom") }, 400, 500, review.OutcomeFailed,
		},
		"An answer to something else": {
			func(context.Context, *review.Request) (review.Answer, error) {
				return review.Answer{Response: &admissionv1.AdmissionResponse{Uid: "other", Allowed: true}}, nil
			}, 400, 500, review.OutcomeFailed,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := serve(t, testOptions(test.reviewer))
			conn := e.dial(t)
			conn.send(t, post(enforcePath, specOf(goodSpec)))
			response, body := conn.receive(t)
			status, _ := verdictOf(t, response, body)
			if response.StatusCode == http.StatusServiceUnavailable {
				status.Code = understand(t, response, body).code
				if response.Header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			}
			if response.StatusCode != test.status || status.Code != test.code || strings.Contains(status.Message, "boom") {
				t.Errorf("status %d with %+v, want %d with code %d", response.StatusCode, status, test.status, test.code)
			}
			counted := e.instruments.requests.WithLabelValues("prod-1", edgeEnforce, "validate", string(test.outcome), fmt.Sprint(test.status))
			eventually(t, "it is counted", func() bool { return testutil.ToFloat64(counted) == 1 })
		})
	}
}

// A sender that stops in the middle is told so, whatever of its document has arrived.
func TestSlowSenderToEnforce(t *testing.T) {
	e := serve(t, testOptions(allow))
	conn := e.dial(t)
	body := specOf(goodSpec)
	request := post(enforcePath+"?timeout=100ms", body)
	conn.send(t, request[:len(request)-len(body)+20])
	response, text := conn.receive(t)
	if status, _ := verdictOf(t, response, text); response.StatusCode != http.StatusBadRequest || status.Code != http.StatusRequestTimeout {
		t.Errorf("status %d with %+v, want 400 with code 408", response.StatusCode, status)
	}
}

func TestEnforceOverHTTP2(t *testing.T) {
	e := serve(t, testOptions(allow))
	response, err := e.client2(t).Post(e.url(enforcePath), "application/json", strings.NewReader(specOf(goodSpec)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusNoContent {
		t.Errorf("%s %s, want 204 over HTTP/2", response.Proto, response.Status)
	}
}

// decodePosted decodes a body that was posted to /enforce.
func decodePosted(body []byte) (*admissionv1.AdmissionRequest, *refusal) {
	x := &exchange{endpoint: &endpoint{enforces: true}, body: body}
	return x.decode()
}

// Any input becomes a request with a uid and objects in JSON, or is refused with a message.
func FuzzDecodeEnforce(f *testing.F) {
	f.Add([]byte(specOf(goodSpec)))
	f.Add([]byte(reviewOf("u1", 0)))
	f.Add([]byte(specOf(`{"resource":"pods","version":"v1","operation":"Delete","userInfo":{"extra":{"a":null}}}`)))
	f.Add([]byte(specOf(`{"resource":"pods","operation":"create","object":{"apiVersion":"v1","kind":"X","metadata":null}}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, refused := decodePosted(body)
		if refused != nil {
			if refused.code != http.StatusBadRequest || refused.message == "" {
				t.Errorf("refused with %+v", refused)
			}
			return
		}
		if r.GetUid() == "" {
			t.Error("no uid")
		}
		for _, o := range []*admissionv1.Object{r.GetObject(), r.GetOldObject()} {
			if o != nil && !json.Valid(o.GetRaw()) {
				t.Errorf("an object that is no JSON: %q", o.GetRaw())
			}
		}
	})
}
