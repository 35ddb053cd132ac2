package match

import (
	"fmt"
	"maps"
	"slices"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// routes finds the route of a hook, and remembers which bindings were used.
type routes map[routeKey]*filedBinding

// filedBinding stands for all bindings of one key.
type filedBinding struct {
	RouteBinding

	used bool // by a hook, or reported as a conflict
}

// routeKey is the key of a binding. hook is empty and stage is unspecified where it leaves them open.
type routeKey struct {
	configuration, hook string
	stage               admissionv1.Stage
}

func (b *RouteBinding) key() routeKey { return routeKey{b.Configuration, b.Hook, b.Stage} }

// newRoutes files bindings. Bindings with the same key become one binding, and a finding reports the conflict.
func newRoutes(bindings []RouteBinding) (routes, []Finding) {
	byKey := make(map[routeKey]conflict, len(bindings))
	for _, b := range bindings {
		byKey[b.key()] = append(byKey[b.key()], b)
	}
	r := make(routes, len(byKey))
	var findings []Finding
	for k, c := range byKey {
		if len(c) == 1 {
			c[0].names = []string{c[0].Name}
			r[k] = &filedBinding{RouteBinding: c[0]}
			continue
		}
		c.sort()
		r[k] = &filedBinding{RouteBinding: c.binding(), used: true}
		findings = append(findings, c.findings()...)
	}
	slices.SortFunc(findings, Finding.compare)
	return r, findings
}

// of returns the binding that names most of a hook; nil when none names it.
func (r routes) of(id HookID) *RouteBinding {
	for _, k := range keysTo(id) {
		if b := r[k]; b != nil {
			b.used = true
			return &b.RouteBinding
		}
	}
	return nil
}

// keysTo are the keys of all bindings that may name a hook, the most precise first.
func keysTo(id HookID) [4]routeKey {
	return [...]routeKey{
		{id.Configuration, id.Name, id.Stage},
		{id.Configuration, id.Name, admissionv1.Stage_STAGE_UNSPECIFIED},
		{id.Configuration, "", id.Stage},
		{id.Configuration, "", admissionv1.Stage_STAGE_UNSPECIFIED},
	}
}

// unused reports the bindings that no hook has asked for, and why none has.
func (r routes) unused(hooks []*Hook) []Finding {
	unused := slices.DeleteFunc(slices.Collect(maps.Values(r)), func(b *filedBinding) bool { return b.used })
	if len(unused) == 0 {
		return nil
	}
	named := map[routeKey]bool{}
	for _, h := range hooks {
		for _, k := range keysTo(h.ID) {
			named[k] = true
		}
	}
	var findings []Finding
	for _, b := range unused {
		findings = append(findings, b.RouteBinding.unused(named))
	}
	slices.SortFunc(findings, Finding.compare)
	return findings
}

// unused returns why no hook has asked for the binding, given the keys that name a hook.
func (b *RouteBinding) unused(named map[routeKey]bool) Finding {
	anyStage := routeKey{b.Configuration, b.Hook, admissionv1.Stage_STAGE_UNSPECIFIED}
	switch {
	case named[b.key()]:
		return b.finding(SeverityWarning, CodeRouteOverridden, "",
			"every hook that it names has a more precise HookRoute, so that this one says nothing: remove it")
	case !named[routeKey{configuration: b.Configuration}]:
		return b.finding(SeverityWarning, CodeRouteUnused, " spec.configuration",
			fmt.Sprintf("there is no configuration %q with a hook: mend the name, or remove the route", b.Configuration))
	case named[anyStage]:
		return b.finding(SeverityWarning, CodeRouteUnused, " spec.stage",
			"the hooks that it names are of another stage: mend the stage, or leave it out")
	}
	return b.finding(SeverityWarning, CodeRouteUnused, " spec.hook",
		fmt.Sprintf("configuration %q has no hook %q: mend the name, or remove the route", b.Configuration, b.Hook))
}

func (b *RouteBinding) finding(s Severity, code, field, message string) Finding {
	return Finding{Severity: s, Code: code, Source: b.Source, Path: "HookRoute/" + b.Name + field, Message: message}
}
