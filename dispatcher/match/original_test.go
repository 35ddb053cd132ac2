package match_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	mutatingplugin "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// kubernetes is the original.
type kubernetes struct {
	plugin *mutatingplugin.Plugin
	oracle *oracle.Oracle
	// objects are the interfaces of the cluster of the request.
	objects admission.ObjectInterfaces
	// unconverted is how often objects could not be converted that nobody wanted to read.
	unconverted int
}

func newKubernetes(t testing.TB) *kubernetes {
	t.Helper()
	plugin, err := mutatingplugin.NewMutatingWebhook(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleClientset()
	client.PrependReactor("get", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if get, ok := a.(clienttesting.GetAction); ok && get.GetName() == "broken" {
			return true, nil, errBroken()
		}
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	for name, set := range clusterNamespaces() {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
		if err := factory.Core().V1().Namespaces().Informer().GetIndexer().Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	return &kubernetes{plugin: plugin, objects: objectInterfaces(served{}), oracle: oracle.New(t, oracle.Options{})}
}

// shouldCall asks the original about one hook and one request. If the objects cannot be converted and the hook's conditions
// do not read them, it is asked as if they could (M4).
func (k *kubernetes) shouldCall(t *testing.T, w webhook.WebhookAccessor, a admission.Attributes) match.Decision {
	t.Helper()
	v := &versions{Attributes: a, objects: k.objects}
	want := k.ask(t, w, a, v)
	if v.err != nil && !readsObject(w.GetMatchConditions()) {
		k.unconverted++
		v.unread = true
		return k.ask(t, w, a, v)
	}
	return want
}

func (k *kubernetes) ask(t *testing.T, w webhook.WebhookAccessor, a admission.Attributes, v *versions) match.Decision {
	t.Helper()
	invocation, err := k.plugin.ShouldCallHook(t.Context(), w, a, k.objects, v)
	switch {
	case err != nil:
		return match.Decision{Err: err}
	case invocation == nil:
		return match.Decision{Skip: "skipped"} // the original does not say why
	}
	return match.Decision{Match: true, As: &conversion.ResourceKind{
		Resource: invocation.Resource, Subresource: invocation.Subresource, Kind: invocation.Kind,
	}}
}

// readsObject knows the expressions of the tests: those that do not compile count as well.
func readsObject(conditions []admissionregistrationv1.MatchCondition) bool {
	reads := regexp.MustCompile(`\b(object|oldObject)\b|^"not a bool"$|^syntax error$`)
	return slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool { return reads.MatchString(c.Expression) })
}

// in makes the original the API server of a cluster.
func (k *kubernetes) in(c cluster) {
	k.objects = objectInterfaces(c.served)
	k.plugin.SetAuthorizer(c.authorizer)
}

// versions makes the objects of a request in the version that a hook takes.
type versions struct {
	admission.Attributes
	objects admission.ObjectInterfaces
	unread  bool  // the hook sees none
	err     error // of the last conversion
}

func (v *versions) VersionedAttribute(kind schema.GroupVersionKind) (*admission.VersionedAttributes, error) {
	if v.unread {
		return &admission.VersionedAttributes{Attributes: v.Attributes, VersionedKind: kind}, nil
	}
	versioned, err := admission.NewVersionedAttributes(v.Attributes, kind, v.objects)
	v.err = err
	return versioned, err
}

// sent is the request as the API server sends it, with its objects defaulted and encoded anew, to an entry that takes its resource in the way as. ok
// is false if the objects cannot be converted for it.
func (k *kubernetes) sent(
	t *testing.T, req *admissionv1.AdmissionRequest, a admission.Attributes, as conversion.ResourceKind,
) (sent *admissionv1.AdmissionRequest, ok bool) {
	t.Helper()
	versioned, err := admission.NewVersionedAttributes(a, as.Kind, k.objects)
	if err != nil {
		return nil, false
	}
	return &admissionv1.AdmissionRequest{
		Kind:        &admissionv1.GroupVersionKind{Group: as.Kind.Group, Version: as.Kind.Version, Kind: as.Kind.Kind},
		Resource:    &admissionv1.GroupVersionResource{Group: as.Resource.Group, Version: as.Resource.Version, Resource: as.Resource.Resource},
		SubResource: req.GetSubResource(),
		RequestKind: req.GetKind(), RequestResource: req.GetResource(), RequestSubResource: req.GetSubResource(),
		Name: req.GetName(), Namespace: req.GetNamespace(), Operation: req.GetOperation(), UserInfo: req.GetUserInfo(),
		Object: encode(t, versioned.VersionedObject), OldObject: encode(t, versioned.VersionedOldObject),
		Options: req.GetOptions(), DryRun: req.DryRun,
	}, true
}

func encode(t *testing.T, o runtime.Object) *admissionv1.Object {
	t.Helper()
	if o == nil {
		return nil
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return &admissionv1.Object{Raw: raw}
}
