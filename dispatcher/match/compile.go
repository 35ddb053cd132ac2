package match

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Input is a configuration to compile. Objects were defaulted and validated by whoever read them; Compile keeps them,
// and they must not change afterwards.
type Input struct {
	// Revision is the digest of the configuration.
	Revision string
	// Objects are the webhook configurations, in any order.
	Objects []Object
	// Routes say how hooks are called. Hooks without one are called as their clientConfig says.
	Routes []RouteBinding
}

// Object is one webhook configuration: exactly one of Validating and Mutating is set.
type Object struct {
	// Scope is the cluster that the configuration is for; empty for all clusters.
	Scope string
	// Source is where the object was read from, for findings, for example a file name.
	Source string
	// Validating holds validating hooks.
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration
	// Mutating holds mutating hooks.
	Mutating *admissionregistrationv1.MutatingWebhookConfiguration
}

// RouteBinding binds a route to hooks. A binding that names the hook beats one for its whole configuration, and a
// binding that names the stage beats one that does not.
type RouteBinding struct {
	// Name is the name of the document that says so, for findings.
	Name string
	// Source is where that document was read from, for findings.
	Source string
	// Configuration is metadata.name of the configuration.
	Configuration string
	// Hook is webhooks[].name; empty for every hook of the configuration.
	Hook string
	// Stage is STAGE_MUTATE or STAGE_VALIDATE; STAGE_UNSPECIFIED for whichever kind of configuration has the name.
	Stage admissionv1.Stage
	// Route is how the hooks are called.
	Route Route
}

// Compile makes a snapshot of in. It never fails as a whole: an object that cannot be compiled is left out, alone, and
// reported by a finding of SeverityError with CodeRejected.
func Compile(in Input) (*Snapshot, []Finding) {
	s := &Snapshot{revision: in.Revision, index: index{byStage: map[admissionv1.Stage][]*Hook{}}}
	objects := slices.Clone(in.Objects)
	slices.SortStableFunc(objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.name(), b.name()), cmp.Compare(a.Scope, b.Scope))
	})
	for _, o := range objects {
		for _, w := range o.webhooks() {
			h := w.compile(o)
			h.ordinal = len(s.hooks)
			h.Route = routeOf(in.Routes, h.ID)
			if h.Route.Timeout > 0 {
				h.Timeout = h.Route.Timeout
			}
			s.hooks = append(s.hooks, h)
			s.index.byStage[h.ID.Stage] = append(s.index.byStage[h.ID.Stage], h)
		}
	}
	return s, nil
}

func routeOf(bindings []RouteBinding, id HookID) Route {
	for _, b := range bindings {
		if b.Configuration == id.Configuration && (b.Hook == "" || b.Hook == id.Name) && (b.Stage == 0 || b.Stage == id.Stage) {
			return b.Route
		}
	}
	return Route{}
}

func (o Object) name() string {
	if o.Mutating != nil {
		return o.Mutating.Name
	}
	return o.Validating.Name
}

// webhook is a webhook of either kind of configuration.
type webhook struct {
	admissionregistrationv1.ValidatingWebhook

	stage        admissionv1.Stage
	reinvocation *admissionregistrationv1.ReinvocationPolicyType
	index        int
}

func (o Object) webhooks() []webhook {
	var all []webhook
	names := map[string]int{}
	add := func(w webhook) {
		w.index = names[w.Name]
		names[w.Name]++
		all = append(all, w)
	}
	if o.Validating != nil {
		for _, w := range o.Validating.Webhooks {
			add(webhook{ValidatingWebhook: w, stage: admissionv1.Stage_STAGE_VALIDATE})
		}
		return all
	}
	for _, w := range o.Mutating.Webhooks {
		add(webhook{stage: admissionv1.Stage_STAGE_MUTATE, reinvocation: w.ReinvocationPolicy, ValidatingWebhook: shared(w)})
	}
	return all
}

// shared are the fields that mutating hooks have in common with validating ones.
func shared(w admissionregistrationv1.MutatingWebhook) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
		MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
		SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
	}
}

func (w webhook) compile(o Object) *Hook {
	return &Hook{
		ID: HookID{
			Scope: o.Scope, Stage: w.stage, Configuration: o.name(), Name: w.Name, Index: w.index,
		},
		FailurePolicy:     value(w.FailurePolicy, admissionregistrationv1.Fail),
		Timeout:           timeout(w.TimeoutSeconds),
		SideEffects:       value(w.SideEffects, ""),
		MatchPolicy:       value(w.MatchPolicy, admissionregistrationv1.Exact),
		Reinvocation:      value(w.reinvocation, admissionregistrationv1.NeverReinvocationPolicy),
		ClientConfig:      w.ClientConfig,
		ReviewVersions:    w.AdmissionReviewVersions,
		rules:             w.Rules,
		namespaceSelector: newSelector(w.NamespaceSelector),
		objectSelector:    newSelector(w.ObjectSelector),
	}
}

// newSelector compiles s. An absent selector selects everything, as the API's own default says.
func newSelector(s *metav1.LabelSelector) selector {
	if s == nil {
		return selector{Selector: labels.Everything()}
	}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		err = fmt.Errorf("selector cannot be parsed: %w", err)
	}
	return selector{Selector: parsed, err: err}
}

func timeout(seconds *int32) time.Duration {
	if seconds == nil {
		return DefaultTimeout
	}
	return time.Duration(*seconds) * time.Second
}

func value[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}
