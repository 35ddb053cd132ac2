package hostsdk

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// asked is a request with all that requests have.
func asked() *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: "705ab4f5", Cluster: "prod-1",
		Kind:     &admissionv1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		Resource: &admissionv1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Name:     "web", Namespace: "shop", Operation: "UPDATE", SubResource: "scale",
		UserInfo: &admissionv1.UserInfo{
			Username: "jane", Uid: "7", Groups: []string{"dev", "system:authenticated"},
			Extra: map[string]*admissionv1.ExtraValue{"scopes": {Items: []string{"a", "b"}}},
		},
		Object:    &admissionv1.Object{ContentType: "application/json", Raw: []byte(`{"new":1}`)},
		OldObject: &admissionv1.Object{Raw: []byte(`{"old":1}`)},
		Options:   &admissionv1.Object{Raw: []byte(`{}`)},
		DryRun:    proto.Bool(true), ObjectRevision: 2, Projection: admissionv1.Projection_PROJECTION_METADATA,
	}
}

// checked is a request as a handler gets it.
func checked(t testing.TB, encoded []byte) *request {
	t.Helper()
	r := &request{present: true, encoded: encoded}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestARequestSaysTheSameHoweverItCame: as dispatchers write it, as a later one might, and as tests of handlers make it.
func TestARequestSaysTheSameHoweverItCame(t *testing.T) {
	encoded := marshal(t, asked())
	later := protowire.AppendFixed64(protowire.AppendTag(nil, 77, protowire.Fixed64Type), 1)
	for name, r := range map[string]*Request{
		"as dispatchers write it":                       {request: checked(t, encoded)},
		"with a field more":                             {request: checked(t, append(protowire.AppendVarint(protowire.AppendTag(nil, 30, 0), 1), encoded...))},
		"with a field of a kind that requests have not": {request: checked(t, append(later, encoded...))},
		"with a field twice":                            {request: checked(t, append(protowire.AppendString(protowire.AppendTag(nil, wire.RequestName, 2), "x"), encoded...))},
		"as tests make it":                              NewRequest(asked()),
	} {
		t.Run(name, func(t *testing.T) {
			parts := []any{
				r.Cluster(), r.Operation(), r.Namespace(), r.Name(), r.Username(), string(r.RawObject()), string(r.RawOldObject()), r.DryRun(),
				r.UID(), r.Kind(), r.Resource(), r.Subresource(), r.UserUID(), r.Groups(), r.Extra(), string(r.Options()),
			}
			want := []any{
				"prod-1", "UPDATE", "shop", "web", "jane", `{"new":1}`, `{"old":1}`, true,
				"705ab4f5", GroupVersionKind{"apps", "v1", "Deployment"}, GroupVersionResource{"apps", "v1", "deployments"}, "scale",
				"7", []string{"dev", "system:authenticated"}, map[string][]string{"scopes": {"a", "b"}}, `{}`,
			}
			if diff := cmp.Diff(want, parts); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			got := proto.CloneOf(r.Admission())
			got.ProtoReflect().SetUnknown(nil)
			if diff := cmp.Diff(asked(), got, protocmp.Transform()); diff != "" {
				t.Errorf("whole (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnEmptyRequestSaysNothing: a test of a handler that does not look at its request needs none.
func TestAnEmptyRequestSaysNothing(t *testing.T) {
	for name, r := range map[string]*Request{
		"no request": {}, "of nothing": NewRequest(nil), "without fields": {request: checked(t, nil)},
	} {
		if r.RawObject() != nil || r.RawOldObject() != nil || r.Name() != "" || r.Username() != "" || r.DryRun() || r.UID() != "" ||
			r.Kind() != (GroupVersionKind{}) || r.Resource() != (GroupVersionResource{}) || r.Subresource() != "" || r.Options() != nil ||
			len(r.Groups()) > 0 || len(r.Extra()) > 0 || r.UserUID() != "" || r.Traceparent() != "" || r.Admission() == nil {
			t.Errorf("%s: it says something", name)
		}
	}
}

// TestObjectsAreTheBytesThatCame: a handler cannot reach the bytes of the frame behind its objects.
func TestObjectsAreTheBytesThatCame(t *testing.T) {
	encoded := marshal(t, asked())
	r := &Request{request: checked(t, encoded)}
	for range 2 { // Before and after the whole is decoded.
		if o := r.RawObject(); &o[0] != &wire.FindBytes(wire.FindBytes(encoded, wire.RequestObject), wire.ObjectRaw)[0] || cap(o) != len(o) {
			t.Errorf("a copy, or room for %d bytes more", cap(o)-len(o))
		}
		r.Admission()
	}
}

// TestAHandlerPaysForWhatItLooksAt: the object of a review costs no memory, and its check neither.
func TestAHandlerPaysForWhatItLooksAt(t *testing.T) {
	encoded := marshal(t, asked())
	r := &Request{request: checked(t, encoded)}
	n := testing.AllocsPerRun(100, func() {
		if !wire.WellFormed(encoded) || r.RawObject() == nil || r.RawOldObject() == nil || !r.DryRun() {
			t.Error("it says something else")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTheWholeIsDecodedOnce for all handlers of a review, which ask at the same time.
func TestTheWholeIsDecodedOnce(t *testing.T) {
	shared := checked(t, marshal(t, asked()))
	whole := make([]*admissionv1.AdmissionRequest, 16)
	var handlers sync.WaitGroup
	for i := range whole {
		handlers.Go(func() {
			r := &Request{request: shared}
			if r.Name() != "web" || string(r.RawObject()) != `{"new":1}` {
				t.Error("it says something else")
			}
			whole[i] = r.Admission()
		})
	}
	handlers.Wait()
	for _, w := range whole {
		if w == nil || w != whole[0] {
			t.Errorf("%p, another got %p", w, whole[0])
		}
	}
}

// BenchmarkRequest measures the cost of a request of 2 kB for handlers.
func BenchmarkRequest(b *testing.B) {
	a := asked()
	a.Object.Raw = make([]byte, 2048)
	encoded, err := proto.Marshal(a)
	if err != nil {
		b.Fatal(err)
	}
	for name, look := range map[string]func(r *Request){
		"nothing":   func(*Request) {},
		"an object": func(r *Request) { r.RawObject() },
		"a name":    func(r *Request) { _ = r.Name() },
		"all":       func(r *Request) { r.Admission() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				look(&Request{request: checked(b, encoded)})
			}
		})
	}
}
