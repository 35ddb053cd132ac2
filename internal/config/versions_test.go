package config

import (
	"fmt"
	"math/rand" //nolint:depguard // Kubernetes' filler takes no other
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
)

// randomConfigurations returns how many configurations of each kind and version are made.
func randomConfigurations() int64 { return int64(citest.Rounds(60, 300, 3000)) }

// filler fills in random objects as Kubernetes' own round-trip tests do. Not everything in them is valid.
func filler(seed int64) func(object any) {
	return fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), legacyscheme.Codecs).Fill
}

// require fills in the fields that v1 requires and v1beta1 does not.
func require(effects **admissionregistrationv1.SideEffectClass, versions *[]string) {
	if none := admissionregistrationv1.SideEffectClassNone; *effects == nil {
		*effects = &none
	}
	if len(*versions) == 0 {
		*versions = []string{"v1"}
	}
}

// TestRandomV1beta1ConfigurationsComeBackFromV1AsTheyWere reads objects of v1beta1 as documents are read, which is as v1, and
// compares the results with the conversion by Kubernetes' scheme in each direction.
func TestRandomV1beta1ConfigurationsComeBackFromV1AsTheyWere(t *testing.T) {
	for seed := range randomConfigurations() {
		fill := filler(seed)
		validating, mutating := &admissionregistrationv1beta1.ValidatingWebhookConfiguration{}, &admissionregistrationv1beta1.MutatingWebhookConfiguration{}
		fill(validating)
		fill(mutating)
		t.Run(fmt.Sprint("validating ", seed), func(t *testing.T) {
			v1 := asWritten(t, validating, &admissionregistrationv1.ValidatingWebhookConfiguration{})
			notInternal(t, readV1beta1[admissionregistrationv1.ValidatingWebhookConfiguration](apiserver.Validator{})(v1))
			there(t, validating, v1, &v1.ObjectMeta)
			back(t, v1, validating, &validating.ObjectMeta)
		})
		t.Run(fmt.Sprint("mutating ", seed), func(t *testing.T) {
			v1 := asWritten(t, mutating, &admissionregistrationv1.MutatingWebhookConfiguration{})
			notInternal(t, readV1beta1[admissionregistrationv1.MutatingWebhookConfiguration](apiserver.Validator{})(v1))
			there(t, mutating, v1, &v1.ObjectMeta)
			back(t, v1, mutating, &mutating.ObjectMeta)
		})
	}
}

// TestRandomV1ConfigurationsComeBackFromV1beta1AsTheyWere is the other way round.
func TestRandomV1ConfigurationsComeBackFromV1beta1AsTheyWere(t *testing.T) {
	for seed := range randomConfigurations() {
		fill := filler(seed)
		validating, mutating := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
		fill(validating)
		fill(mutating)
		for i := range validating.Webhooks {
			require(&validating.Webhooks[i].SideEffects, &validating.Webhooks[i].AdmissionReviewVersions)
		}
		for i := range mutating.Webhooks {
			require(&mutating.Webhooks[i].SideEffects, &mutating.Webhooks[i].AdmissionReviewVersions)
		}
		t.Run(fmt.Sprint("validating ", seed), func(t *testing.T) {
			defaulted := validating.DeepCopy()
			legacyscheme.Scheme.Default(defaulted)
			createMeta(defaulted)
			notInternal(t, readV1[admissionregistrationv1.ValidatingWebhookConfiguration](apiserver.Validator{})(validating))
			same(t, defaulted, validating)
			beta := converted(t, validating, admissionregistrationv1beta1.SchemeGroupVersion)
			again := asWritten(t, beta, &admissionregistrationv1.ValidatingWebhookConfiguration{})
			notInternal(t, readV1beta1[admissionregistrationv1.ValidatingWebhookConfiguration](apiserver.Validator{})(again))
			same(t, validating, again)
		})
		t.Run(fmt.Sprint("mutating ", seed), func(t *testing.T) {
			defaulted := mutating.DeepCopy()
			legacyscheme.Scheme.Default(defaulted)
			createMeta(defaulted)
			notInternal(t, readV1[admissionregistrationv1.MutatingWebhookConfiguration](apiserver.Validator{})(mutating))
			same(t, defaulted, mutating)
			beta := converted(t, mutating, admissionregistrationv1beta1.SchemeGroupVersion)
			again := asWritten(t, beta, &admissionregistrationv1.MutatingWebhookConfiguration{})
			notInternal(t, readV1beta1[admissionregistrationv1.MutatingWebhookConfiguration](apiserver.Validator{})(again))
			same(t, mutating, again)
		})
	}
}

// asWritten reads an object of v1beta1 as v1, by the names of its fields.
func asWritten[T any](t *testing.T, beta runtime.Object, v1 *T) *T {
	t.Helper()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON(t, beta), v1); err != nil {
		t.Fatal(err)
	}
	return v1
}

// there compares with the scheme: defaults of v1beta1, and then v1 by way of the internal version.
func there(t *testing.T, from runtime.Object, got runtime.Object, meta *metav1.ObjectMeta) {
	t.Helper()
	from = from.DeepCopyObject()
	legacyscheme.Scheme.Default(from)
	want := converted(t, from, schema.GroupVersion{Group: admissionregistration.GroupName, Version: "v1"})
	switch want := want.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		createMeta(&want.ObjectMeta)
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		createMeta(&want.ObjectMeta)
	}
	createMeta(meta)
	same(t, want, got)
}

// back compares the object that was read, as v1beta1, with the original, with its defaults.
func back(t *testing.T, read runtime.Object, from runtime.Object, meta *metav1.ObjectMeta) {
	t.Helper()
	got := converted(t, read, admissionregistrationv1beta1.SchemeGroupVersion)
	legacyscheme.Scheme.Default(from)
	createMeta(meta)
	same(t, from, got)
}

func converted(t *testing.T, from runtime.Object, to schema.GroupVersion) runtime.Object {
	t.Helper()
	internal, err := legacyscheme.Scheme.ConvertToVersion(from, admissionregistration.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	out, err := legacyscheme.Scheme.ConvertToVersion(internal, to)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same compares everything but apiVersion and kind. JSON leaves out empty lists.
func same(t *testing.T, want, got runtime.Object) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(metav1.TypeMeta{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// notInternal lets pass that a random object is not valid, and not that it could not be converted.
func notInternal(t *testing.T, errs field.ErrorList) {
	t.Helper()
	for _, err := range errs {
		if err.Type == field.ErrorTypeInternal {
			t.Error(err)
		}
	}
}
