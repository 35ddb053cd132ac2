package dispatcher_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// defined is a cluster with one custom resource.
type defined struct {
	static

	definition *custom.Definition
}

func (d defined) Cluster(string) match.Cluster { return d }

func (d defined) Default(ctx context.Context, _ schema.GroupVersionKind, object []byte, book func(int64) error) ([]byte, error) {
	return d.definition.Default(ctx, object, book)
}

// TestACustomResourceHasItsDefaultsBeforeTheNextHookSeesIt holds SEMANTICS C34, and that defaults alone are no change
// (C10): the hook that was called before is not called again for them.
func TestACustomResourceHasItsDefaultsBeforeTheNextHookSeesIt(t *testing.T) {
	definition, err := custom.Compile(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "pods.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "pods", Kind: "Pod"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"level": {Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("3")}}, "name": {Type: "string"},
					},
				}},
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := compile(t, nil, []hook{{name: "a", needed: true}, {name: "b"}, {name: "c"}})
	var saw []string
	handler := func(patch string) inprocess.Handler {
		return func(_ context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			saw = append(saw, string(r.GetObject().GetRaw()))
			v := &admissionv1.AdmissionResponse{Allowed: true}
			if patch != "" {
				v.Patch, v.PatchType = []byte(patch), "JSONPatch"
			}
			return v, nil
		}
	}
	k := defined{static: static{snapshot: snapshot}, definition: definition}
	d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: inprocess.New(map[string]inprocess.Handler{
		"a": handler(""), "b": handler(`[{"op":"replace","path":"/name","value":"n"}]`), "c": handler(""),
	})})
	if err != nil {
		t.Fatal(err)
	}

	answer, err := d.Review(t.Context(), podReview(mutate, `{"apiVersion":"example.com/v1","kind":"Pod","name":"n"}`))
	if err != nil || !answer.Response.GetAllowed() {
		t.Fatalf("answer %v, error %v", answer, err)
	}

	want := []string{
		`{"apiVersion":"example.com/v1","kind":"Pod","name":"n"}`, `{"apiVersion":"example.com/v1","kind":"Pod","name":"n"}`,
		`{"apiVersion":"example.com/v1","kind":"Pod","level":3,"name":"n"}`,
	}
	if diff := cmp.Diff(want, saw); diff != "" {
		t.Errorf("what the hooks saw (-want +got):\n%s", diff)
	}
	if patch := answer.Response.GetPatch(); len(patch) > 0 {
		t.Errorf("patch %s, want none: the API server knows its defaults", patch)
	}
}

// unaware is a cluster of which nothing is known for the moment.
type unaware struct{ static }

func (u unaware) Cluster(string) match.Cluster { return u }

func (unaware) Default(context.Context, schema.GroupVersionKind, []byte, func(int64) error) ([]byte, error) {
	return nil, errors.New("nothing is known any more")
}

// TestAPatchWithoutOperationsNeedsNoDefaults checks that the object then stays unchanged, as in callAttrMutatingHook: webhooks that find nothing to
// do often answer with [].
func TestAPatchWithoutOperationsNeedsNoDefaults(t *testing.T) {
	for patch, want := range map[string]bool{`[]`: true, `null`: true, `[{"op":"add","path":"/name","value":"n"}]`: false} {
		u := unaware{static{snapshot: compile(t, nil, []hook{{name: "a"}})}}
		d, err := dispatcher.New(dispatcher.Options{Snapshots: u, Clusters: u, Streams: inprocess.New(map[string]inprocess.Handler{
			"a": func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: "JSONPatch"}, nil
			},
		})})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := d.Review(t.Context(), podReview(mutate, `{"apiVersion":"example.com/v1","kind":"Pod"}`))
		if err != nil || answer.Response.GetAllowed() != want {
			t.Errorf("%s: answer %v, error %v; want allowed %t", patch, answer, err, want)
		}
	}
}
