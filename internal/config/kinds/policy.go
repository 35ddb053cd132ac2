package kinds

import (
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// PolicyKind is the kind of a Policy.
const PolicyKind = "Policy"

const (
	// MaxPolicyResources bounds PolicySpec.Resources.
	MaxPolicyResources = 64
	// MaxPolicyExclusions bounds each list of a PolicyExclusion: a request is compared with all of them.
	MaxPolicyExclusions = 64
	// MaxPolicyValidations bounds PolicySpec.Validations.
	MaxPolicyValidations = 64
	// MaxPolicyExpression bounds each expression of a Policy, in bytes.
	MaxPolicyExpression = 8 << 10
	// MaxPolicyMessage bounds PolicyValidation.Message, in bytes.
	MaxPolicyMessage = 1 << 10
	// MaxPolicyField bounds PolicyValidation.Field and PolicyMutation.Field, in bytes.
	MaxPolicyField = 256
)

// Policy is a short way to write a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy and its binding. Package policies expands it, and the expansion
// is evaluated.
type Policy struct {
	TypeMeta `json:",inline"`
	// Metadata names the policy, and the documents that it is expanded into.
	Metadata Metadata `json:"metadata"`
	// Spec is the policy.
	Spec PolicySpec `json:"spec"`
}

// PolicySpec has the objects that a policy is about, and its rules for them.
type PolicySpec struct {
	// Resources are the kinds of objects, at most 64: a resource of Kubernetes ("pods", "deployments"), GROUP/RESOURCE or
	// GROUP/VERSION/RESOURCE, each perhaps with a subresource ("pods/exec"). Pods are meant with their subresources ephemeralcontainers and resize,
	// by which containers are added and changed.
	Resources []string `json:"resources"`
	// Operations are CREATE, UPDATE, DELETE or CONNECT. Absent means CREATE and UPDATE. An update of an object that is being deleted passes, so that
	// its finalizers can end.
	Operations []admissionregistrationv1.OperationType `json:"operations,omitempty"`
	// PodControllers extends a policy on pods alone to the Pod templates in Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs and CronJobs.
	// Mutations leave ReplicaSets alone: a Deployment would take a changed ReplicaSet for another's, and make a new one.
	PodControllers bool `json:"podControllers,omitempty"`
	// Clusters are the clusters where the policy is in force. Empty means all.
	Clusters []string `json:"clusters,omitempty"`
	// Exclude are requests that the policy leaves alone. Absent means none.
	Exclude *PolicyExclusion `json:"exclude,omitempty"`
	// Parameters are values for the expressions, at most 64.
	Parameters []Parameter `json:"parameters,omitempty"`
	// Variables are values that other expressions name as variables.NAME, at most 64. Each may name the variables before it. It is evaluated for a
	// request once at most, when an expression names it.
	Variables []PolicyVariable `json:"variables,omitempty"`
	// Mode is the consequence of a failed validation, or of a mutation. Empty means shadow.
	Mode PolicyMode `json:"mode,omitempty"`
	// ModeByCluster is Mode for some clusters, by their names.
	ModeByCluster map[string]PolicyMode `json:"modeByCluster,omitempty"`
	// Validations are rules, at most 64. All of them must hold. A Policy has validations or mutations.
	Validations []PolicyValidation `json:"validations,omitempty"`
	// Mutations set fields of the object in this order, at most 16. An update of a Pod or a Job sets no field that Kubernetes lets no update change: of the
	// spec of the Pod, or of the Pod template of the Job.
	Mutations []PolicyMutation `json:"mutations,omitempty"`
	// FailurePolicy decides if an expression fails, as with a field that is not there: Fail takes it for a failed validation and refuses the request of a
	// mutation, Ignore passes the policy over. Empty means Fail.
	FailurePolicy admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`
}

// PolicyMode is the consequence of a failed validation, or of a mutation.
type PolicyMode string

const (
	// ModeShadow allows the request as it is, and records that the validation failed, or that the mutation would have changed the object.
	ModeShadow PolicyMode = "shadow"
	// ModeWarn allows the request, and warns the client. A policy with mutations has no such mode.
	ModeWarn PolicyMode = "warn"
	// ModeEnforce denies the request, or changes the object.
	ModeEnforce PolicyMode = "enforce"
)

// PolicyExclusion are requests that a policy leaves alone: those that any item of any list is about. Each list has at most MaxPolicyExclusions.
type PolicyExclusion struct {
	// Namespaces are left alone by name, with everything in them.
	Namespaces []string `json:"namespaces,omitempty"`
	// Users are left alone by user name. A service account is system:serviceaccount:NAMESPACE:NAME.
	Users []string `json:"users,omitempty"`
	// Groups are left alone with all their members.
	Groups []string `json:"groups,omitempty"`
	// Labels leave objects alone, by a key with any value ("legacy") or with one ("team=infra"). An update is left alone if the object had the
	// label before and has it after.
	Labels []string `json:"labels,omitempty"`
}

// PolicyValidation is a rule.
type PolicyValidation struct {
	// Expression is CEL, and true if the object is as it should be.
	Expression string `json:"expression"`
	// Message is the sentence that the client reads if Expression is false: one line.
	Message string `json:"message"`
	// MessageExpression is CEL for a text that takes the place of Message. Message remains for its failure. Empty means none.
	MessageExpression string `json:"messageExpression,omitempty"`
	// Field is the field that the message is about. The message begins with it. With PodControllers it is a field of the Pod, and the message about a
	// controller begins with the field in its Pod template. Empty means none.
	Field string `json:"field,omitempty"`
	// Reason is the reason of the denial for programs: Forbidden, Invalid or RequestEntityTooLarge. Empty means Invalid.
	Reason metav1.StatusReason `json:"reason,omitempty"`
}

// Mutates reports whether the policy changes objects.
func (s *PolicySpec) Mutates() bool { return len(s.Mutations) > 0 }

// AppliesIn reports whether the policy is in force in a cluster. An empty name is a cluster that the policy does not name.
func (s *PolicySpec) AppliesIn(cluster string) bool {
	return len(s.Clusters) == 0 || slices.Contains(s.Clusters, cluster)
}

// ModeIn is the mode in a cluster. An empty name is a cluster that the policy does not name.
func (s *PolicySpec) ModeIn(cluster string) PolicyMode {
	for _, mode := range []PolicyMode{s.ModeByCluster[cluster], s.Mode} {
		if mode != "" {
			return mode
		}
	}
	return ModeShadow
}

// Differing are the clusters that have a mode or values of parameters of their own, sorted.
func (s *PolicySpec) Differing() []string {
	names := maps.Clone(s.ModeByCluster)
	if names == nil {
		names = map[string]PolicyMode{}
	}
	for i := range s.Parameters {
		for cluster := range s.Parameters[i].ByCluster {
			names[cluster] = ""
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// EffectiveOperations are Operations with their default.
func (s *PolicySpec) EffectiveOperations() []admissionregistrationv1.OperationType {
	if len(s.Operations) == 0 {
		return []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	}
	return s.Operations
}

// Validate returns the errors of the policy, with paths from the top of the document. The compiler of package policies looks at the expressions too.
func (p *Policy) Validate() field.ErrorList {
	errs := p.Metadata.validate(field.NewPath("metadata"))
	s, spec := &p.Spec, field.NewPath("spec")
	errs = append(errs, s.validateResources(spec)...)
	errs = append(errs, validateNames(s.Clusters, spec.Child("clusters"))...)
	if s.Exclude != nil {
		errs = append(errs, s.Exclude.validate(spec.Child("exclude"))...)
	}
	errs = append(errs, s.validateParameters(spec.Child("parameters"))...)
	errs = append(errs, s.validateVariables(spec.Child("variables"))...)
	errs = append(errs, s.validateModes(spec)...)
	if s.Mutates() {
		errs = append(errs, s.validateMutations(spec)...)
	} else {
		errs = append(errs, s.validateValidations(spec)...)
	}
	if f := s.FailurePolicy; f != "" && f != admissionregistrationv1.Fail && f != admissionregistrationv1.Ignore {
		errs = append(errs, notSupported(spec.Child("failurePolicy"), f, admissionregistrationv1.Fail, admissionregistrationv1.Ignore))
	}
	return errs
}

func (s *PolicySpec) validateResources(spec *field.Path) (errs field.ErrorList) {
	path := spec.Child("resources")
	switch {
	case len(s.Resources) == 0:
		return field.ErrorList{field.Required(path, `the objects that the policy is about, for example ["pods"]`)}
	case len(s.Resources) > MaxPolicyResources:
		return field.ErrorList{field.TooMany(path, len(s.Resources), MaxPolicyResources)}
	}
	errs = validateList(s.Resources, path)
	for i, text := range s.Resources {
		if _, err := ParsePolicyResource(text); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), text, err.Error()))
		}
	}
	if s.PodControllers && (len(s.Resources) > 1 || !PodsOnly(s.Resources[0])) {
		errs = append(errs, field.Forbidden(spec.Child("podControllers"),
			"it extends a policy on pods alone: write `resources: [pods]`, and other resources into another Policy"))
	}
	return append(errs, s.validateOperations(spec.Child("operations"))...)
}

func (s *PolicySpec) validateOperations(path *field.Path) (errs field.ErrorList) {
	all := []admissionregistrationv1.OperationType{
		admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect,
	}
	if len(s.Operations) > len(all) {
		return field.ErrorList{field.TooMany(path, len(s.Operations), len(all))}
	}
	for i, operation := range s.Operations {
		switch {
		case !slices.Contains(all, operation):
			errs = append(errs, notSupported(path.Index(i), operation, all...))
		case slices.Contains(s.Operations[:i], operation):
			errs = append(errs, field.Duplicate(path.Index(i), operation))
		}
	}
	return errs
}

func (e *PolicyExclusion) validate(path *field.Path) field.ErrorList {
	errs := e.validateList(e.Namespaces, path.Child("namespaces"), func(name string) []string {
		if strings.Contains(name, "*") {
			return []string{"must be the whole name of a namespace: patterns are not read"}
		}
		return apivalidation.ValidateNamespaceName(name, false)
	})
	errs = append(errs, e.validateList(e.Users, path.Child("users"), checkUser)...)
	errs = append(errs, e.validateList(e.Groups, path.Child("groups"), func(name string) []string {
		if name == "system:authenticated" || name == "system:unauthenticated" {
			return []string{"would exclude every user: remove the policy, or name a smaller group"}
		}
		return checkUser(name)
	})...)
	return append(errs, e.validateList(e.Labels, path.Child("labels"), checkLabel)...)
}

func (*PolicyExclusion) validateList(names []string, path *field.Path, check func(string) []string) field.ErrorList {
	return validateEach(names, MaxPolicyExclusions, path, check)
}

// CutLabel is a label of PolicyExclusion.Labels. hasValue is false for a key with any value.
func CutLabel(text string) (key, value string, hasValue bool) { return strings.Cut(text, "=") }

func checkLabel(text string) (problems []string) {
	key, value, _ := CutLabel(text)
	for _, err := range metav1validation.ValidateLabels(map[string]string{key: value}, nil) {
		problems = append(problems, "must be KEY or KEY=VALUE of a label: "+err.Detail)
	}
	return problems
}

func (s *PolicySpec) validateModes(spec *field.Path) (errs field.ErrorList) {
	if s.Mode != "" {
		errs = append(errs, s.validateMode(s.Mode, spec.Child("mode"))...)
	}
	path := spec.Child("modeByCluster")
	errs = append(errs, s.validateClusters(slices.Sorted(maps.Keys(s.ModeByCluster)), path)...)
	for _, cluster := range slices.Sorted(maps.Keys(s.ModeByCluster)) {
		errs = append(errs, s.validateMode(s.ModeByCluster[cluster], path.Key(cluster))...)
	}
	return errs
}

func (s *PolicySpec) validateMode(m PolicyMode, path *field.Path) field.ErrorList {
	modes := []PolicyMode{ModeShadow, ModeWarn, ModeEnforce}
	if s.Mutates() {
		modes = []PolicyMode{ModeShadow, ModeEnforce}
	}
	if slices.Contains(modes, m) {
		return nil
	}
	return field.ErrorList{notSupported(path, m, modes...)}
}

// validateClusters checks the keys of a mapping by cluster.
func (s *PolicySpec) validateClusters(names []string, path *field.Path) field.ErrorList {
	if len(names) > MaxListItems {
		return field.ErrorList{field.TooMany(path, len(names), MaxListItems)}
	}
	var errs field.ErrorList
	for _, name := range names {
		errs = append(errs, validateName(name, path.Key(name))...)
		if !s.AppliesIn(name) {
			errs = append(errs, field.Invalid(path.Key(name), name,
				"the policy is not in force there: add the cluster to spec.clusters, or remove it here"+suggest.DidYouMean(name, s.Clusters)))
		}
	}
	return errs
}

func (s *PolicySpec) validateValidations(spec *field.Path) (errs field.ErrorList) {
	path := spec.Child("validations")
	switch {
	case len(s.Validations) == 0:
		return append(errs, field.Required(path, "the rules, each with an expression and a message; or write mutations"))
	case len(s.Validations) > MaxPolicyValidations:
		return append(errs, field.TooMany(path, len(s.Validations), MaxPolicyValidations))
	}
	for i := range s.Validations {
		errs = append(errs, s.Validations[i].validate(path.Index(i))...)
	}
	return errs
}

func (v *PolicyValidation) validate(path *field.Path) (errs field.ErrorList) {
	errs = validateTexts(path, []policyText{
		{"expression", v.Expression, `CEL that is true if the object is as it should be, for example "object.spec.replicas <= 10"`, MaxPolicyExpression, true},
		{"message", v.Message, "the sentence that the client reads if the expression is false", MaxPolicyMessage, false},
		{"messageExpression", v.MessageExpression, "", MaxPolicyExpression, true},
		{"field", v.Field, "", MaxPolicyField, false},
	})
	if reasons := policyReasons(); v.Reason != "" && !slices.Contains(reasons, v.Reason) {
		errs = append(errs, notSupported(path.Child("reason"), v.Reason, reasons...))
	}
	return errs
}

// policyReasons are the reasons that Kubernetes' validation of ValidatingAdmissionPolicies takes (supportedValidationPolicyReason).
func policyReasons() []metav1.StatusReason {
	return []metav1.StatusReason{
		metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge,
	}
}

// policyText is a text in a Policy.
type policyText struct {
	name, value string
	required    string // the text that is meant; empty for a text that may be left out
	most        int    // bytes
	lines       bool   // it may have several
}

func validateTexts(path *field.Path, texts []policyText) (errs field.ErrorList) {
	for _, text := range texts {
		at, blank := path.Child(text.name), strings.TrimSpace(text.value) == ""
		switch {
		case blank && text.required != "":
			errs = append(errs, field.Required(at, text.required))
		case blank && text.value != "":
			errs = append(errs, field.Invalid(at, text.value, "must not be blank"))
		case len(text.value) > text.most:
			errs = append(errs, field.TooLongMaxLength(at, text.value, text.most))
		case !text.lines && strings.ContainsAny(text.value, "\r\n"):
			errs = append(errs, field.Invalid(at, text.value, "must be one line"))
		}
	}
	return errs
}
