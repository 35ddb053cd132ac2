package oracle_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	k8sadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mutate   = admissionv1.Stage_STAGE_MUTATE
	validate = admissionv1.Stage_STAGE_VALIDATE
)

func TestMutatingHooksAreCalledByNameOfTheConfigurationAndThenByPosition(t *testing.T) {
	o := oracle.New(t, oracle.Options{
		Mutating:   []*admissionregistrationv1.MutatingWebhookConfiguration{mutating("b", "z.b.io"), mutating("a", "z.a.io", "y.a.io", "z.a.io")},
		Namespaces: namespaces(),
		Default:    oracle.Always(oracle.Allow()),
	})
	got := run(t, o, mutate, createWidget())
	want := []string{"a/z.a.io", "a/y.a.io", "a/z.a.io/1", "b/z.b.io"}
	if diff := cmp.Diff(want, got.Called); diff != "" {
		t.Errorf("called (-want +got):\n%s", diff)
	}
	if !got.Allowed {
		t.Errorf("refused: %+v", got)
	}
}

func TestEachMutatingHookSeesAndIsSelectedByTheObjectAsMutatedSoFar(t *testing.T) {
	first, second, third := mutating("a", "first.io"), mutating("b", "second.io"), mutating("c", "third.io")
	second.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"by": "first"}}
	third.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"by": "nobody"}}
	var seen string
	o := oracle.New(t, oracle.Options{
		Mutating:   []*admissionregistrationv1.MutatingWebhookConfiguration{first, second, third},
		Namespaces: namespaces(),
		Scripts: map[string]oracle.Script{
			"a/first.io": oracle.Always(oracle.Patch(`[{"op":"add","path":"/metadata/labels","value":{"by":"first"}}]`)),
			"b/second.io": func(_ context.Context, r *k8sadmissionv1.AdmissionRequest) oracle.Answer {
				seen = string(r.Object.Raw)
				return oracle.Patch(`[{"op":"replace","path":"/spec/size","value":9007199254740993}]`)
			},
			"c/third.io": oracle.Always(oracle.Deny(403, "", "")),
		},
	})
	got := run(t, o, mutate, createWidget())
	if diff := cmp.Diff([]string{"a/first.io", "b/second.io"}, got.Called); diff != "" {
		t.Errorf("called (-want +got):\n%s", diff)
	}
	equalJSON(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{"by":"first"}},"spec":{"size":1,"odd":1.5}}`, seen)
	equalJSON(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{"by":"first"}},"spec":{"size":9007199254740993,"odd":1.5}}`, string(got.FinalObject))
}

func TestValidatingHooksAreAllCalledAndADenialIsReported(t *testing.T) {
	deny := oracle.Deny(409, metav1.StatusReasonConflict, "no")
	deny.Response.Warnings, deny.Response.AuditAnnotations = []string{"careful"}, map[string]string{"why": "because"}
	o := oracle.New(t, oracle.Options{
		Validating: []*admissionregistrationv1.ValidatingWebhookConfiguration{validating("a", "one.io", "two.io"), validating("b", "three.io")},
		Namespaces: namespaces(),
		Scripts:    map[string]oracle.Script{"a/two.io": oracle.Always(deny)},
		Default:    oracle.Always(oracle.Allow()),
	})
	got := run(t, o, validate, createWidget())
	slices.Sort(got.Called) // they run in parallel
	want := oracle.Outcome{
		Code: 409, Reason: metav1.StatusReasonConflict, Message: `admission webhook "two.io" denied the request: no`,
		Warnings: []string{"careful"}, Audit: map[string]string{"two.io/why": "because"},
		Called: []string{"a/one.io", "a/two.io", "b/three.io"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

func TestAMutatingDenialEndsTheChain(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  oracle.Answer
		code    int32
		message string
	}{
		"a code of 400 and more passes through": {oracle.Deny(422, "", "bad"), 422, `admission webhook "one.io" denied the request: bad`},
		"a code below 400 becomes 400":          {oracle.Deny(200, "", "bad"), 400, `admission webhook "one.io" denied the request: bad`},
		"the reason stands in for a message":    {oracle.Deny(403, "Because", ""), 403, `admission webhook "one.io" denied the request: Because`},
		"a denial without a status is a 400":    {oracle.Answer{Response: &k8sadmissionv1.AdmissionResponse{}}, 400, `admission webhook "one.io" denied the request without explanation`},
	} {
		t.Run(name, func(t *testing.T) {
			o := oracle.New(t, oracle.Options{
				Mutating: []*admissionregistrationv1.MutatingWebhookConfiguration{mutating("a", "one.io", "two.io")}, Namespaces: namespaces(),
				Default: oracle.Always(tc.answer),
			})
			got := run(t, o, mutate, createWidget())
			if got.Allowed || got.Code != tc.code || got.Message != tc.message || len(got.Called) != 1 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestATypedObjectIsDecodedAndDefaultedAfterEveryPatch(t *testing.T) {
	o := oracle.New(t, oracle.Options{
		Mutating: []*admissionregistrationv1.MutatingWebhookConfiguration{mutating("a", "one.io")}, Namespaces: namespaces(),
		Default: oracle.Always(oracle.Patch(`[
			{"op":"add","path":"/spec/containers/-","value":{"name":"side","image":"side:1"}},
			{"op":"add","path":"/spec/madeUp","value":1}]`)),
	})
	got := run(t, o, mutate, createPod())
	var pod struct {
		Spec struct {
			MadeUp     *int
			Containers []struct{ Name, ImagePullPolicy, TerminationMessagePath string }
		}
	}
	decode(t, got.FinalObject, &pod)
	if len(pod.Spec.Containers) != 2 || pod.Spec.MadeUp != nil {
		t.Fatalf("final object %s", got.FinalObject)
	}
	if c := pod.Spec.Containers[1]; c.ImagePullPolicy != "IfNotPresent" || c.TerminationMessagePath == "" {
		t.Errorf("the patched-in container is not defaulted: %+v", c)
	}
}

func TestAReviewIsSentInTheFirstVersionThatTheHookTakesAndKubernetesKnows(t *testing.T) {
	c := mutating("a", "one.io")
	c.Webhooks[0].AdmissionReviewVersions = []string{"v2", "v1beta1", "v1"}
	var version string
	answer := oracle.Allow()
	answer.Edit = func(r *k8sadmissionv1.AdmissionReview) { version = r.APIVersion }
	o := oracle.New(t, oracle.Options{
		Mutating: []*admissionregistrationv1.MutatingWebhookConfiguration{c}, Namespaces: namespaces(), Default: oracle.Always(answer),
	})
	if got := run(t, o, mutate, createWidget()); !got.Allowed || version != "admission.k8s.io/v1beta1" {
		t.Errorf("version %q, outcome %+v", version, got)
	}
}

func TestAMissingNamespaceIs404OnlyIfANamespaceSelectorAsksForIt(t *testing.T) {
	c := validating("a", "one.io")
	o := oracle.Options{
		Validating: []*admissionregistrationv1.ValidatingWebhookConfiguration{c}, Default: oracle.Always(oracle.Allow()),
	}
	if got := run(t, oracle.New(t, o), validate, createWidget()); !got.Allowed {
		t.Errorf("without a selector: %+v", got)
	}
	c.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}
	if got := run(t, oracle.New(t, o), validate, createWidget()); got.Code != 404 || got.Details.Name != "default" {
		t.Errorf("with a selector: %+v", got)
	}
}

func TestThePluginsSayWhatTheyDidInTheirOwnAnnotations(t *testing.T) {
	o := oracle.New(t, oracle.Options{
		Mutating: []*admissionregistrationv1.MutatingWebhookConfiguration{mutating("a", "one.io")}, Namespaces: namespaces(),
		Default: oracle.Always(oracle.Patch(`[{"op":"replace","path":"/spec/size","value":2}]`)),
	})
	got := run(t, o, mutate, createWidget())
	want := map[string]string{
		"mutation.webhook.admission.k8s.io/round_0_index_0": `{"configuration":"a","webhook":"one.io","mutated":true}`,
		"patch.webhook.admission.k8s.io/round_0_index_0":    `{"configuration":"a","webhook":"one.io","patch":[{"op":"replace","path":"/spec/size","value":2}],"patchType":"JSONPatch"}`,
	}
	if diff := cmp.Diff(want, got.Audit); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}
