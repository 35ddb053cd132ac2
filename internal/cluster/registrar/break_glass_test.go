package registrar

import (
	"errors"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// entriesOfOperator are the two objects of a cluster, of which some have the annotation.
func entriesOfOperator(mutating, validating bool) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	meta := func(marked bool) metav1.ObjectMeta {
		m := registration.Meta("portcullis", "prod-1")
		if marked {
			m.Annotations[BreakGlassAnnotation] = "INC-42"
		}
		return m
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta(mutating)},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta(validating)}
}

func wantedEntries() *registration.Registration {
	mutating, validating := entriesOfOperator(false, false)
	mutating.Webhooks = []admissionregistrationv1.MutatingWebhook{{Name: "m.portcullis.dev"}}
	validating.Webhooks = []admissionregistrationv1.ValidatingWebhook{{Name: "v.portcullis.dev"}}
	return &registration.Registration{Objects: registration.Objects{Mutating: mutating, Validating: validating}}
}

// TestNothingIsWrittenDuringABreakGlassInTheCluster: either object is enough, also beside an object of another writer.
func TestNothingIsWrittenDuringABreakGlassInTheCluster(t *testing.T) {
	mutating, validating := entriesOfOperator(true, true)
	foreign := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "portcullis"}}
	unmarked, _ := entriesOfOperator(false, false)
	for name, there := range map[string][]runtime.Object{
		"both objects have the annotation":            {mutating, validating},
		"the validating one alone is there":           {validating},
		"the mutating one alone has it":               {mutating, func() runtime.Object { _, v := entriesOfOperator(true, false); return v }()},
		"the validating one alone has it":             {unmarked, validating},
		"the other object was not made for a cluster": {mutating, foreign},
	} {
		client := fake.NewSimpleClientset(there...)
		changes, err := newRegistrar(client).Apply(t.Context(), wantedEntries(), false)
		if !errors.Is(err, ErrBreakGlass) || !strings.Contains(err.Error(), `"INC-42"`) || len(changes) > 0 {
			t.Errorf("%s: changes %+v, error %v", name, changes, err)
		}
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" {
				t.Errorf("%s: %s of %s", name, a.GetVerb(), a.GetResource().Resource)
			}
		}
	}
}

// TestABreakGlassThatBeginsDuringAWriteIsKept: the operator's write makes the mesh's a conflict, and the mesh reads the object again.
func TestABreakGlassThatBeginsDuringAWriteIsKept(t *testing.T) {
	mutating, before := entriesOfOperator(false, false)
	client := fake.NewSimpleClientset(mutating, before)
	client.PrependReactor("update", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		_, marked := entriesOfOperator(false, true)
		group := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
		if err := client.Tracker().Update(group, marked, ""); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(group.GroupResource(), "portcullis", errors.New("another writer"))
	})
	r := newRegistrar(client)
	if _, err := r.Apply(t.Context(), wantedEntries(), false); !errors.Is(err, ErrBreakGlass) {
		t.Errorf("error %v", err)
	}
	now, err := r.Read(t.Context(), "portcullis")
	if err != nil || len(now.Validating.Webhooks) > 0 {
		t.Errorf("entries %+v, %v", now, err)
	}
	if err := CheckBreakGlass(now); !errors.Is(err, ErrBreakGlass) {
		t.Errorf("the entries that were read: %v", err)
	}
}

// TestTheEntriesOfABreakGlassCanBeRemoved: unregister ends it.
func TestTheEntriesOfABreakGlassCanBeRemoved(t *testing.T) {
	mutating, validating := entriesOfOperator(true, true)
	changes, err := newRegistrar(fake.NewSimpleClientset(mutating, validating)).Remove(t.Context(), "prod-1", "portcullis", false)
	if err != nil || len(changes) != 2 || slices.ContainsFunc(changes, func(c Diff) bool { return c.Action != Deleted }) {
		t.Errorf("changes %+v, error %v", changes, err)
	}
}
