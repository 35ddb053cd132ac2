// Package oracle is kube-apiserver's own webhook admission, run in process: the validating and mutating plugins of
// k8s.io/apiserver behind its own reinvocation chain, configured from ordinary webhook configurations, calling hooks
// over real HTTPS whose answers are scripts. Portcullis has to give the same answers.
//
// Real are matching, order, the calls with their AdmissionReviews, timeouts and TLS, the reading of answers,
// failure policies, patches, reinvocation, and, for built-in kinds, decoding, conversion and defaulting through
// Kubernetes' own internal types (k8s.io/kubernetes' scheme). Objects of other kinds are unstructured, as custom
// resources are in a real API server, without pruning and without a schema's defaults; the definitions that there are
// convert them.
//
// Missing is everything around admission. Nothing is authenticated, validated or stored; there are no in-tree
// plugins between the rounds, no field managers, no audit levels, and the limits that the API server puts on
// warnings are not applied.
//
// The package is for tests only. An Oracle runs one review at a time; it may be used from any goroutine.
package oracle

import (
	"context"
	"flag"
	"io"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2" //nolint:depguard // the plugins log with it

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Options are the API server's settings.
type Options struct {
	// Validating and Mutating are the configurations of the cluster. They are copied, given Kubernetes' defaults, and
	// every hook is pointed at its script: their clientConfig counts only for hooks without a script.
	Validating []*admissionregistrationv1.ValidatingWebhookConfiguration
	Mutating   []*admissionregistrationv1.MutatingWebhookConfiguration
	// Namespaces are the namespaces that exist, with their labels.
	Namespaces map[string]map[string]string
	// Scripts are the hooks, by Key.
	Scripts map[string]Script
	// Default is the script of hooks that have none; nil leaves them the clientConfig that they were given.
	Default Script
	// Custom treats objects of every kind as custom resources.
	Custom bool
	// Authorizer answers the questions of matchConditions; nil leaves their authorizer variable without a value.
	Authorizer authorizer.Authorizer
	// Equivalents knows the versions in which a resource is served, for matchPolicy Equivalent; nil knows none.
	Equivalents runtime.EquivalentResourceMapper
	// Definitions convert custom resources between their versions, and have their schemas; objects of other kinds without a type cannot be converted.
	Definitions []*apiextensionsv1.CustomResourceDefinition
}

// silence keeps the plugins, which log every refusal through one global logger, out of the output of tests.
var silence = sync.OnceFunc(func() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Set("stderrthreshold", "FATAL")
})

// Oracle is an API server's webhook admission.
type Oracle struct {
	chain   admission.Interface
	wiring  *wiring
	objects admission.ObjectInterfaces
	types   patch.TypeConverterManager
	custom  bool
	hooks   *hooks

	mu sync.Mutex // one review at a time, so that each call belongs to a known review
}

// New starts an oracle. It ends with the test.
func New(t testing.TB, o Options) *Oracle {
	t.Helper()
	silence()
	hooks := newHooks(t, o)
	chain, wiring, err := newChain(t, o, hooks)
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	objects, err := newObjectInterfaces(o)
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	types, err := newTypeConverters(o.Definitions)
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	return &Oracle{chain: chain, wiring: wiring, objects: objects, types: types, custom: o.Custom, hooks: hooks}
}

// Run admits one request through the hooks of a stage: STAGE_MUTATE with Kubernetes' reinvocation, or STAGE_VALIDATE.
// It returns an error only for requests that no API server would send to admission.
func (o *Oracle) Run(ctx context.Context, stage admissionv1.Stage, req *admissionv1.AdmissionRequest) (Outcome, error) {
	attributes, err := o.Attributes(req)
	if err != nil {
		return Outcome{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hooks.begin()
	r := &recorder{Attributes: attributes, annotations: map[string]string{}}
	refusal := o.admit(warning.WithWarningRecorder(ctx, r), stage, r)
	return r.outcome(refusal, o.hooks.end(), gvkOf(req))
}

func (o *Oracle) admit(ctx context.Context, stage admissionv1.Stage, a admission.Attributes) error {
	if stage == admissionv1.Stage_STAGE_VALIDATE {
		return o.chain.(admission.ValidationInterface).Validate(ctx, a, o.objects)
	}
	return o.chain.(admission.MutationInterface).Admit(ctx, a, o.objects)
}

// pluginNames are the plugins of the chain, in kube-apiserver's order.
func pluginNames() []string { return []string{mutating.PluginName, validating.PluginName} }
