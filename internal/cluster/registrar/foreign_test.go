package registrar

import (
	"errors"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// TestAnObjectOfAnotherWriterStays: half of a registration is never made beside it, and an entry that is there goes on to be kept.
func TestAnObjectOfAnotherWriterStays(t *testing.T) {
	meta := func(cluster string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: "portcullis"}
		if cluster != "" {
			m.Annotations = map[string]string{"portcullis.dev/cluster": cluster}
		}
		return m
	}
	mutating := func(cluster string, hooks ...admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhookConfiguration {
		return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta(cluster), Webhooks: hooks}
	}
	validating := func(cluster string, hooks ...admissionregistrationv1.ValidatingWebhook) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta(cluster), Webhooks: hooks}
	}
	want := &registration.Registration{Objects: registration.Objects{
		Mutating:   mutating("prod-1", admissionregistrationv1.MutatingWebhook{Name: "m.portcullis.dev"}),
		Validating: validating("prod-1", admissionregistrationv1.ValidatingWebhook{Name: "v.portcullis.dev"}),
	}}
	for name, tt := range map[string]struct {
		there  []runtime.Object
		writes []string // kind of the objects
		says   string
	}{
		"another has the validating one, and nothing is there": {[]runtime.Object{validating("")}, nil, "was not made by portcullis for this cluster"},
		"another has the mutating one, and nothing is there":   {[]runtime.Object{mutating("")}, nil, "mutatingwebhookconfiguration/portcullis: it was not made"},
		"another cluster has it":                               {[]runtime.Object{validating("prod-2")}, nil, `it is for cluster "prod-2"`},
		"the validating entries are there":                     {[]runtime.Object{mutating(""), validating("prod-1")}, []string{"validatingwebhookconfigurations"}, "mutating"},
		"the mutating entries are there":                       {[]runtime.Object{mutating("prod-1"), validating("")}, []string{"mutatingwebhookconfigurations"}, "validating"},
		"another has both":                                     {[]runtime.Object{mutating(""), validating("")}, nil, "spec.registration.name"},
	} {
		client := fake.NewSimpleClientset(tt.there...)
		_, err := newRegistrar(client).Apply(t.Context(), want, false)
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error %v, want %q in it", name, err, tt.says)
		}
		var writes []string
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" {
				writes = append(writes, a.GetResource().Resource)
			}
		}
		if writes = slices.Compact(writes); !slices.Equal(writes, tt.writes) {
			t.Errorf("%s: writes of %v, want %v", name, writes, tt.writes)
		}
	}
}

// TestAnObjectOfAnotherWriterDoesNotKeepTheEntries: the API server must not go on to call the mesh by the object that is the cluster's.
func TestAnObjectOfAnotherWriterDoesNotKeepTheEntries(t *testing.T) {
	own := metav1.ObjectMeta{Name: "portcullis", Annotations: map[string]string{"portcullis.dev/cluster": "prod-1"}}
	client := fake.NewSimpleClientset(
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: own},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "portcullis"}},
	)
	r := newRegistrar(client)
	changes, err := r.Remove(t.Context(), "prod-1", "portcullis", false)
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "validatingwebhookconfiguration/portcullis") {
		t.Errorf("error %v, want one about the validating object", err)
	}
	if len(changes) != 1 || changes[0].Object != "mutatingwebhookconfiguration/portcullis" || changes[0].Action != Deleted {
		t.Errorf("changes %+v, want the mutating object deleted", changes)
	}
	if now, err := r.Read(t.Context(), "portcullis"); err != nil || now.Mutating != nil || now.Validating == nil {
		t.Errorf("entries %+v, error %v: want the validating one alone", now, err)
	}
}
