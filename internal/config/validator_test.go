package config_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

var _ config.Validator = apiserver.Validator{}

// TestADecoderWithoutAValidatorRefusesWebhookConfigurations of each kind and version: a program that forgets the validator accepts none.
func TestADecoderWithoutAValidatorRefusesWebhookConfigurations(t *testing.T) {
	const metadata = "\nmetadata: {name: a}\n"
	for _, document := range []string{
		"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration" + metadata,
		"apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration" + metadata,
		"apiVersion: admissionregistration.k8s.io/v1beta1\nkind: ValidatingWebhookConfiguration" + metadata,
		"apiVersion: admissionregistration.k8s.io/v1beta1\nkind: MutatingWebhookConfiguration" + metadata,
		"apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: ExternalAdmissionHookConfiguration" + metadata,
		"apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration" + metadata,
		"apiVersion: portcullis.dev/v1\nkind: ValidatingHookConfiguration" + metadata,
		"apiVersion: portcullis.dev/v1\nkind: MutatingHookConfiguration" + metadata,
		"apiVersion: portcullis.dev/v1\nkind: InitializerConfiguration" + metadata,
	} {
		if objects, problems := config.NewDecoder(apiserver.Validator{}).Decode("", []byte(document)); len(objects) != 1 {
			t.Fatalf("%s: %v", document, problems)
		}
		objects, problems := config.NewDecoder(nil).Decode("", []byte(document))
		if len(objects) > 0 || len(problems) != 1 || problems[0].Code != config.CodeInternal {
			t.Errorf("%s: %d objects, %v", document, len(objects), problems)
		}
	}
}

// TestKubernetesRefusesTheNamesThatConfigtestRefuses, in the same words.
func TestKubernetesRefusesTheNamesThatConfigtestRefuses(t *testing.T) {
	refused := 0
	for _, name := range []string{
		"", "a", "a.b", "a.b.c", "A.b.c", "a..c", ".a.b.c", "a.b.c.", "a_b.c.d", "a.b.c/d", "ä.b.c", "1.2.3", strings.Repeat("a", 64) + ".b.c",
		strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 127) + "a",
	} {
		for _, c := range []runtime.Object{
			&admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "x.y.z"}, {Name: name}}},
			&admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "x.y.z"}, {Name: name}}},
		} {
			original := apiserver.Validator{}.Validate(c.DeepCopyObject())
			older := apiserver.Validator{}.ValidateOlder(c.DeepCopyObject(), nil)
			for _, err := range (configtest.Names{}).Validate(c) {
				refused++
				same := func(other *field.Error) bool { return other.Error() == err.Error() }
				if !slices.ContainsFunc(original, same) || !slices.ContainsFunc(older, same) {
					t.Errorf("Kubernetes does not say of %q: %v", name, err)
				}
			}
		}
	}
	if refused == 0 {
		t.Error("no name was refused")
	}
}
