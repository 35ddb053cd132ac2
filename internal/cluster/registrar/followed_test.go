package registrar

import (
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestWebhookConfigurationsThatTheMeshSwitchedOffAreFound: a cluster that leaves must not lose them.
func TestWebhookConfigurationsThatTheMeshSwitchedOffAreFound(t *testing.T) {
	condition := func(name string) []admissionregistrationv1.MatchCondition {
		return []admissionregistrationv1.MatchCondition{{Name: "own", Expression: "true"}, {Name: name, Expression: "false"}}
	}
	objects := []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "istio"},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "a"}, {Name: "b", MatchConditions: condition("portcullis.dev-followed")}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "cert-manager"},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "a", MatchConditions: condition("portcullis.dev-followed")}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "other"},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "a", MatchConditions: condition("another")}},
		},
	}
	client := fake.NewSimpleClientset(objects...)
	got, err := newRegistrar(client).SwitchedOff(t.Context())
	if want := []string{"mutatingwebhookconfiguration/istio", "validatingwebhookconfiguration/cert-manager"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	})
	if got, err := newRegistrar(client).SwitchedOff(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("without the right: %v, %v", got, err)
	}
}
