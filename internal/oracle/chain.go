package oracle

import (
	"fmt"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	// The built-in kinds that requests can be about, and the configurations themselves.
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/extensions/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
)

// newChain makes both plugins as kube-apiserver makes them, with an API that holds the objects of the options.
func newChain(t testing.TB, o Options, hooks *hooks) (admission.Interface, *wiring, error) {
	client := fake.NewSimpleClientset(stored(o, hooks)...)
	w := &wiring{client: client, informers: informers.NewSharedInformerFactory(client, 0), authorizer: o.Authorizer}
	plugins := admission.NewPlugins()
	mutating.Register(plugins)
	validating.Register(plugins)
	chain, err := plugins.NewFromPlugins(pluginNames(), noConfiguration{}, w, nil)
	if err != nil {
		return nil, nil, err
	}
	stop := make(chan struct{})
	w.informers.Start(stop)
	t.Cleanup(func() {
		close(stop)
		w.informers.Shutdown()
	})
	for informer, ok := range w.informers.WaitForCacheSync(stop) {
		if !ok {
			return nil, nil, fmt.Errorf("the informer for %v did not sync", informer)
		}
	}
	return chain, w, nil
}

// stored has the objects in the API server's storage.
func stored(o Options, hooks *hooks) []runtime.Object {
	var all []runtime.Object
	for name, labels := range o.Namespaces {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for _, c := range o.Validating {
		c = c.DeepCopy()
		keys := newKeys(c.Name)
		for i := range c.Webhooks {
			hooks.point(keys.next(c.Webhooks[i].Name), &c.Webhooks[i].ClientConfig)
		}
		legacyscheme.Scheme.Default(c)
		all = append(all, c)
	}
	for _, c := range o.Mutating {
		c = c.DeepCopy()
		keys := newKeys(c.Name)
		for i := range c.Webhooks {
			hooks.point(keys.next(c.Webhooks[i].Name), &c.Webhooks[i].ClientConfig)
		}
		legacyscheme.Scheme.Default(c)
		all = append(all, c)
	}
	return all
}

// wiring gives the plugins the same parts as kube-apiserver.
type wiring struct {
	client     kubernetes.Interface
	informers  informers.SharedInformerFactory
	authorizer authorizer.Authorizer
}

var _ admission.PluginInitializer = (*wiring)(nil)

// Initialize implements admission.PluginInitializer.
func (w *wiring) Initialize(plugin admission.Interface) {
	plugin.(initializer.WantsExternalKubeClientSet).SetExternalKubeClientSet(w.client)
	plugin.(initializer.WantsExternalKubeInformerFactory).SetExternalKubeInformerFactory(w.informers)
	if w.authorizer != nil {
		plugin.(initializer.WantsAuthorizer).SetAuthorizer(w.authorizer)
	}
}

// noConfiguration is the AdmissionConfiguration file that most clusters do not have.
type noConfiguration struct{}

// ConfigFor implements admission.ConfigProvider.
func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil } //nolint:nilnil // as its contract has it
