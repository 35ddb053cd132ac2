package match

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
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
		want, err := kuberuntime.DefaultUnstructuredConverter.ToUnstructured(
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

// booking counts the bytes that are booked, up to a limit.
type booking struct{ booked, limit int64 }

func (b *booking) Grow(n int64) error {
	if b.booked += n; b.booked > b.limit {
		return apierrors.NewTooManyRequests("full", 1)
	}
	return nil
}

func (b *booking) Shrink(n int64) { b.booked -= n }

// TestTheUserInExpressionsIsBooked has a user with as many groups and extra as an API server may send. All versions share the values.
func TestTheUserInExpressionsIsBooked(t *testing.T) {
	user := &admissionv1.UserInfo{Extra: map[string]*admissionv1.ExtraValue{}}
	for i := range 50_000 {
		user.Groups = append(user.Groups, fmt.Sprint(i))
		user.Extra[fmt.Sprint(i)] = &admissionv1.ExtraValue{Items: []string{"a"}}
	}
	m := &booking{limit: 1 << 30}
	a := NewAttributes(&admissionv1.AdmissionRequest{UserInfo: user}, Unknown{}).Booked(m)
	if _, err := a.record.get(a.request); err != nil {
		t.Fatal(err)
	}
	live := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := live()
	for i := range 10 {
		if _, _, err := a.RequestVariable(schema.GroupVersionResource{Version: fmt.Sprint(i)}, schema.GroupVersionKind{}); err != nil {
			t.Fatal(err)
		}
	}
	if took := live() - before; took > m.booked || took < m.booked/4 {
		t.Errorf("%d bytes are booked, and %d taken", m.booked, took)
	}
	full := NewAttributes(&admissionv1.AdmissionRequest{UserInfo: user}, Unknown{}).Booked(&booking{limit: 1 << 20})
	if _, _, err := full.versioned(t.Context(), schema.GroupVersionKind{}, true); memoryStatus(err) == nil {
		t.Errorf("error %v, want the status of the memory", err)
	}
	runtime.KeepAlive(a)
}

// TestAConditionWithoutANameExcludes: Kubernetes' validation refuses such a condition, and this package takes it.
func TestAConditionWithoutANameExcludes(t *testing.T) {
	snapshot, _ := Compile(Input{Objects: []Object{{Mutating: &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "hook.io", NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"*"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Expression: "false"}},
		}},
	}}}})
	d := snapshot.Hooks()[0].ShouldCall(t.Context(), NewAttributes(&admissionv1.AdmissionRequest{
		Operation: "CREATE", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
	}, Unknown{}))
	if d.Match || d.Skip != SkipConditions {
		t.Errorf("%+v", d)
	}
}
