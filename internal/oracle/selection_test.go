package oracle_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	k8sadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

func TestConditionsMayAskTheAuthorizer(t *testing.T) {
	c := validating("a", "one.io")
	c.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name: "may-read", Expression: `authorizer.group("").resource("secrets").check("get").allowed()`,
	}}
	options := oracle.Options{
		Validating: []*admissionregistrationv1.ValidatingWebhookConfiguration{c},
		Namespaces: namespaces(),
		Default:    oracle.Always(oracle.Deny(403, "", "")),
	}
	if got := run(t, oracle.New(t, options), validate, createWidget()); got.Code != 403 || len(got.Called) != 0 {
		t.Errorf("without an authorizer the condition fails, and with it the request: %+v", got)
	}
	options.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "jane" {
			return authorizer.DecisionDeny, "", nil
		}
		return authorizer.DecisionAllow, "", nil
	})
	if got := run(t, oracle.New(t, options), validate, createWidget()); !got.Allowed {
		t.Errorf("a condition that is false skips the hook: %+v", got)
	}
}

func TestWhatIsConnectedWithHasNoLabels(t *testing.T) {
	c := validating("a", "one.io")
	c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist,
	}}}
	o := oracle.New(t, oracle.Options{
		Validating: []*admissionregistrationv1.ValidatingWebhookConfiguration{c},
		Namespaces: namespaces(),
		Default:    oracle.Always(oracle.Deny(403, "", "")),
	})
	req := createPod()
	req.Kind.Kind, req.SubResource, req.Operation, req.Options = "PodExecOptions", "exec", "CONNECT", nil
	req.Object = &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"PodExecOptions","stdin":true,"command":["sh"]}`)}
	if got := run(t, o, validate, req); !got.Allowed || len(got.Called) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestAHookOfAnotherVersionGetsTheObjectConverted(t *testing.T) {
	equivalents := runtime.NewEquivalentResourceRegistry()
	for _, version := range []string{"v1", "v1beta2"} {
		gv := schema.GroupVersion{Group: "apps", Version: version}
		equivalents.RegisterKindFor(gv.WithResource("deployments"), "", gv.WithKind("Deployment"))
	}
	c := mutating("a", "one.io")
	c.Webhooks[0].Rules[0].Rule = admissionregistrationv1.Rule{
		APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"},
	}
	var seen, asked metav1.GroupVersionKind
	o := oracle.New(t, oracle.Options{
		Mutating:    []*admissionregistrationv1.MutatingWebhookConfiguration{c},
		Namespaces:  namespaces(),
		Equivalents: equivalents,
		Default: func(_ context.Context, r *k8sadmissionv1.AdmissionRequest) oracle.Answer {
			seen, asked = r.Kind, *r.RequestKind
			return oracle.Patch(`[{"op":"add","path":"/spec/replicas","value":3}]`)
		},
	})
	req := createWidget()
	req.Kind = &admissionv1.GroupVersionKind{Group: "apps", Version: "v1beta2", Kind: "Deployment"}
	req.Resource = &admissionv1.GroupVersionResource{Group: "apps", Version: "v1beta2", Resource: "deployments"}
	req.Object = &admissionv1.Object{Raw: []byte(`{"apiVersion":"apps/v1beta2","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}}}}`)}
	got := run(t, o, mutate, req)
	want := []metav1.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1beta2", Kind: "Deployment"}}
	if diff := cmp.Diff(want, []metav1.GroupVersionKind{seen, asked}); diff != "" {
		t.Errorf("kind and requestKind (-want +got):\n%s", diff)
	}
	var final struct {
		APIVersion string
		Spec       struct{ Replicas int }
	}
	decode(t, got.FinalObject, &final)
	if final.APIVersion != "apps/v1beta2" || final.Spec.Replicas != 3 {
		t.Errorf("final object %s", got.FinalObject)
	}
}
