package match

import (
	"cmp"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// ignoredFields reports what a route asks of a hook that the hook cannot give, and what being in shadow does not keep from
// happening.
func (b *RouteBinding) ignoredFields(h *Hook) []Finding {
	r, effects := &b.Route, h.SideEffects
	validating := h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE
	harmless := effects == admissionregistrationv1.SideEffectClassNone
	var findings []Finding
	say := func(s Severity, code, field, message string, args ...any) {
		message = fmt.Sprintf("hook %q ", h.ID.Name) + fmt.Sprintf(message, args...)
		findings = append(findings, b.finding(s, code, " spec."+field, message))
	}
	const inShadow = "is in shadow, and nobody waits for it: this has no effect"
	switch {
	case !r.Speculate:
	case validating:
		say(SeverityWarning, CodeNoEffect, "speculate", "validates, and such hooks are called at the same time anyway: this has no effect")
	case r.Shadow:
		say(SeverityWarning, CodeNoEffect, "speculate", inShadow)
	case !r.Stream:
		say(SeverityWarning, CodeNoEffect, "speculate", "is called over HTTPS, and nobody knows how busy its webhook is: this has no effect")
	case !harmless:
		say(SeverityWarning, CodeNoEffect, "speculate", "is never called ahead of others%s", unlessNone(effects))
	}
	switch {
	case !r.Hedge.Enabled:
	case r.Shadow:
		say(SeverityWarning, CodeNoEffect, "hedge", inShadow)
	case !harmless:
		say(SeverityWarning, CodeNoEffect, "hedge", "is never asked twice%s", unlessNone(effects))
	}
	switch {
	case !r.AllDenials:
	case !validating:
		say(SeverityWarning, CodeNoEffect, "allDenials", "mutates, and the first such hook that denies ends the review: this has no effect")
	case r.Shadow:
		say(SeverityWarning, CodeNoEffect, "allDenials", inShadow)
	}
	if r.Shadow && !harmless {
		say(SeverityInfo, CodeSideEffects, "shadow", "is called in shadow too, and has its side effects (sideEffects: %s)", written(effects))
	}
	return findings
}

// unlessNone is why a hook with side effects does not get what others do.
func unlessNone(effects admissionregistrationv1.SideEffectClass) string {
	if effects == admissionregistrationv1.SideEffectClassNoneOnDryRun {
		return " but in dry runs, since its sideEffects are NoneOnDryRun and not None"
	}
	return fmt.Sprintf(", since its sideEffects are %s and not None: this has no effect", written(effects))
}

func written(effects admissionregistrationv1.SideEffectClass) admissionregistrationv1.SideEffectClass {
	return cmp.Or(effects, "not declared")
}
