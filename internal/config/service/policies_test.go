package service_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

const (
	validatingPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {team: a}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  validations: [{expression: "true"}]`
	policyBinding = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: POLICY, validationActions: [Deny]}`
)

// TestAnAuthorReachesNoPolicyOfOthers has an author bind, route, change and delete a policy of somebody else, and a policy of its own.
func TestAnAuthorReachesNoPolicyOfOthers(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	of := func(document, name, policy string) string {
		return strings.NewReplacer("NAME", name, "POLICY", policy).Replace(document)
	}
	route := func(name, policy, cluster string) string {
		return "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: " + name + "}\nspec: {configuration: ValidatingAdmissionPolicy/" + policy +
			", shadow: true, clusters: [" + cluster + "]}"
	}
	f.applied("root", of(validatingPolicy, "p", "")+"\n---\n"+of(policyBinding, "p", "p"))

	const prefix, cluster = "none of the namePrefixes", "sees, or would see, reviews of clusters that are not"
	f.refused(codes.PermissionDenied, prefix, "author", of(validatingPolicy, "p", ""))
	f.refused(codes.PermissionDenied, prefix, "author", of(policyBinding, "team-b", "p"))
	f.refused(codes.PermissionDenied, prefix, "author", route("team-r", "p", "east"))
	f.refused(codes.PermissionDenied, cluster, "eastern", of(validatingPolicy, "q", "")+"\n---\n"+of(policyBinding, "q", "q"))
	f.refused(codes.PermissionDenied, cluster, "eastern", of(policyBinding, "b", "p"))
	f.refused(codes.PermissionDenied, cluster, "eastern", route("r", "p", "east"))

	short := func(name, clusters string) string {
		return "apiVersion: portcullis.dev/v1\nkind: Policy\nmetadata: {name: " + name + "}\nspec:\n  resources: [configmaps]\n" +
			"  validations: [{expression: 'true', message: m}]\n  " + clusters
	}
	f.refused(codes.PermissionDenied, prefix, "author", short("s", "mode: warn"))
	f.refused(codes.PermissionDenied, cluster, "eastern", short("s", "mode: warn"))
	f.refused(codes.PermissionDenied, cluster, "eastern", short("s", "modeByCluster: {east: warn}"))
	f.refused(codes.PermissionDenied, cluster, "eastern", short("s", "clusters: [east, west]"))
	f.applied("eastern", short("s", "clusters: [east]\n  modeByCluster: {east: warn}"))

	f.applied("author", of(validatingPolicy, "team-p", "")+"\n---\n"+of(policyBinding, "team-b", "team-p")+"\n---\n"+route("team-r", "team-p", "east"))
	f.applied("eastern", of(validatingPolicy, "q", "")+"\n---\n"+of(policyBinding, "q", "q")+"\n---\n"+route("q", "q", "east"))
}

// TestOperatorsAloneWriteParams for the policies of all authors, and none that contradict others.
func TestOperatorsAloneWriteParams(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	params := func(name, clusters string) string {
		return "apiVersion: portcullis.dev/v1\nkind: PolicyParams\nmetadata: {name: " + name + "}\nspec:\n  clusters: [" + clusters +
			"]\n  objects: [{apiVersion: example.com/v1, kind: Limit, metadata: {name: limits}, spec: {most: 3}}]"
	}
	const only, twice = "only operators may write PolicyParams/team-p", "an object stands there twice for cluster \"east\": see spec.objects[0] of PolicyParams/team-p"
	f.refused(codes.PermissionDenied, only, "author", params("team-p", ""))
	f.refused(codes.PermissionDenied, only, "eastern", params("team-p", "east"))
	f.applied("root", params("team-p", "east"))
	f.refused(codes.PermissionDenied, only, "author", params("team-p", "east"))
	f.refused(codes.InvalidArgument, twice, "root", params("other", "west, east"))
	f.applied("root", params("other", "west"))
	f.applied("root", params("other", "west")+"\n---\n"+params("team-p", "east, north"))
}
