package oracle_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

func run(t *testing.T, o *oracle.Oracle, stage admissionv1.Stage, req *admissionv1.AdmissionRequest) oracle.Outcome {
	t.Helper()
	got, err := o.Run(t.Context(), stage, req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func namespaces() map[string]map[string]string {
	return map[string]map[string]string{"default": {"env": "prod"}}
}

func everything() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"},
		},
	}}
}

// mutating is a configuration whose hooks see everything.
func mutating(name string, hooks ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	none := admissionregistrationv1.SideEffectClassNone
	for _, h := range hooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: h, Rules: everything(), SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		})
	}
	return c
}

// validating is a configuration whose hooks see everything.
func validating(name string, hooks ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	none := admissionregistrationv1.SideEffectClassNone
	for _, h := range hooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: h, Rules: everything(), SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		})
	}
	return c
}

// createWidget is about a custom resource.
func createWidget() *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid:       "u",
		Kind:      &admissionv1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		Resource:  &admissionv1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		Name:      "w",
		Namespace: "default",
		Operation: "CREATE",
		UserInfo:  &admissionv1.UserInfo{Username: "jane"},
		Object:    &admissionv1.Object{Raw: []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"odd":1.5}}`)},
		Options:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)},
	}
}

// createPod is about a built-in kind.
func createPod() *admissionv1.AdmissionRequest {
	req := createWidget()
	req.Kind = &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	req.Resource = &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}
	req.Object = &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"main","image":"main:1"}]}}`)}
	return req
}

func decode(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// equalJSON compares documents with Kubernetes' own reading of numbers.
func equalJSON(t *testing.T, want, got string) {
	t.Helper()
	var w, g any
	if err := utiljson.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if err := utiljson.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}
