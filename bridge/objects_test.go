package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// objectFields sets each field of a request that holds an object.
func objectFields() map[string]func(*admissionv1.AdmissionRequest, *admissionv1.Object) {
	return map[string]func(*admissionv1.AdmissionRequest, *admissionv1.Object){
		"object":    func(r *admissionv1.AdmissionRequest, o *admissionv1.Object) { r.Object = o },
		"oldObject": func(r *admissionv1.AdmissionRequest, o *admissionv1.Object) { r.OldObject = o },
		"options":   func(r *admissionv1.AdmissionRequest, o *admissionv1.Object) { r.Options = o },
	}
}

// Bytes that go on behind an object were written into the AdmissionReview of JSON webhooks as they came, where they counted as the
// user and the namespace of the request.
func TestObjectsOverGRPCAreJSONObjects(t *testing.T) {
	judged := false
	reviewer := func(_ context.Context, r *review.Request) (review.Answer, error) {
		judged = true
		return review.Answer{Response: &admissionv1.AdmissionResponse{Uid: r.Admission.GetUid(), Allowed: true}}, nil
	}
	client := serveGRPC(t, newBridge(t, testOptions(reviewer)))("kube-apiserver")
	for name, test := range map[string]struct {
		object *admissionv1.Object
		want   string
	}{
		"an object":              {&admissionv1.Object{Raw: []byte(` {"metadata":{"labels":{"a":"b"}}} `)}, ""},
		"an object, as JSON":     {&admissionv1.Object{Raw: []byte(`{}`), ContentType: "application/json"}, ""},
		"none":                   {nil, ""},
		"fields behind it":       {&admissionv1.Object{Raw: []byte(`{"metadata":{}},"userInfo":{"username":"system:admin"}`)}, "malformed JSON"},
		"cut off":                {&admissionv1.Object{Raw: []byte(`{"metadata":{}`)}, "malformed JSON"},
		"a duplicate field":      {&admissionv1.Object{Raw: []byte(`{"a":1,"a":2}`)}, `duplicate field "a"`},
		"no bytes":               {&admissionv1.Object{}, "not a JSON object"},
		"null":                   {&admissionv1.Object{Raw: []byte(`null`)}, "not a JSON object"},
		"an array":               {&admissionv1.Object{Raw: []byte(`[]`)}, "not a JSON object"},
		"YAML":                   {&admissionv1.Object{Raw: []byte("kind: Pod")}, "not a JSON object"},
		"UTF-16":                 {&admissionv1.Object{Raw: []byte("{\x00}\x00")}, "malformed JSON"},
		"bytes that are no text": {&admissionv1.Object{Raw: []byte("{\"k\":\"V\xff\xfe\"}")}, "invalid UTF-8 in a string at byte 7"},
		"half a surrogate pair":  {&admissionv1.Object{Raw: []byte(`{"\ud83d":1}`)}, "invalid UTF-8 in a string at byte 2"},
		"an unusual media type":  {&admissionv1.Object{Raw: []byte(`{}`), ContentType: "application/yaml"}, "content type"},
	} {
		for field, set := range objectFields() {
			t.Run(name+"/"+field, func(t *testing.T) {
				judged = false
				r := grpcReview()
				set(r.GetRequest(), test.object)
				_, err := client.Review(t.Context(), r)
				if test.want == "" {
					if err != nil || !judged {
						t.Errorf("judged %t, error %v", judged, err)
					}
					return
				}
				message := status.Convert(err).Message()
				if status.Code(err) != codes.InvalidArgument || judged ||
					!strings.Contains(message, "request."+field+" ") || !strings.Contains(message, test.want) {
					t.Errorf("judged %t, error %v, want InvalidArgument with %q", judged, err, test.want)
				}
			})
		}
	}
}

// FuzzObjectsInAReview writes accepted objects of a caller into AdmissionReviews: encoding/json reads the objects in their fields, and
// nothing else.
func FuzzObjectsInAReview(f *testing.F) {
	const object = `{"kind":"Pod","metadata":{"labels":{"a":"é"}},"n":[1.0,null,{}]}`
	f.Add([]byte(object), []byte(nil), []byte(`{"dryRun":["All"]}`), "mallory")
	f.Add([]byte(` `+object+"\n"), []byte(`{}`), []byte(nil), "a\"b")
	f.Add([]byte(`{}},"userInfo":{"username":"system:admin"},"object":{}`), []byte(`{}`), []byte(`{}`), "")
	f.Add([]byte(`{"a":"\`), []byte(`","options":{}`), []byte(`{"a":"`), "")
	f.Add([]byte(`{}`), []byte(`{"Object":1,"object":2}`), []byte(`{"":1,"":2}`), "\x00")
	f.Fuzz(func(t *testing.T, object, old, options []byte, user string) {
		r := &admissionv1.AdmissionRequest{
			Uid: "u1", Namespace: "prod", Operation: "CREATE", UserInfo: &admissionv1.UserInfo{Username: strings.ToValidUTF8(user, "")},
			Object: given(object), OldObject: given(old), Options: given(options), DryRun: proto.Bool(true),
		}
		if checkObjects(r, nil) != nil {
			return
		}
		for version, asked := range map[string]string{
			"admission.k8s.io/v1": "request", "admission.k8s.io/v1beta1": "request", "admission.k8s.io/v1alpha1": "spec",
		} {
			shared, err := conversion.EncodeSharedReview(&admissionv1.ReviewRequest{Request: r, ApiVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			head, tail := shared.Pieces(r.GetUid())
			checkSpliced(t, append(head, bytes.Join(tail, nil)...), asked, r)
		}
	})
}

// given is an object of a caller; no bytes are none.
func given(raw []byte) *admissionv1.Object {
	if raw == nil {
		return nil
	}
	return &admissionv1.Object{Raw: raw}
}

func checkSpliced(t *testing.T, written []byte, asked string, r *admissionv1.AdmissionRequest) {
	t.Helper()
	var document, fields map[string]json.RawMessage
	if err := json.Unmarshal(written, &document); err != nil {
		t.Fatalf("%v: %q", err, written)
	}
	if err := json.Unmarshal(document[asked], &fields); err != nil {
		t.Fatalf("%v: %q", err, document[asked])
	}
	var user struct {
		Username string `json:"username"`
	}
	if err := json.Unmarshal(fields["userInfo"], &user); err != nil || user.Username != r.GetUserInfo().GetUsername() {
		t.Errorf("user %q, error %v, want %q", user.Username, err, r.GetUserInfo().GetUsername())
	}
	if string(fields["namespace"]) != `"prod"` || string(fields["operation"]) != `"CREATE"` {
		t.Errorf("namespace %s, operation %s", fields["namespace"], fields["operation"])
	}
	wanted := map[string]*admissionv1.Object{"object": r.GetObject(), "oldObject": r.GetOldObject()}
	if asked == "request" {
		wanted["options"] = r.GetOptions()
	}
	for name, want := range wanted {
		raw := bytes.TrimSpace(want.GetRaw())
		if want == nil {
			raw = []byte("null")
		}
		if got := fields[name]; !bytes.Equal(got, raw) {
			t.Errorf("%s is %q, want %q", name, got, raw)
		}
	}
	for name := range fields {
		switch name {
		case "uid", "kind", "resource", "namespace", "operation", "userInfo", "object", "oldObject", "options", "dryRun":
		default:
			t.Errorf("there is a field %q: %s", name, document[asked])
		}
	}
	delete(document, "status") // of v1alpha1
	if len(document) != 3 {    // kind, apiVersion and spec or request
		t.Errorf("the document has other fields: %q", written)
	}
}
