// Package native is the present alternative of users: kube-apiserver's own webhook admission, the plugins of
// k8s.io/apiserver, calling webhooks over HTTPS that allow everything; and its plugin of policies.
//
// The object is decoded once, before the measurement, as it is in an API server before admission; the cost of a review is
// the plugins' work: matching, one conversion and one encoding for each hook, the calls, and the reading of the answers.
package native

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	policies "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2" //nolint:depguard // the plugins log with it
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// Native is the webhook admission of an API server, and its hooks. Close ends them.
type Native struct {
	scenario scenario.Scenario
	hooks    *hooks // nil with policies
	informer informers.SharedInformerFactory
	stop     chan struct{}
	chain    admission.Interface
	objects  admission.ObjectInterfaces
	object   runtime.Object
	user     user.Info
}

// Start starts the hooks, and the plugins with a configuration for them.
func Start(ctx context.Context, s scenario.Scenario, keys *pki.PKI) (*Native, error) {
	hooks, err := startHooks(ctx, s, keys)
	if err != nil {
		return nil, fmt.Errorf("native: %w", err)
	}
	return start(s, hooks)
}

// StartPolicies starts the plugin of ValidatingAdmissionPolicies, with a policy in the place of each hook.
func StartPolicies(s scenario.Scenario) (*Native, error) { return start(s, nil) }

// start starts the plugins, and ends the hooks if it cannot.
func start(s scenario.Scenario, hooks *hooks) (*Native, error) {
	object, err := decode(s)
	if err != nil {
		return nil, errors.Join(err, hooks.close())
	}
	u := scenario.User()
	n := &Native{
		scenario: s, hooks: hooks, stop: make(chan struct{}), objects: objectInterfaces(), object: object,
		user: &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups},
	}
	if err := n.startPlugins(); err != nil {
		return nil, errors.Join(fmt.Errorf("native: %w", err), n.Close())
	}
	return n, nil
}

// decode decodes the Pod as an API server has it.
func decode(s scenario.Scenario) (runtime.Object, error) {
	pod, err := s.Pod()
	if err != nil {
		return nil, err
	}
	internal := schema.GroupVersion{Version: runtime.APIVersionInternal}
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(internal), pod)
	if err != nil {
		return nil, fmt.Errorf("native: decoding the Pod: %w", err)
	}
	return object, nil
}

// objectInterfaces are the plugins' knowledge of objects: the types of Kubernetes.
func objectInterfaces() admission.ObjectInterfaces {
	scheme := legacyscheme.Scheme
	known := runtime.NewEquivalentResourceRegistry()
	known.RegisterKindFor(corev1.SchemeGroupVersion.WithResource("pods"), "", corev1.SchemeGroupVersion.WithKind("Pod"))
	return &admission.RuntimeObjectInterfaces{
		ObjectCreater: scheme, ObjectTyper: scheme, ObjectDefaulter: scheme, ObjectConvertor: scheme,
		EquivalentResourceMapper: known,
	}
}

// startPlugins makes both plugins as kube-apiserver does, and waits until they know the configuration.
func (n *Native) startPlugins() error {
	silence()
	client := fake.NewSimpleClientset(n.stored()...)
	n.informer = informers.NewSharedInformerFactory(client, 0)
	plugins := admission.NewPlugins()
	mutating.Register(plugins)
	validating.Register(plugins)
	policies.Register(plugins)
	names := []string{mutating.PluginName, validating.PluginName}
	if n.hooks == nil {
		names = []string{policies.PluginName}
	}
	var err error
	if n.chain, err = plugins.NewFromPlugins(names, noConfiguration{}, wiring{client, n.informer, n.stop}, nil); err != nil {
		return err
	}
	n.informer.Start(n.stop)
	for informer, ok := range n.informer.WaitForCacheSync(n.stop) {
		if !ok {
			return fmt.Errorf("the informer for %v did not sync", informer)
		}
	}
	return nil
}

// stored are the objects in the API server's storage.
func (n *Native) stored() []runtime.Object {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: scenario.Namespace, Labels: map[string]string{corev1.LabelMetadataName: scenario.Namespace},
	}}
	all := []runtime.Object{namespace}
	if n.hooks == nil {
		for _, p := range n.scenario.Policies() {
			all = append(all, p.Document)
			for _, b := range p.Bindings {
				all = append(all, b)
			}
		}
		return all
	}
	validating, mutating := n.scenario.Configurations(n.hooks.client)
	for _, c := range validating {
		all = append(all, c)
	}
	for _, c := range mutating {
		all = append(all, c)
	}
	return all
}

// Review admits the Pod. Where hooks patch it, it is a copy, since the plugins change their objects; an API server has
// an object of its own for each request.
func (n *Native) Review(ctx context.Context) error {
	object := n.object
	if n.scenario.Patching > 0 {
		object = object.DeepCopyObject()
	}
	a := admission.NewAttributesRecord(object, nil, corev1.SchemeGroupVersion.WithKind("Pod"), scenario.Namespace, "",
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, &metav1.CreateOptions{}, false, n.user)
	if n.scenario.Stage == scenario.Mutate {
		return n.chain.(admission.MutationInterface).Admit(ctx, a, n.objects)
	}
	return n.chain.(admission.ValidationInterface).Validate(ctx, a, n.objects)
}

// Calls is how many calls hooks have had.
func (n *Native) Calls() int64 { return n.hooks.calls.Load() }

// Close ends the plugins and the hooks.
func (n *Native) Close() error {
	close(n.stop)
	if n.informer != nil {
		n.informer.Shutdown()
	}
	return n.hooks.close()
}

// silence keeps the plugins, which log through one global logger, out of the output.
func silence() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("stderrthreshold", "FATAL")
}

// wiring gives the plugins the same parts as kube-apiserver.
type wiring struct {
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	stop      <-chan struct{}
}

// Initialize implements admission.PluginInitializer.
func (w wiring) Initialize(plugin admission.Interface) {
	plugin.(initializer.WantsExternalKubeClientSet).SetExternalKubeClientSet(w.client)
	plugin.(initializer.WantsExternalKubeInformerFactory).SetExternalKubeInformerFactory(w.informers)
	if p, ok := plugin.(*policies.Plugin); ok {
		p.SetRESTMapper(meta.NewDefaultRESTMapper(nil))
		p.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(legacyscheme.Scheme))
		p.SetDrainedNotification(w.stop)
		p.SetAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	}
}

// noConfiguration is the AdmissionConfiguration file that most clusters do not have.
type noConfiguration struct{}

// ConfigFor implements admission.ConfigProvider.
func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil } //nolint:nilnil // as its contract has it
