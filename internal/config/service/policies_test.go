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
