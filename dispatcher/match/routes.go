package match

import (
	"fmt"

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
	for _, k := range [...]routeKey{
		{id.Configuration, id.Name, id.Stage},
		{id.Configuration, id.Name, admissionv1.Stage_STAGE_UNSPECIFIED},
		{id.Configuration, "", id.Stage},
		{id.Configuration, "", admissionv1.Stage_STAGE_UNSPECIFIED},
	} {
		if i, ok := r.byKey[k]; ok {
			r.used[i] = true
			return &r.bindings[i]
		}
	}
	return nil
}

// unused reports the bindings that no hook has asked for.
func (r *routes) unused() []Finding {
	var findings []Finding
	for i, b := range r.bindings {
		if !r.used[i] {
			findings = append(findings, b.finding(SeverityWarning, CodeRouteUnused, "", "there is no such hook, or every one has a more precise route"))
		}
	}
	return findings
}

func (b *RouteBinding) finding(s Severity, code, field, message string) Finding {
	return Finding{Severity: s, Code: code, Source: b.Source, Path: "HookRoute/" + b.Name + field, Message: message}
}
