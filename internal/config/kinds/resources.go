package kinds

import (
	"cmp"
	"slices"
)

// Group and Version are the parts of APIVersion.
const (
	Group   = "portcullis.dev"
	Version = "v1"
)

// The kinds of admissionregistration.k8s.io/v1 under other names: documents for the mesh alone, which no API server calls or evaluates. The
// names differ, so that a kubectl command which names one kind never means the other.
const (
	ValidatingHooksKind             = "ValidatingHookConfiguration"
	MutatingHooksKind               = "MutatingHookConfiguration"
	ValidatingHookPolicyKind        = "ValidatingHookPolicy"
	ValidatingHookPolicyBindingKind = "ValidatingHookPolicyBinding"
	MutatingHookPolicyKind          = "MutatingHookPolicy"
	MutatingHookPolicyBindingKind   = "MutatingHookPolicyBinding"
)

// Resource is a kind as API servers serve it.
type Resource struct {
	// Kind is the kind.
	Kind string
	// Kubernetes is the kind of admissionregistration.k8s.io/v1 that a document of this kind counts as; empty for a kind of its own.
	Kubernetes string
	// Plural names the resource in paths.
	Plural string
	// Short are short names for kubectl.
	Short []string
}

// Resources are all kinds of this group. Those that name others come after them: hooks stand behind their routes.
func Resources() []Resource {
	return []Resource{
		{Kind: ClusterKind, Plural: "clusters", Short: []string{"pcluster"}},
		{Kind: RoleKind, Plural: "roles", Short: []string{"prole"}},
		{Kind: HookRouteKind, Plural: "hookroutes", Short: []string{"hroute", "hr"}},
		{ValidatingHooksKind, "ValidatingWebhookConfiguration", "validatinghookconfigurations", []string{"vhook"}},
		{MutatingHooksKind, "MutatingWebhookConfiguration", "mutatinghookconfigurations", []string{"mhook"}},
		{Kind: PolicyParamsKind, Plural: "policyparams", Short: []string{"pparams"}},
		{Kind: PolicyKind, Plural: "policies", Short: []string{"ppolicy"}},
		{ValidatingHookPolicyKind, "ValidatingAdmissionPolicy", "validatinghookpolicies", []string{"vhpolicy"}},
		{MutatingHookPolicyKind, "MutatingAdmissionPolicy", "mutatinghookpolicies", []string{"mhpolicy"}},
		{ValidatingHookPolicyBindingKind, "ValidatingAdmissionPolicyBinding", "validatinghookpolicybindings", []string{"vhbinding"}},
		{MutatingHookPolicyBindingKind, "MutatingAdmissionPolicyBinding", "mutatinghookpolicybindings", []string{"mhbinding"}},
		{Kind: InitializersKind, Plural: "initializerconfigurations", Short: []string{"initconf"}},
	}
}

// Counted is the kind that documents of the kind count as.
func (r Resource) Counted() string { return cmp.Or(r.Kubernetes, r.Kind) }

// ResourceOf is the kind of this group whose documents count as a kind. It is the zero Resource if there is none.
func ResourceOf(counted string) Resource {
	all := Resources()
	if i := slices.IndexFunc(all, func(r Resource) bool { return r.Counted() == counted }); i >= 0 {
		return all[i]
	}
	return Resource{}
}
