package match

import (
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// DefaultTimeout is the time that a hook without timeoutSeconds gets: the default of admissionregistration.k8s.io/v1.
const DefaultTimeout = 10 * time.Second

// HookID identifies a hook within a snapshot, and the same hook in the next snapshot. It is comparable.
type HookID struct {
	// Scope is the cluster that the configuration was written for; empty for all clusters.
	Scope string
	// Stage is STAGE_INITIALIZE, STAGE_MUTATE or STAGE_VALIDATE.
	Stage admissionv1.Stage
	// Configuration is metadata.name of the configuration; of a policy KIND/NAME.
	Configuration string
	// Name is webhooks[].name, or the name of the policy. Names are not unique within a configuration.
	Name string
	// Index counts earlier hooks of the same name in the same configuration: 0 unless a name is used twice
	// (SEMANTICS C1). It is not the position, so that a hook keeps its identity when another is put before it.
	Index int
}

// Pending identifies the hook, an initializer, in the list of those that have yet to act on a staged object: CONFIGURATION/NAME. Two authors may
// give their initializers one name, which then does not identify either.
func (id HookID) Pending() string { return id.Configuration + "/" + id.Name }

// Route is how a hook is called. The zero Route is a JSON webhook called as the hook's ClientConfig says.
type Route struct {
	// Stream is true when hosts serve the hook over streams that they dialled.
	Stream bool
	// Hosts are the identities granted to serve the hook over streams; empty means none.
	Hosts []string
	// Authorities may vouch for Hosts, as identity.Grant has them; empty means every authority that is trusted.
	Authorities []string
	// Immediate puts the hook in rotation without a probe, whatever Object.Pending says.
	Immediate bool
	// Clusters are the clusters whose reviews the hook sees; empty means all.
	Clusters []string
	// HostClusters are the clusters where the hosts of an initializer run as Pods, which it is not called for; empty means none.
	HostClusters []string
	// Timeout bounds one call; 0 means the hook's timeoutSeconds.
	Timeout time.Duration
	// Speculate allows calls before earlier mutating hooks have answered.
	Speculate bool
	// Hedge decides whether a call that has not answered goes to a second replica too.
	Hedge Hedge
	// Shadow makes the verdict decide nothing: it is only recorded.
	Shadow bool
	// AllDenials asks for the denials of all validating hooks in one message.
	AllDenials bool
	// After are the names of initializers that act before the hook, which is an initializer. Where an order has cycles, it is not kept.
	After []string
	// Before are the names of initializers that act after the hook.
	Before []string
	// Parallel lets the hook, which is an initializer, act at the same time as those next to it that are parallel too.
	Parallel bool
}

// Hedge decides when a call of a hook without side effects that has not answered goes to a second replica too, so that one
// slow replica does not make reviews slow. The first verdict counts.
type Hedge struct {
	// Enabled is false unless the route asks for it.
	Enabled bool
	// After is the delay; 0 means the 95th percentile of the hook's latest calls.
	After time.Duration
	// Percent is the most extra calls, of all calls of the hook; 0 means 5.
	Percent int
}

// Hook is one compiled webhook of a configuration. It is immutable and may be read from any goroutine; its slices and
// pointers are never written. Snapshots in which it is the same, at the same place, share it.
type Hook struct {
	Criteria

	// ID identifies the hook.
	ID HookID
	// FailurePolicy decides the effect of a failed call; Fail when the configuration does not say, and Ignore in shadow, whatever it says.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Timeout bounds one call: the route's timeout, else timeoutSeconds, else DefaultTimeout.
	Timeout time.Duration
	// SideEffects is the declaration of the hook; empty without one, which fails calls of dry runs (SEMANTICS C28).
	SideEffects admissionregistrationv1.SideEffectClass
	// Reinvocation is Never when the configuration does not say, for validating hooks, and for those in shadow.
	Reinvocation admissionregistrationv1.ReinvocationPolicyType
	// Route is how the hook is called.
	Route Route
	// RoutedBy names the HookRoutes that Route comes from: none, one, or several that conflict.
	RoutedBy []string
	// Pending is true until a host has answered the probe of a new hook. The hook is not called; requests that it would get are counted and
	// annotated. A hook without a stream, or whose route says Immediate, is never pending.
	Pending bool
	// ClientConfig is where the JSON webhook is; empty for a hook that has only ever been a stream.
	ClientConfig admissionregistrationv1.WebhookClientConfig
	// Batch is the same number for initializers that act at the same time, which are next to each other; 0 for a hook that acts alone.
	Batch int
	// Policy judges the requests of the hook in this process; nil for a hook that is called.
	Policy Policy
	// Except are clusters of its route whose reviews the hook does not see.
	Except []string
	// ReviewVersions are the AdmissionReview versions that the JSON webhook understands, best first.
	ReviewVersions []string

	ordinal         int         // position in Snapshot.Hooks
	position        int         // in its configuration
	conditions      *conditions // nil without conditions
	entryNamespaces selector
	fingerprint     fingerprint
}

// Rules are webhooks[].rules, as written. The caller must not change them.
func (h *Hook) Rules() []admissionregistrationv1.RuleWithOperations { return h.rules }

// EntryNamespaces select the namespaces whose requests an entry has to bring for the hook: its namespaceSelector, together with the namespaceSelector
// of all bindings of a policy. It is nil when there is none. The caller must not change it.
func (h *Hook) EntryNamespaces() *metav1.LabelSelector { return h.entryNamespaces.source }

// ObjectSelector is webhooks[].objectSelector, as written; nil when there is none. The caller must not change it.
func (h *Hook) ObjectSelector() *metav1.LabelSelector { return h.objectSelector.source }

// MatchConditions are webhooks[].matchConditions, as written. The caller must not change them.
func (h *Hook) MatchConditions() []admissionregistrationv1.MatchCondition {
	if h.conditions == nil {
		return nil
	}
	return h.conditions.written
}

// Path names a field of the hook as findings do, for example
// "ValidatingWebhookConfiguration/imagepolicy webhooks[0].rules". A policy has its own paths. field begins with a dot, or is empty.
func (h *Hook) Path(field string) string {
	if h.Policy != nil {
		return fmt.Sprintf("%s spec%s", objectKey{h.ID.Scope, h.ID.Stage, h.ID.Configuration}, policyField(field))
	}
	return fmt.Sprintf("%s webhooks[%d]%s", objectKey{h.ID.Scope, h.ID.Stage, h.ID.Configuration}, h.position, field)
}

// Initializes reports whether the hook is an initializer. Initializers are called for a CREATE before the mutating hooks, with the object staged.
func (h *Hook) Initializes() bool { return h.ID.Stage == admissionv1.Stage_STAGE_INITIALIZE }

// WithoutSideEffects reports whether the hook may see the same request twice, as it declares.
func (h *Hook) WithoutSideEffects(r *admissionv1.AdmissionRequest) bool {
	return h.SideEffects == admissionregistrationv1.SideEffectClassNone ||
		h.SideEffects == admissionregistrationv1.SideEffectClassNoneOnDryRun && r.GetDryRun()
}

// ActsWith reports whether two hooks of one snapshot are initializers that act at the same time, on the same object.
func (h *Hook) ActsWith(other *Hook) bool { return h.Batch != 0 && h.Batch == other.Batch }

// EntryStage is the stage of the reviews, and so of the entries of a cluster, that call the hook first: the hook's stage, but STAGE_MUTATE for an
// initializer.
func (h *Hook) EntryStage() admissionv1.Stage {
	if h.Initializes() {
		return admissionv1.Stage_STAGE_MUTATE
	}
	return h.ID.Stage
}

// HasHosts reports whether hosts serve the hook over streams, or controllers act for an initializer: else it is a JSON webhook.
func (h *Hook) HasHosts() bool { return h.Route.Stream || h.Initializes() }

// Decides reports whether a review may depend on the hook: hooks in shadow and pending hooks decide nothing.
func (h *Hook) Decides() bool { return !h.Route.Shadow && !h.Pending }

// Serves reports whether the hook sees reviews of cluster at all.
func (h *Hook) Serves(cluster string) bool {
	if h.ID.Scope != "" && h.ID.Scope != cluster || slices.Contains(h.Except, cluster) {
		return false
	}
	return len(h.Route.Clusters) == 0 || slices.Contains(h.Route.Clusters, cluster)
}

// StageName is a stage as the paths of the bridge and documents spell it; empty for a value that is none.
func StageName(s admissionv1.Stage) string {
	switch s {
	case admissionv1.Stage_STAGE_MUTATE:
		return "mutate"
	case admissionv1.Stage_STAGE_VALIDATE:
		return "validate"
	case admissionv1.Stage_STAGE_REINVOKE:
		return "reinvoke"
	case admissionv1.Stage_STAGE_ADMIT:
		return "admit"
	case admissionv1.Stage_STAGE_INITIALIZE:
		return "initialize"
	case admissionv1.Stage_STAGE_UNSPECIFIED:
	}
	return ""
}
