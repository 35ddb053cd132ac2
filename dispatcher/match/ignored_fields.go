package match

import (
	"cmp"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// ignoredFields reports the fields of a route that have no effect on the hook, and the side effects that a hook has even in shadow.
func (b *RouteBinding) ignoredFields(h *Hook) []Finding {
	r, effects := &b.Route, h.SideEffects
	validating := h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE
	harmless := effects == admissionregistrationv1.SideEffectClassNone
	var findings []Finding
	say := func(s Severity, code, field, message string, args ...any) {
		message = fmt.Sprintf("hook %q ", h.ID.Name) + fmt.Sprintf(message, args...)
		findings = append(findings, b.finding(s, code, " spec."+field, message))
	}
	if h.Policy != nil {
		if r.Stream || len(r.Hosts) > 0 || r.Timeout > 0 || r.Speculate || r.Hedge.Enabled {
			say(SeverityWarning, CodeNoEffect, "configuration",
				"is a policy, which the mesh judges itself: clusters and shadow of its route have an effect, and no other field")
		}
		return findings
	}
	const inShadow = "is in shadow, and no review waits for it: this has no effect"
	switch {
	case !r.Speculate:
	case h.Initializes():
		say(SeverityWarning, CodeNoEffect, "speculate", "initializes, and the object is staged for one initializer at a time: this has no effect")
	case validating:
		say(SeverityWarning, CodeNoEffect, "speculate", "validates, and such hooks are called at the same time anyway: this has no effect")
	case r.Shadow:
		say(SeverityWarning, CodeNoEffect, "speculate", inShadow)
	case !r.Stream:
		say(SeverityWarning, CodeNoEffect, "speculate", "is called over HTTPS, and the load of its webhook is unknown: this has no effect")
	case !harmless:
		say(SeverityWarning, CodeNoEffect, "speculate", "is never called ahead of others%s", unlessNone(effects))
	}
	switch {
	case !r.Hedge.Enabled:
	case h.Initializes():
		say(SeverityWarning, CodeNoEffect, "hedge", "initializes, and no two replicas take the same object: this has no effect")
	case r.Shadow:
		say(SeverityWarning, CodeNoEffect, "hedge", inShadow)
	case !harmless:
		say(SeverityWarning, CodeNoEffect, "hedge", "is never asked twice%s", unlessNone(effects))
	}
	switch {
	case !r.AllDenials:
	case h.Initializes():
		say(SeverityWarning, CodeNoEffect, "allDenials", "initializes, and the first such hook that denies ends the review: this has no effect")
	case !validating:
		say(SeverityWarning, CodeNoEffect, "allDenials", "mutates, and the first such hook that denies ends the review: this has no effect")
	case r.Shadow:
		say(SeverityWarning, CodeNoEffect, "allDenials", inShadow)
	}
	findings = append(findings, b.ignoredOfInitializers(h)...)
	if r.Shadow && !harmless {
		say(SeverityInfo, CodeSideEffects, "shadow", "is called in shadow too, and has its side effects (sideEffects: %s)", written(effects))
	}
	return findings
}

// ignoredOfInitializers reports fields that only initializers have, on another hook, and a controller in shadow.
func (b *RouteBinding) ignoredOfInitializers(h *Hook) (findings []Finding) {
	say := func(field, message string) {
		findings = append(findings, b.finding(SeverityWarning, CodeNoEffect, " spec."+field, fmt.Sprintf("hook %q ", h.ID.Name)+message))
	}
	const noInitializer = "is no initializer, and only these have an order of their own: this has no effect"
	if len(b.Route.After) > 0 && !h.Initializes() {
		say("after", noInitializer)
	}
	if len(b.Route.Before) > 0 && !h.Initializes() {
		say("before", noInitializer)
	}
	if len(b.Route.HostClusters) > 0 && !h.Initializes() {
		say("hostClusters", "is no initializer, and only these leave Pods of their hosts alone: this has no effect")
	}
	switch {
	case !b.Route.Parallel:
	case !h.Initializes():
		say("parallel", "is no initializer: this has no effect")
	case !b.Route.Stream:
		say("parallel", "is an initializer of a controller, which acts when its name is the first of those that are pending: this has no effect; add `stream: {}`")
	case b.Route.Shadow:
		say("parallel", "is in shadow, and no review waits for it: this has no effect")
	}
	if b.Route.Shadow && !b.Route.Stream && h.Initializes() {
		say("shadow", "is in shadow, and only hosts can be asked without an effect: it is never asked; add `stream: {}`")
	}
	return findings
}

// unlessNone is the reason that a field has no effect on a hook with side effects.
func unlessNone(effects admissionregistrationv1.SideEffectClass) string {
	if effects == admissionregistrationv1.SideEffectClassNoneOnDryRun {
		return " but in dry runs, since its sideEffects are NoneOnDryRun and not None"
	}
	return fmt.Sprintf(", since its sideEffects are %s and not None: this has no effect", written(effects))
}

func written(effects admissionregistrationv1.SideEffectClass) admissionregistrationv1.SideEffectClass {
	return cmp.Or(effects, "not declared")
}
