package kinds

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// HookRouteKind is the kind of a HookRoute.
const HookRouteKind = "HookRoute"

// Bounds of HookRouteSpec.Timeout. The upper one is that of timeoutSeconds in admissionregistration.k8s.io/v1.
const (
	MinTimeout = time.Millisecond
	MaxTimeout = 30 * time.Second
)

// HookRoute says how a hook is called and who may serve it. A hook without one is the JSON webhook that its
// clientConfig describes.
type HookRoute struct {
	TypeMeta `json:",inline"`
	// Metadata names the route. The name has no meaning beyond that.
	Metadata Metadata `json:"metadata"`
	// Spec is the route.
	Spec HookRouteSpec `json:"spec"`
}

// HookRouteSpec is the route of one hook, or of all hooks of a configuration.
type HookRouteSpec struct {
	// Configuration is metadata.name of the ValidatingWebhookConfiguration or MutatingWebhookConfiguration.
	Configuration string `json:"configuration"`
	// Hook is webhooks[].name. Empty means every hook of the configuration that no other route names.
	Hook string `json:"hook,omitempty"`
	// Stage tells apart two configurations of the same name. Empty means whichever kind of configuration has the name.
	Stage Stage `json:"stage,omitempty"`
	// Stream, if present, means that hosts serve the hook over streams that they dialled. Absent means that the hook is
	// the JSON webhook of its clientConfig.
	Stream *Stream `json:"stream,omitempty"`
	// Hosts are the identities that may serve the hook over streams: the first URI in a host's certificate, else its
	// common name. Empty means nobody.
	Hosts []string `json:"hosts,omitempty"`
	// Clusters are the clusters whose reviews the hook sees. Empty means all.
	Clusters []string `json:"clusters,omitempty"`
	// Timeout bounds one call, as Go writes durations ("250ms"). Empty means the hook's timeoutSeconds.
	Timeout string `json:"timeout,omitempty"`
}

// Stream is how a hook is served over host streams. Its presence is all there is to say today.
type Stream struct{}

// Stage is a stage of admission as documents write it.
type Stage string

// The stages that a hook can belong to.
const (
	StageMutate   Stage = "mutate"
	StageValidate Stage = "validate"
)

// Deadline is Timeout as a duration; 0 means the hook's own. The route must be valid.
func (s *HookRouteSpec) Deadline() time.Duration {
	d, err := time.ParseDuration(s.Timeout)
	if err != nil {
		return 0
	}
	return d
}

// Validate returns what is wrong with the route, with paths from the top of the document.
func (r *HookRoute) Validate() field.ErrorList {
	errs := r.Metadata.validate(field.NewPath("metadata"))
	spec := field.NewPath("spec")
	errs = append(errs, validateName(r.Spec.Configuration, spec.Child("configuration"))...)
	if r.Spec.Hook != "" {
		errs = append(errs, validation.IsFullyQualifiedName(spec.Child("hook"), r.Spec.Hook)...)
	}
	if s := r.Spec.Stage; s != "" && s != StageMutate && s != StageValidate {
		errs = append(errs, notSupported(spec.Child("stage"), s, StageMutate, StageValidate))
	}
	if r.Spec.Stream == nil && len(r.Spec.Hosts) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("hosts"), "hosts serve streams only: add `stream: {}`, or remove the hosts"))
	}
	errs = append(errs, validateIdentities(r.Spec.Hosts, spec.Child("hosts"))...)
	errs = append(errs, validateNames(r.Spec.Clusters, spec.Child("clusters"))...)
	return append(errs, validateTimeout(r.Spec.Timeout, spec.Child("timeout"))...)
}

func validateTimeout(timeout string, path *field.Path) field.ErrorList {
	if timeout == "" {
		return nil
	}
	d, err := time.ParseDuration(timeout)
	if err != nil {
		return field.ErrorList{field.Invalid(path, timeout, `must be a number with a unit, for example "250ms" or "2s"`)}
	}
	if d < MinTimeout || d > MaxTimeout {
		return field.ErrorList{field.Invalid(path, timeout, "must be between "+MinTimeout.String()+" and "+MaxTimeout.String())}
	}
	return nil
}
