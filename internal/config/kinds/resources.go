package kinds

// Group and Version are the parts of APIVersion.
const (
	Group   = "portcullis.dev"
	Version = "v1"
)

// The kinds of webhook configurations in portcullis.dev: documents for the mesh alone, which no API server calls. Their names
// differ from the kinds of admissionregistration.k8s.io, so that a kubectl command which names one never means the other.
const (
	ValidatingHooksKind = "ValidatingHookConfiguration"
	MutatingHooksKind   = "MutatingHookConfiguration"
)

// Resource is a kind as API servers serve it.
type Resource struct {
	// Kind is the kind.
	Kind string
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
		{Kind: ValidatingHooksKind, Plural: "validatinghookconfigurations", Short: []string{"vhook"}},
		{Kind: MutatingHooksKind, Plural: "mutatinghookconfigurations", Short: []string{"mhook"}},
		{Kind: PolicyParamsKind, Plural: "policyparams", Short: []string{"pparams"}},
		{Kind: PolicyKind, Plural: "policies", Short: []string{"ppolicy"}},
		{Kind: InitializersKind, Plural: "initializerconfigurations", Short: []string{"initconf"}},
	}
}
