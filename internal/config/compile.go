package config

import (
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Compile makes a snapshot of valid objects, each of which stands in objects once, and returns findings about how the
// documents fit together. It is pure.
func Compile(revision string, objects []Object) (*match.Snapshot, Problems) {
	return Recompile(nil, revision, objects)
}

// Recompile is Compile. It takes the unchanged parts from last, an earlier snapshot.
func Recompile(last *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems) {
	routes := 0
	for i := range objects {
		if objects[i].Route != nil {
			routes++
		}
	}
	in := match.Input{
		Revision: revision, Last: last, Routes: make([]match.RouteBinding, 0, routes), Objects: make([]match.Object, 0, len(objects)-routes),
		Bypasses: map[string]*match.Bypass{},
	}
	var problems Problems
	for i := range objects {
		o := &objects[i]
		switch {
		case o.Route != nil:
			in.Routes = append(in.Routes, binding(o))
		case o.Cluster != nil:
			problems = append(problems, withoutCallers(o)...)
			in.Bypasses[o.Name] = bypass(o.Cluster.Spec.Bypass)
		case o.Role != nil, o.IsPolicy(), o.binds() != "", o.Params != nil:
		default:
			in.Objects = append(in.Objects, match.Object{
				Source: o.Origin(), Digest: o.Digest, Pending: o.Pending, Validating: o.Validating, Mutating: o.Mutating, Conditions: o.Conditions,
				Initializes: o.Initializes(),
			})
		}
	}
	policies, alone := boundPolicies(objects)
	in.Objects, problems = append(in.Objects, policies...), append(problems, alone...)
	snapshot, findings := match.Compile(in)
	return snapshot, append(problems, ProblemsOf(findings, objects)...).Sorted()
}

// SortedObjects returns the objects in the order of their keys, so that equal sets compile to equal snapshots.
func SortedObjects(objects map[Key]Object) []Object {
	sorted := make([]Object, 0, len(objects))
	for _, key := range SortedKeys(objects) {
		sorted = append(sorted, objects[key])
	}
	return sorted
}

// SortedKeys returns the keys in their order.
func SortedKeys[V any](all map[Key]V) []Key {
	keys := slices.AppendSeq(make([]Key, 0, len(all)), maps.Keys(all))
	slices.SortFunc(keys, Key.Compare)
	return keys
}

// binding is a HookRoute as match takes it.
func binding(o *Object) match.RouteBinding {
	spec := &o.Route.Spec
	stages := map[kinds.Stage]admissionv1.Stage{
		kinds.StageInitialize: admissionv1.Stage_STAGE_INITIALIZE,
		kinds.StageMutate:     admissionv1.Stage_STAGE_MUTATE, kinds.StageValidate: admissionv1.Stage_STAGE_VALIDATE,
	}
	return match.RouteBinding{
		Name: o.Name, Source: o.Origin(), Digest: o.Digest,
		Configuration: spec.Configuration, Hook: spec.Hook, Stage: stages[spec.Stage],
		Route: match.Route{
			Stream: spec.Stream != nil, Hosts: spec.Hosts, Authorities: spec.Authorities,
			Immediate: spec.Rotation == kinds.RotationImmediate, Clusters: spec.Clusters, HostClusters: spec.HostClusters,
			Timeout:   spec.Deadline(),
			Speculate: spec.Speculate, Hedge: hedge(spec.Hedge), Shadow: spec.Shadow, AllDenials: spec.AllDenials,
			After: spec.After, Before: spec.Before, Parallel: spec.Parallel,
		},
	}
}

// bypass returns the bypass of a cluster, as match takes it; nil without one.
func bypass(b *kinds.Bypass) *match.Bypass {
	if b == nil {
		return nil
	}
	exempt := &match.Bypass{Namespaces: b.Namespaces, Users: b.UserNames(), Groups: b.Groups}
	for _, r := range b.FailOpen {
		exempt.FailOpen = append(exempt.FailOpen, admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: r.APIGroups, APIVersions: []string{"*"}, Resources: r.Resources},
		})
	}
	if b.BreakGlass != nil {
		exempt.Until, exempt.Reason = b.BreakGlass.End(), b.BreakGlass.Reason
	}
	return exempt
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

// withoutCallers warns about a cluster without identities and capabilities of any kind: no caller may send its reviews.
func withoutCallers(o *Object) Problems {
	if len(o.Cluster.Spec.Identities) > 0 || len(o.Cluster.Spec.Capabilities) > 0 || o.Cluster.Spec.RotateCapability != "" {
		return nil
	}
	const message = "no caller may send reviews of this cluster: name the identities of its API servers, or capabilities if they have no client certificate"
	return Problems{o.Problem(match.SeverityWarning, CodeNoCaller, "spec.identities", message)}
}

// ProblemsOf returns findings as problems of their objects, with lines for the objects given. The hooks of one policy may have the same finding: it is
// one problem.
func ProblemsOf(findings []match.Finding, objects []Object) Problems {
	about := make(map[Key]*Object, len(findings)) // there are far fewer of them than objects
	for _, f := range findings {
		key, _ := subjectOf(f)
		about[key] = nil
	}
	for i := range objects {
		if _, ok := about[objects[i].Key]; ok {
			about[objects[i].Key] = &objects[i]
		}
	}
	problems, known := make(Problems, 0, len(findings)), make(map[match.Finding]bool, len(findings))
	for _, f := range findings {
		if known[f] {
			continue
		}
		known[f] = true
		key, _ := subjectOf(f)
		problems = append(problems, problemOf(f, about[key]))
	}
	return problems
}

// subjectOf is the object that a finding is about, and the path in it.
func subjectOf(f match.Finding) (key Key, path string) {
	name, path, _ := strings.Cut(f.Path, " ")
	kind, object, _ := strings.Cut(name, "/")
	return Key{Kind: kind, Name: object}, path
}

// problemOf is a finding of match as a problem of the object that it is about, which may be none of the known ones.
func problemOf(f match.Finding, o *Object) Problem {
	key, path := subjectOf(f)
	if o == nil {
		return Problem{Severity: f.Severity, Code: f.Code, File: f.Source, Key: key, Field: path, Message: f.Message}
	}
	return o.Problem(f.Severity, f.Code, o.field(path), f.Message)
}
