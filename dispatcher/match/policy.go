package match

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Policy is a policy that is judged in this process, without a call. It becomes one hook. Package policy has the implementations. It is immutable, and
// its methods may be called concurrently.
type Policy interface { //nolint:interfacebloat // a policy is one hook, with the fields of a hook
	// ID is KIND/NAME of the document. It takes the place of the name of a configuration in [HookID.Configuration]: no configuration has a name with a
	// slash.
	ID() string
	// Stage is STAGE_MUTATE or STAGE_VALIDATE.
	Stage() admissionv1.Stage
	// Reinvocation is spec.reinvocationPolicy of a policy of STAGE_MUTATE, and Never of others.
	Reinvocation() admissionregistrationv1.ReinvocationPolicyType
	// Constraints are spec.matchConstraints with their defaults. The caller must not change them.
	Constraints() *admissionregistrationv1.MatchResources
	// BindingNamespaces selects each namespace that a binding selects, and maybe more; nil selects all. The caller must not change it.
	BindingNamespaces() *metav1.LabelSelector
	// FailurePolicy is Ignore if the policy refuses no request while the mesh is away, else Fail.
	FailurePolicy() admissionregistrationv1.FailurePolicyType
	// Asks are the things that the policy asks a cluster about a request, beside the labels of namespaces. An empty name is a cluster that no document names.
	Asks(cluster string) []Question
	// Judge judges a request that meets the constraints. as is the version in which the policy sees it, as [Decision] has it. unmatched is
	// [Decision.Unmatched]. The error is the failure of a policy, beside its response: under Ignore
	// it has the warnings and audit annotations of the rest, under Fail it refuses the request. ctx bounds look-ups and the evaluation.
	Judge(ctx context.Context, a *Attributes, as *conversion.ResourceKind, unmatched error) (Judgement, error)
}

// Judgement is the result of a policy for a request.
type Judgement struct {
	*admissionv1.AdmissionResponse

	// Why is the reason that the policy does not apply to the request, which it then allows: [SkipBindings], [SkipParams] or [SkipConditions]. Beside a
	// denial it names the validations that are false, without a value of the request. Else it is empty.
	Why string
	// Acted means that a policy which failed and allows the request has taken its validationActions for the failure: clients hear of it by these alone.
	Acted bool
}

// Question is something that a policy asks the cluster of a request.
type Question struct {
	// Code is [CodeAuthorizer], [CodeNamespaceObject] or [CodeParams].
	Code string
	// Field is the field of the document that asks, below its spec and beginning with a dot.
	Field string
	// Kind is the kind of the params; empty for other questions.
	Kind schema.GroupVersionKind
}

// String names the subject of the question.
func (q Question) String() string {
	switch q.Code {
	case CodeParams:
		return fmt.Sprintf("the params, of kind %s of %s,", q.Kind.Kind, q.Kind.GroupVersion())
	case CodeNamespaceObject:
		return "the namespaceObject"
	}
	return "the authorizer"
}

// asks reports the questions of a policy.
func (h *Hook) asks(report report) {
	for _, q := range h.Policy.Asks("") {
		access := "asks the API server of the cluster"
		if q.Code == CodeParams {
			access = "lists the objects in the cluster, for which the identity of the mesh there needs the permission, unless PolicyParams have some for it"
		}
		report(SeverityInfo, q.Code, q.Field, fmt.Sprintf("for %s the mesh %s: where it cannot, the policy fails, and its failurePolicy decides", q, access))
	}
}

// policies is 1 for a policy, so that it comes first where objects are compared by it.
func (o Object) policies() int {
	if o.Policy != nil {
		return 1
	}
	return 0
}

// webhookOf returns a policy as a webhook with the same criteria.
func webhookOf(p Policy) webhook {
	constraints, failure, none := p.Constraints(), p.FailurePolicy(), admissionregistrationv1.SideEffectClassNone
	_, name, _ := strings.Cut(p.ID(), "/")
	reinvocation := p.Reinvocation()
	w := webhook{stage: p.Stage(), reinvocation: &reinvocation, ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{
		Name: name, FailurePolicy: &failure, SideEffects: &none, MatchPolicy: constraints.MatchPolicy,
		NamespaceSelector: constraints.NamespaceSelector, ObjectSelector: constraints.ObjectSelector,
	}}
	for i := range constraints.ResourceRules {
		w.Rules = append(w.Rules, constraints.ResourceRules[i].RuleWithOperations)
	}
	return w
}

// policyField is the path of a field of a webhook in the spec of a policy.
func policyField(field string) string {
	const constraints = ".matchConstraints"
	switch name := strings.TrimLeft(field, "."); {
	case strings.HasPrefix(name, "rules"):
		return constraints + ".resourceRules" + strings.TrimPrefix(name, "rules")
	case strings.HasPrefix(name, "namespaceSelector"), strings.HasPrefix(name, "objectSelector"), strings.HasPrefix(name, "matchPolicy"):
		return constraints + field
	}
	return field
}

// Versioned returns the request in the types of k8s.io/apiserver, with its objects in the version of a [Decision.As]. All else is as the client asked
// for it (NewVersionedAttributes of k8s.io/apiserver/pkg/admission). The objects are booked and must not be changed; longest bounds their values. ctx
// bounds the conversion.
func (a *Attributes) Versioned(
	ctx context.Context, as *conversion.ResourceKind,
) (versioned *admission.VersionedAttributes, longest conversion.Longest, err error) {
	return a.versioned(ctx, a.seenKind(as), false)
}

// Requested is the resource and the kind that the client asked for.
func (a *Attributes) Requested() conversion.ResourceKind { return *a.requested }

// Seen is the resource and the kind in which a hook sees the request whose [Decision] has as.
func (a *Attributes) Seen(as *conversion.ResourceKind) conversion.ResourceKind {
	if as == nil {
		return a.sent
	}
	return *as
}

// Name is the name of the object in the request; empty if the API server has yet to generate it.
func (a *Attributes) Name() string { return a.req.GetName() }

// Book books n bytes for objects that a policy makes, until release is called.
func (a *Attributes) Book(n int64) (release func(), err error) {
	if err := a.memory.Grow(n); err != nil {
		return nil, err //nolint:wrapcheck // a status
	}
	return func() { a.memory.Shrink(n) }, nil
}

// Namespace is the namespace of the request; empty for an object in none.
func (a *Attributes) Namespace() string { return a.req.GetNamespace() }

// ClusterName is the name of the cluster of the request.
func (a *Attributes) ClusterName() string { return a.req.GetCluster() }

// Cluster has the facts about the cluster of the request.
func (a *Attributes) Cluster() Cluster { return a.cluster }
