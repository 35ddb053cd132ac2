package match

import (
	"fmt"
	"slices"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// routes finds the route of a hook, and remembers which bindings were used.
type routes struct {
	bindings []RouteBinding
	byKey    map[routeKey]int
	used     []bool
}

// routeKey is what a binding names. hook is empty and stage is unspecified where it leaves them open.
type routeKey struct {
	configuration, hook string
	stage               admissionv1.Stage
}

// newRoutes files bindings and reports those that say what an earlier one has said.
func newRoutes(bindings []RouteBinding) (*routes, []Finding) {
	r := &routes{bindings: bindings, byKey: make(map[routeKey]int, len(bindings)), used: make([]bool, len(bindings))}
	var findings []Finding
	for i, b := range bindings {
		k := routeKey{b.Configuration, b.Hook, b.Stage}
		first, taken := r.byKey[k]
		if !taken {
			r.byKey[k] = i
			continue
		}
		r.used[i] = true
		findings = append(findings, b.finding(SeverityError, CodeRouteConflict, "",
			fmt.Sprintf("HookRoute %q routes the same hooks and counts; remove one of the two", bindings[first].Name)))
	}
	return r, findings
}

// of returns the binding that names most of a hook; nil when none names it.
func (r *routes) of(id HookID) *RouteBinding {
	for _, k := range keysTo(id) {
		if i, ok := r.byKey[k]; ok {
			r.used[i] = true
			return &r.bindings[i]
		}
	}
	return nil
}

// keysTo are what can name a hook, the most precise first.
func keysTo(id HookID) [4]routeKey {
	return [...]routeKey{
		{id.Configuration, id.Name, id.Stage},
		{id.Configuration, id.Name, admissionv1.Stage_STAGE_UNSPECIFIED},
		{id.Configuration, "", id.Stage},
		{id.Configuration, "", admissionv1.Stage_STAGE_UNSPECIFIED},
	}
}

// unused reports the bindings that no hook has asked for, and why none has.
func (r *routes) unused(hooks []*Hook) []Finding {
	if !slices.Contains(r.used, false) {
		return nil
	}
	named := map[routeKey]bool{}
	for _, h := range hooks {
		for _, k := range keysTo(h.ID) {
			named[k] = true
		}
	}
	var findings []Finding
	for i := range r.bindings {
		if b := &r.bindings[i]; !r.used[i] {
			findings = append(findings, b.unused(named))
		}
	}
	return findings
}

// unused says why no hook has asked for the binding, given what can be named.
func (b *RouteBinding) unused(named map[routeKey]bool) Finding {
	k := routeKey{b.Configuration, b.Hook, b.Stage}
	anyStage := routeKey{b.Configuration, b.Hook, admissionv1.Stage_STAGE_UNSPECIFIED}
	switch {
	case named[k]:
		return b.finding(SeverityWarning, CodeRouteOverridden, "",
			"every hook that it names has a more precise HookRoute, so that this one says nothing: remove it")
	case !named[routeKey{configuration: b.Configuration}]:
		return b.finding(SeverityWarning, CodeRouteUnused, " spec.configuration",
			fmt.Sprintf("there is no webhook configuration %q with a hook: mend the name, or remove the route", b.Configuration))
	case named[anyStage]:
		return b.finding(SeverityWarning, CodeRouteUnused, " spec.stage",
			"the hooks that it names are of the other stage: mend the stage, or leave it out")
	}
	return b.finding(SeverityWarning, CodeRouteUnused, " spec.hook",
		fmt.Sprintf("webhook configuration %q has no hook %q: mend the name, or remove the route", b.Configuration, b.Hook))
}

func (b *RouteBinding) finding(s Severity, code, field, message string) Finding {
	return Finding{Severity: s, Code: code, Source: b.Source, Path: "HookRoute/" + b.Name + field, Message: message}
}
