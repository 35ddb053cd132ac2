package match

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// TestTheRequestVariableIsThatOfKubernetes compares the variable of random requests, in which fields are empty at times, with the conversion by
// kube-apiserver.
func TestTheRequestVariableIsThatOfKubernetes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	text := func() string { return []string{"", "a", "b"}[r.IntN(3)] }
	texts := func() []string { return [][]string{nil, {}, {"a"}, {"b", ""}}[r.IntN(4)] }
	for range 2000 {
		req := &admissionv1.AdmissionRequest{
			Uid: text(), Name: text(), Namespace: text(), Operation: text(), SubResource: text(), DryRun: new(r.IntN(2) == 0),
			Resource: &admissionv1.GroupVersionResource{Group: text(), Version: text(), Resource: text()},
			Kind:     &admissionv1.GroupVersionKind{Group: text(), Version: text(), Kind: text()},
			UserInfo: &admissionv1.UserInfo{Username: text(), Uid: text(), Groups: texts(), Extra: map[string]*admissionv1.ExtraValue{}},
		}
		for i := range r.IntN(3) {
			req.UserInfo.Extra[fmt.Sprint(i)] = &admissionv1.ExtraValue{Items: texts()}
		}
		if r.IntN(2) == 0 {
			req.Options = &admissionv1.Object{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`)}
		}
		if r.IntN(10) == 0 {
			req.UserInfo = nil
		}
		a := NewAttributes(req, Unknown{})
		resource, kind := schema.GroupVersionResource{Version: text(), Resource: text()}, schema.GroupVersionKind{Version: text(), Kind: text()}
		got, longest, err := a.RequestVariable(resource, kind)
		if err != nil {
			t.Fatal(err)
		}
		attributes, err := a.record.get(a.request)
		if err != nil {
			t.Fatal(err)
		}
		want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(
			cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%v: the variable differs from kube-apiserver's (-want +got):\n%s", req, diff)
		}
		if again, _, _ := a.RequestVariable(resource, kind); fmt.Sprintf("%p", again) != fmt.Sprintf("%p", got) || longest != conversion.LongestOf(want) {
			t.Fatalf("%v: made twice, or bounded by %v", req, longest)
		}
	}
}
