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

// newRoutes files bindings. Those of one key become one binding, and a conflict that is reported.
func newRoutes(bindings []RouteBinding) (*routes, []Finding) {
	r := &routes{bindings: make([]RouteBinding, 0, len(bindings)), byKey: make(map[routeKey]int, len(bindings))}
	conflicts := map[int]conflict{} // by position in r.bindings
	for _, b := range bindings {
		k := routeKey{b.Configuration, b.Hook, b.Stage}
		i, taken := r.byKey[k]
		switch {
		case !taken:
			r.byKey[k] = len(r.bindings)
			r.bindings = append(r.bindings, b)
		case conflicts[i] == nil:
			conflicts[i] = conflict{r.bindings[i], b}
		default:
			conflicts[i] = append(conflicts[i], b)
		}
	}
	r.used = make([]bool, len(r.bindings))
	var findings []Finding
	for i, c := range conflicts {
		c.sort()
		r.bindings[i], r.used[i] = c.binding(), true
		findings = append(findings, c.findings()...)
	}
	slices.SortFunc(findings, Finding.compare)
	return r, findings
}

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
	slices.SortFunc(findings, Finding.compare)
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
