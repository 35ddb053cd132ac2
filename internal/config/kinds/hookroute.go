package kinds

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// HookRouteKind is the kind of a HookRoute.
const HookRouteKind = "HookRoute"

// Bounds of HookRouteSpec.Timeout. The upper one is the bound of timeoutSeconds in admissionregistration.k8s.io/v1.
const (
	MinTimeout = time.Millisecond
	MaxTimeout = 30 * time.Second
)

// Bounds of Hedge.After. The upper one is the longest that a call may take.
const (
	MinHedgeAfter = time.Millisecond
	MaxHedgeAfter = MaxTimeout
)

// Bounds of Hedge.Percent. Past half of the calls, hedging is load more than remedy.
const (
	MinHedgePercent = 1
	MaxHedgePercent = 50
)

// MaxOrdered bounds each of HookRouteSpec.After and HookRouteSpec.Before.
const MaxOrdered = 64

// MaxDurationLength bounds the text of each duration, in bytes.
const MaxDurationLength = 64

// HookRoute configures how a hook is called and which identities may serve it. A hook without one is the JSON webhook that its
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
	// Configuration is metadata.name of the ValidatingWebhookConfiguration, MutatingWebhookConfiguration or InitializerConfiguration, or
	// ValidatingAdmissionPolicy/NAME or MutatingAdmissionPolicy/NAME. A policy has clusters and shadow of its route alone.
	Configuration string `json:"configuration"`
	// Hook is webhooks[].name. Empty means every hook of the configuration that no other route names.
	Hook string `json:"hook,omitempty"`
	// Stage tells apart two configurations of the same name. Empty means whichever kind of configuration has the name.
	Stage Stage `json:"stage,omitempty"`
	// Stream, if present, means that hosts serve the hook over streams that they dialled. Absent means that the hook is
	// the JSON webhook of its clientConfig.
	Stream *Stream `json:"stream,omitempty"`
	// Hosts are the identities that may serve the hook over streams: the first URI in a host's certificate, else its common
	// name. Empty means none. The hosts of an initializer (stage: initialize) may also act for it through InitializerService.
	Hosts []string `json:"hosts,omitempty"`
	// Authorities may vouch for Hosts, as the authorities of a ClusterSpec do. Only with Stream, or for an initializer.
	Authorities []string `json:"authorities,omitempty"`
	// Rotation is when a hook that was just created is called for the first time. Empty means RotationAfterProbe. Only with
	// Stream.
	Rotation Rotation `json:"rotation,omitempty"`
	// Clusters are the clusters whose reviews the hook sees. Empty means all.
	Clusters []string `json:"clusters,omitempty"`
	// HostClusters are the clusters where the hosts of an initializer run as Pods; for initializers only. There the initializer does not hold a
	// Pod whose service account is in Hosts, so that the host can start. Empty means none.
	HostClusters []string `json:"hostClusters,omitempty"`
	// Timeout bounds one call, as Go writes durations ("250ms"). Empty means the hook's timeoutSeconds.
	Timeout string `json:"timeout,omitempty"`
	// Speculate allows a mutating hook without side effects to be called before the hooks ahead of it have answered. Its
	// answer counts if none of them changes the object, else it is called again.
	Speculate bool `json:"speculate,omitempty"`
	// Hedge, if present, means that a call which takes long goes to a second replica too, and the first verdict counts.
	// Only with Stream, and only for hooks without side effects.
	Hedge *Hedge `json:"hedge,omitempty"`
	// Shadow means that the hook is called beside the others and decides nothing: its verdicts are only counted.
	Shadow bool `json:"shadow,omitempty"`
	// AllDenials means that a review which meets the hook waits for all validating hooks and names every denial.
	AllDenials bool `json:"allDenials,omitempty"`
	// After are the names of initializers (initializers[].name) that act before this one; for initializers only. Absent means the order of
	// their configurations.
	After []string `json:"after,omitempty"`
	// Before are the names of initializers that act after this one; for initializers only.
	Before []string `json:"before,omitempty"`
	// Parallel lets an initializer act at the same time as those next to it in the order that are parallel too, unless After or Before is about
	// two of them; for initializers with Stream only. A CREATE in which two of them change one field to different values is refused.
	Parallel bool `json:"parallel,omitempty"`
}

// Hedge says when a call goes to a second replica too.
type Hedge struct {
	// After is the delay, as Go writes durations ("20ms"), from MinHedgeAfter to MaxHedgeAfter. Empty means the 95th
	// percentile of the hook's latest calls.
	After string `json:"after,omitempty"`
	// Percent is the most extra calls, of all calls of the hook, from MinHedgePercent to MaxHedgePercent. Absent means 5.
	Percent *int32 `json:"percent,omitempty"`
}

// Stream is how a hook is served over host streams. Its presence is all there is to say today.
type Stream struct{}

// Rotation is when a new hook is called for the first time.
type Rotation string

// The rotations of a new hook.
const (
	// RotationImmediate is at once.
	RotationImmediate Rotation = "Immediate"
	// RotationAfterProbe is when a host has answered that it is ready, for hooks that are created through ConfigService. Other
	// sources do not tell a new hook from an old one: theirs are called at once.
	RotationAfterProbe Rotation = "AfterProbe"
)

// Stage is a stage of admission as documents write it.
type Stage string

// The stages that a hook can belong to.
const (
	StageInitialize Stage = "initialize"
	StageMutate     Stage = "mutate"
	StageValidate   Stage = "validate"
)

// Deadline is Timeout as a duration; 0 means the hook's own. The route must be valid.
func (s *HookRouteSpec) Deadline() time.Duration { return duration(s.Timeout) }

// Delay is After as a duration; 0 means the measured one. The route must be valid.
func (h *Hedge) Delay() time.Duration { return duration(h.After) }

// duration is a valid duration; 0 when there is none.
func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}

// Validate returns the errors of the route, with paths from the top of the document.
func (r *HookRoute) Validate() field.ErrorList {
	errs := r.Metadata.validate(field.NewPath("metadata"))
	spec := field.NewPath("spec")
	configuration := strings.TrimPrefix(strings.TrimPrefix(r.Spec.Configuration, "ValidatingAdmissionPolicy/"), "MutatingAdmissionPolicy/")
	errs = append(errs, validateName(configuration, spec.Child("configuration"))...)
	if r.Spec.Hook != "" {
		errs = append(errs, validation.IsFullyQualifiedName(spec.Child("hook"), r.Spec.Hook)...)
	}
	if s := r.Spec.Stage; s != "" && s != StageInitialize && s != StageMutate && s != StageValidate {
		errs = append(errs, notSupported(spec.Child("stage"), s, StageInitialize, StageMutate, StageValidate))
	}
	controlled := r.Spec.Stage == StageInitialize // perhaps by a controller, which has no stream
	if r.Spec.Stream == nil && !controlled && len(r.Spec.Hosts) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("hosts"),
			"hosts serve streams only: add `stream: {}`, or `stage: initialize` for an initializer, or remove the hosts"))
	}
	if r.Spec.Stream == nil && !controlled && len(r.Spec.Authorities) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("authorities"), "they vouch for hosts, which serve streams only: add `stream: {}`, or remove them"))
	}
	errs = append(errs, r.Spec.validateRotation(spec.Child("rotation"))...)
	errs = append(errs, validateIdentities(r.Spec.Hosts, spec.Child("hosts"))...)
	errs = append(errs, validateAuthorities(r.Spec.Authorities, spec.Child("authorities"))...)
	errs = append(errs, validateNames(r.Spec.Clusters, spec.Child("clusters"))...)
	errs = append(errs, validateNames(r.Spec.HostClusters, spec.Child("hostClusters"))...)
	errs = append(errs, validateOrdered(r.Spec.After, spec.Child("after"))...)
	errs = append(errs, validateOrdered(r.Spec.Before, spec.Child("before"))...)
	errs = append(errs, validateDuration(r.Spec.Timeout, MinTimeout, MaxTimeout, spec.Child("timeout"))...)
	return append(errs, r.Spec.validateHedge(spec.Child("hedge"))...)
}

// validateOrdered checks a list of names of initializers.
func validateOrdered(names []string, path *field.Path) field.ErrorList {
	if len(names) > MaxOrdered {
		return field.ErrorList{field.TooMany(path, len(names), MaxOrdered)}
	}
	errs := validateList(names, path)
	for i, name := range names {
		errs = append(errs, validation.IsFullyQualifiedName(path.Index(i), name)...)
	}
	return errs
}

// validateRotation checks when new hooks are called.
func (s *HookRouteSpec) validateRotation(path *field.Path) field.ErrorList {
	switch {
	case s.Rotation == "":
		return nil
	case s.Rotation != RotationImmediate && s.Rotation != RotationAfterProbe:
		return field.ErrorList{notSupported(path, s.Rotation, RotationImmediate, RotationAfterProbe)}
	case s.Stream == nil:
		return field.ErrorList{field.Forbidden(path, "only hosts answer probes: add `stream: {}`, or remove the rotation")}
	}
	return nil
}

// validateHedge checks how calls are hedged.
func (s *HookRouteSpec) validateHedge(path *field.Path) field.ErrorList {
	if s.Hedge == nil {
		return nil
	}
	var errs field.ErrorList
	if s.Stream == nil {
		errs = append(errs, field.Forbidden(path, "only hosts have other replicas to ask: add `stream: {}`, or remove the hedge"))
	}
	errs = append(errs, validateDuration(s.Hedge.After, MinHedgeAfter, MaxHedgeAfter, path.Child("after"))...)
	if p := s.Hedge.Percent; p != nil && (*p < MinHedgePercent || *p > MaxHedgePercent) {
		errs = append(errs, field.Invalid(path.Child("percent"), *p,
			fmt.Sprintf("must be between %d and %d; remove the hedge to have none", MinHedgePercent, MaxHedgePercent)))
	}
	return errs
}

// validateDuration checks a duration that may be left out.
func validateDuration(text string, least, most time.Duration, path *field.Path) field.ErrorList {
	if text == "" {
		return nil
	}
	if len(text) > MaxDurationLength {
		return field.ErrorList{field.TooLongMaxLength(path, text, MaxDurationLength)}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return field.ErrorList{field.Invalid(path, text, `must be a number with a unit, for example "250ms" or "2s"`)}
	}
	if d < least || d > most {
		return field.ErrorList{field.Invalid(path, text, "must be between "+least.String()+" and "+most.String())}
	}
	return nil
}
