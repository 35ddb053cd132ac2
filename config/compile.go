package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Compile makes a snapshot of valid objects, each of which stands in objects once, and returns what the writers of the
// documents have to know about how they fit together. It is pure.
func Compile(revision string, objects []Object) (*match.Snapshot, Problems) {
	return Recompile(nil, revision, objects)
}

// Recompile is Compile. What is costly to compile is taken from last, a snapshot from before, where it has not changed since.
func Recompile(last *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems) {
	in := match.Input{Revision: revision, Last: last}
	byKey := make(map[Key]*Object, len(objects))
	var problems Problems
	for i := range objects {
		o := &objects[i]
		byKey[o.Key] = o
		switch {
		case o.Route != nil:
			in.Routes = append(in.Routes, binding(o))
		case o.Cluster != nil:
			problems = append(problems, lonely(o)...)
		case o.Role != nil:
		default:
			in.Objects = append(in.Objects, match.Object{Source: o.Origin(), Pending: o.Pending, Validating: o.Validating, Mutating: o.Mutating})
		}
	}
	snapshot, findings := match.Compile(in)
	for _, f := range findings {
		problems = append(problems, problemOf(f, byKey))
	}
	return snapshot, problems.sort()
}

// sortedObjects are the objects in the order of their keys, so that equal sets compile to equal snapshots.
func sortedObjects(objects map[Key]Object) []Object {
	sorted := make([]Object, 0, len(objects))
	for _, key := range slices.SortedFunc(maps.Keys(objects), Key.compare) {
		sorted = append(sorted, objects[key])
	}
	return sorted
}

// binding is a HookRoute as match takes it.
func binding(o *Object) match.RouteBinding {
	spec := &o.Route.Spec
	stages := map[kinds.Stage]admissionv1.Stage{
		kinds.StageMutate: admissionv1.Stage_STAGE_MUTATE, kinds.StageValidate: admissionv1.Stage_STAGE_VALIDATE,
	}
	return match.RouteBinding{
		Name: o.Name, Source: o.Origin(),
		Configuration: spec.Configuration, Hook: spec.Hook, Stage: stages[spec.Stage],
		Route: match.Route{
			Stream: spec.Stream != nil, Hosts: spec.Hosts, Immediate: spec.Rotation == kinds.RotationImmediate, Clusters: spec.Clusters, Timeout: spec.Deadline(),
			Speculate: spec.Speculate, Hedge: hedge(spec.Hedge), Shadow: spec.Shadow, AllDenials: spec.AllDenials,
		},
	}
}

// hedge is how a route hedges calls, as match takes it.
func hedge(h *kinds.Hedge) match.Hedge {
	if h == nil {
		return match.Hedge{}
	}
	hedge := match.Hedge{Enabled: true, After: h.Delay()}
	if h.Percent != nil {
		hedge.Percent = int(*h.Percent)
	}
	return hedge
}

// lonely warns about a cluster that nobody may send reviews for.
func lonely(o *Object) Problems {
	if len(o.Cluster.Spec.Identities) > 0 {
		return nil
	}
	const message = "nobody may send reviews of this cluster: name the identities of its API servers"
	return Problems{at(o, match.SeverityWarning, CodeNoCaller, "spec.identities", message)}
}

// ProblemsOf are findings as problems of the objects that they are about, with their lines where one of objects is meant.
func ProblemsOf(findings []match.Finding, objects []Object) Problems {
	byKey := make(map[Key]*Object, len(objects))
	for i := range objects {
		byKey[objects[i].Key] = &objects[i]
	}
	problems := make(Problems, 0, len(findings))
	for _, f := range findings {
		problems = append(problems, problemOf(f, byKey))
	}
	return problems
}

// problemOf is a finding of match as a problem of the document that it is about.
func problemOf(f match.Finding, byKey map[Key]*Object) Problem {
	name, path, _ := strings.Cut(f.Path, " ")
	kind, object, _ := strings.Cut(name, "/")
	key := Key{Kind: kind, Name: object}
	if o, ok := byKey[key]; ok {
		if o.APIVersion == admissionregistrationV1alpha1 {
			path = externalField(path)
		}
		return at(o, f.Severity, f.Code, path, f.Message)
	}
	return Problem{Severity: f.Severity, Code: f.Code, File: f.Source, Key: key, Field: path, Message: f.Message}
}

// at is a problem of an object.
func at(o *Object, severity match.Severity, code, field, message string) Problem {
	return Problem{
		Severity: severity, Code: code, Source: o.Source, File: o.File, Line: o.lineOf(field), Kind: o.WrittenKind(), Key: o.Key, Field: field, Message: message,
	}
}
