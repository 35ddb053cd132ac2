package outbound

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	k8sv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// road is a mesh in front of webhooks that take v2 of widgets which clients write in v1, with the cluster's conversion
// webhook.
type road struct {
	dispatcher  *dispatcher.Dispatcher
	conversions atomic.Int32
	broken      atomic.Bool // the conversion webhook says no
	seen        chan *k8sv1.AdmissionRequest
}

// patched is the patch of the mutating webhook for a widget of v2.
const patched = `[{"op":"replace","path":"/spec/parts/0/size","value":5},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`

func newRoad(t testing.TB) *road {
	t.Helper()
	x := &road{seen: make(chan *k8sv1.AdmissionRequest, 10)}
	converter := serve(t, func(w http.ResponseWriter, r *http.Request) { x.convert(t, w, r) })
	policy := serve(t, answering(t, func(r *k8sv1.AdmissionRequest) *k8sv1.AdmissionResponse {
		x.seen <- r
		jsonPatch := k8sv1.PatchTypeJSONPatch
		if r.Operation == k8sv1.Update {
			return &k8sv1.AdmissionResponse{Allowed: true}
		}
		return &k8sv1.AdmissionResponse{Allowed: true, Patch: []byte(patched), PatchType: &jsonPatch}
	}))
	client := newClient(t, Options{})
	clusters := cluster.New(cluster.Options{Conversions: client.Conversions})
	clusters.Update([]*kinds.Cluster{{
		Metadata: kinds.Metadata{Name: "prod-1"},
		Spec: kinds.ClusterSpec{
			Namespaces:                &kinds.NamespaceSource{Static: map[string]map[string]string{"default": {}}},
			CustomResourceDefinitions: []apiextensionsv1.CustomResourceDefinition{*widgets(converter)},
		},
	}})
	snapshot, _ := match.Compile(match.Input{Revision: "r", Objects: []match.Object{{Mutating: takingV2(policy)}}})
	var err error
	x.dispatcher, err = dispatcher.New(dispatcher.Options{
		Snapshots: fixed{snapshot: snapshot}, Clusters: clusters, Streams: newClient(t, Options{}), Webhooks: client,
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// widgets is the definition of widgets in two versions.
func widgets(converter *webhook) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}, {Name: "v2", Served: true}},
			Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: converter.converter("/convert"), ConversionReviewVersions: []string{"v1"}},
			},
		},
	}
}

// takingV2 is a configuration of a webhook for v2 alone, which may fail open.
func takingV2(w *webhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	url, none, seconds := w.URL+"/hook", admissionregistrationv1.SideEffectClassNone, int32(10)
	equivalent, ignore, never := admissionregistrationv1.Equivalent, admissionregistrationv1.Ignore, admissionregistrationv1.NeverReinvocationPolicy
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "hook.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: w.ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"*"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v2"}, Resources: []string{"widgets"}},
			}},
			MatchPolicy: &equivalent, FailurePolicy: &ignore, SideEffects: &none, TimeoutSeconds: &seconds,
			AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &never,
		}},
	}
}

// convert is the conversion webhook: v1 has a size and a note, v2 a list of parts with a size each.
func (x *road) convert(t testing.TB, w http.ResponseWriter, r *http.Request) {
	x.conversions.Add(1)
	var got apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		t.Error(err)
		return
	}
	type part struct {
		Size int `json:"size"`
	}
	var widget struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        json.RawMessage `json:"metadata"`
		Spec            struct {
			Size  *int   `json:"size,omitempty"`
			Parts []part `json:"parts,omitempty"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(got.Request.Objects[0].Raw, &widget); err != nil {
		t.Error(err)
		return
	}
	if widget.APIVersion == "example.com/v1" {
		widget.Spec.Parts, widget.Spec.Size = []part{{*widget.Spec.Size}}, nil
	} else {
		widget.Spec.Size, widget.Spec.Parts = &widget.Spec.Parts[0].Size, nil
	}
	widget.APIVersion = got.Request.DesiredAPIVersion
	converted, err := json.Marshal(&widget)
	if err != nil {
		t.Error(err)
	}
	got.Response = &apiextensionsv1.ConversionResponse{
		UID: got.Request.UID, ConvertedObjects: []runtime.RawExtension{{Raw: converted}}, Result: metav1.Status{Status: metav1.StatusSuccess},
	}
	if x.broken.Load() {
		got.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: "a widget of many parts"}
	}
	_ = json.NewEncoder(w).Encode(got)
}

// widgetRequest is a request for a widget of a version.
func widgetRequest(version, operation, object, old string) *admissionv1.AdmissionRequest {
	r := createWidget()
	r.Kind.Version, r.Resource.Version, r.RequestKind.Version, r.RequestResource.Version = version, version, version, version
	r.Namespace, r.Name, r.Object = "default", "w", &admissionv1.Object{Raw: []byte(object)}
	if r.Operation = operation; old != "" {
		r.OldObject = &admissionv1.Object{Raw: []byte(old)}
	}
	return r
}

func (x *road) review(t testing.TB, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	a, err := x.dispatcher.Review(t.Context(), &review.Request{Stage: admissionv1.Stage_STAGE_MUTATE, Admission: r})
	if err != nil {
		t.Fatal(err)
	}
	return a.Response
}

const (
	widgetV1 = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"default"},"spec":{"size":%d,"note":1.0}}`
	widgetV2 = `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w","namespace":"default"},"spec":{"parts":[{"size":%d}]}}`
)

func TestAHookOfAnotherVersionSeesTheObjectConvertedAndItsPatchComesBack(t *testing.T) {
	x := newRoad(t)
	object := fmt.Sprintf(widgetV1, 3)
	resp := x.review(t, widgetRequest("v1", "CREATE", object, ""))
	if !resp.GetAllowed() {
		t.Fatalf("refused: %v", resp.GetStatus())
	}
	seen := <-x.seen
	if diff := cmp.Diff([]string{"v2", "v2", "v1", "v1"}, []string{seen.Kind.Version, seen.Resource.Version, seen.RequestKind.Version, seen.RequestResource.Version}); diff != "" {
		t.Errorf("the versions that the hook was told (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(decoded(t, []byte(fmt.Sprintf(widgetV2, 3))), decoded(t, seen.Object.Raw)); diff != "" {
		t.Errorf("the object that the hook saw (-want +got):\n%s", diff)
	}
	result, err := conversion.ApplyPatch([]byte(object), resp.GetPatch())
	if err != nil {
		t.Fatal(err)
	}
	// The note has no place in v2, and is not lost.
	want := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"default","labels":{"a":"b"}},"spec":{"size":5,"note":1.0}}`
	if diff := cmp.Diff(decoded(t, []byte(want)), decoded(t, result.Raw)); diff != "" {
		t.Errorf("the object at the end (-want +got):\n%s", diff)
	}
	if n := x.conversions.Load(); n != 3 {
		t.Errorf("%d conversions: there, and back with and without the patch", n)
	}
}

func TestBothObjectsOfAnUpdateAreConverted(t *testing.T) {
	x := newRoad(t)
	if resp := x.review(t, widgetRequest("v1", "UPDATE", fmt.Sprintf(widgetV1, 4), fmt.Sprintf(widgetV1, 3))); !resp.GetAllowed() || resp.GetPatch() != nil {
		t.Fatalf("%v", resp)
	}
	seen := <-x.seen
	for raw, size := range map[string]int{string(seen.Object.Raw): 4, string(seen.OldObject.Raw): 3} {
		if diff := cmp.Diff(decoded(t, []byte(fmt.Sprintf(widgetV2, size))), decoded(t, []byte(raw))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if n := x.conversions.Load(); n != 2 {
		t.Errorf("%d conversions", n)
	}
}

func TestAHookOfTheSameVersionNeedsNoConversion(t *testing.T) {
	x := newRoad(t)
	if resp := x.review(t, widgetRequest("v2", "CREATE", fmt.Sprintf(widgetV2, 3), "")); !resp.GetAllowed() {
		t.Fatalf("%v", resp)
	}
	if <-x.seen; x.conversions.Load() != 0 {
		t.Errorf("%d conversions", x.conversions.Load())
	}
}

func TestAConversionThatFailsRefusesTheRequestWhateverTheFailurePolicy(t *testing.T) {
	x := newRoad(t)
	x.broken.Store(true)
	resp := x.review(t, widgetRequest("v1", "CREATE", fmt.Sprintf(widgetV1, 3), ""))
	message := resp.GetStatus().GetMessage()
	if resp.GetAllowed() || resp.GetStatus().GetCode() != http.StatusInternalServerError || len(x.seen) > 0 {
		t.Errorf("%v", resp)
	}
	for _, said := range []string{"widgets.example.com", "example.com/v1", "example.com/v2", "a widget of many parts"} {
		if !strings.Contains(message, said) {
			t.Errorf("the message does not say %q: %s", said, message)
		}
	}
}
