package oracle_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	k8sadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

func TestAHookIsAskedAgainIfItAsksForIt(t *testing.T) {
	later := oracle.Answer{Code: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"0"}}}
	answer := oracle.Allow()
	answer.Before = []oracle.Answer{later, later}
	var versions []string
	o := oracle.New(t, oracle.Options{
		Validating: []*admissionregistrationv1.ValidatingWebhookConfiguration{validating("a", "one.io")},
		Namespaces: namespaces(),
		Default: func(ctx context.Context, _ *k8sadmissionv1.AdmissionRequest) oracle.Answer {
			versions = append(versions, oracle.RequestInfoOf(ctx).Version)
			return answer
		},
	})
	got := run(t, o, validate, createWidget())
	if diff := cmp.Diff([]string{"a/one.io", "a/one.io", "a/one.io"}, got.Called); diff != "" || !got.Allowed {
		t.Errorf("allowed %v, called (-want +got):\n%s", got.Allowed, diff)
	}
	if diff := cmp.Diff([]string{"admission.k8s.io/v1", "admission.k8s.io/v1", "admission.k8s.io/v1"}, versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

func TestAnAnswerThatIsCutOffIsNone(t *testing.T) {
	for name, answer := range map[string]oracle.Answer{
		"and ends": {Cut: 1}, "and the connection is closed": {Cut: 1, Drop: true},
	} {
		t.Run(name, func(t *testing.T) {
			answer.Response = oracle.Allow().Response
			o := oracle.New(t, oracle.Options{
				Validating: []*admissionregistrationv1.ValidatingWebhookConfiguration{validating("a", "one.io")},
				Namespaces: namespaces(),
				Default:    oracle.Always(answer),
			})
			if got := run(t, o, validate, createWidget()); got.Code != http.StatusInternalServerError || len(got.Called) != 1 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestACustomResourceIsConvertedByItsDefinition(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Spec.Group, crd.Spec.Names = "example.com", apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"}
	equivalents := runtime.NewEquivalentResourceRegistry()
	for _, version := range []string{"v1", "v2"} {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Served: true})
		gv := schema.GroupVersion{Group: "example.com", Version: version}
		equivalents.RegisterKindFor(gv.WithResource("widgets"), "", gv.WithKind("Widget"))
	}
	c := mutating("a", "one.io")
	c.Webhooks[0].Rules[0].APIVersions = []string{"v2"}
	var seen string
	options := oracle.Options{
		Mutating:    []*admissionregistrationv1.MutatingWebhookConfiguration{c},
		Namespaces:  namespaces(),
		Equivalents: equivalents,
		Default: func(_ context.Context, r *k8sadmissionv1.AdmissionRequest) oracle.Answer {
			seen = string(r.Object.Raw)
			return oracle.Patch(`[{"op":"replace","path":"/spec/size","value":2}]`)
		},
	}
	if got := run(t, oracle.New(t, options), mutate, createWidget()); got.Code != http.StatusInternalServerError || seen != "" {
		t.Errorf("without a definition nobody can convert: %+v", got)
	}
	options.Definitions = []*apiextensionsv1.CustomResourceDefinition{crd}
	got := run(t, oracle.New(t, options), mutate, createWidget())
	equalJSON(t, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"odd":1.5}}`, seen)
	equalJSON(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":2,"odd":1.5}}`, string(got.FinalObject))
}
