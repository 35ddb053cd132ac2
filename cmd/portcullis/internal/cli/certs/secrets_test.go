package certs

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
)

const testNamespace = "mesh"

func TestAWriteToASecretReplacesItsDataAlone(t *testing.T) {
	labelled := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "host", Namespace: testNamespace, ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Type:       corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("old"), "other": nil},
	}
	client := fake.NewClientset(labelled)
	store := &secrets{client: client.CoreV1().Secrets(testNamespace), namespace: testNamespace}
	read, err := store.Read(t.Context(), "host")
	if err != nil || read.Version == "" {
		t.Fatalf("%+v, error %v", read, err)
	}
	read.Files = map[string][]byte{"tls.crt": []byte("new")}
	if err := store.Write(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	got, err := store.client.Get(t.Context(), "host", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := labelled.DeepCopy()
	want.Data, want.ResourceVersion, want.ManagedFields = read.Files, got.ResourceVersion, got.ManagedFields
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Secret (-want +got):\n%s", diff)
	}
}

func TestTheBundlesOfEntriesAreReadByName(t *testing.T) {
	webhook := admissionregistrationv1.ValidatingWebhook{Name: "v", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte("a")}}
	client := fake.NewClientset(
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{webhook}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{webhook}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "m"}}},
	)
	got, err := caBundles(t.Context(), client.AdmissionregistrationV1(), "ours")
	want := map[string][]byte{"validatingwebhookconfiguration/ours v": []byte("a"), "mutatingwebhookconfiguration/ours m": nil}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, bundles (-want +got):\n%s", err, diff)
	}
	if got, err := caBundles(t.Context(), client.AdmissionregistrationV1(), "gone"); err != nil || len(got) != 0 {
		t.Errorf("%v, error %v", got, err)
	}
	client.PrependReactor("get", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(admissionregistrationv1.Resource("mutatingwebhookconfigurations"), "ours", errors.New("no"))
	})
	if _, err := caBundles(t.Context(), client.AdmissionregistrationV1(), "ours"); !apierrors.IsForbidden(err) {
		t.Errorf("error %v", err)
	}
}

func TestAWriteToASecretThatAnotherWriterChangedIsAConflict(t *testing.T) {
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "there", Namespace: testNamespace}})
	client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), "there", errors.New("version"))
	})
	store := &secrets{client: client.CoreV1().Secrets(testNamespace), namespace: testNamespace}
	for name, secret := range map[string]keep.Secret{
		"changed": {Name: "there", Version: "1"}, "made": {Name: "there"}, "deleted": {Name: "gone", Version: "1"},
	} {
		if err := store.Write(t.Context(), secret); !errors.Is(err, keep.ErrConflict) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if missing, err := store.Read(t.Context(), "gone"); err != nil || missing.Version != "" || missing.Files != nil {
		t.Errorf("%+v, error %v", missing, err)
	}
}
