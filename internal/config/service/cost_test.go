package service_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// costly is a configuration with so many matchConditions, which all say the same.
func costly(name string, conditions int) string {
	var hooks []string
	for n := conditions; n > 0; n -= 64 {
		var all []string
		for i := range min(n, 64) {
			all = append(all, fmt.Sprintf(`{"name":"c%d","expression":"request.name != 'x'"}`, i))
		}
		hooks = append(hooks, fmt.Sprintf(`{"name":"h%d.example.com","clientConfig":{},"failurePolicy":"Ignore","sideEffects":"None","admissionReviewVersions":["v1"],`+
			`"matchConditions":[%s],"rules":[{"operations":["CREATE"],"apiGroups":["x.y"],"apiVersions":["v1"],"resources":["z"]}]}`, len(hooks), strings.Join(all, ",")))
	}
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[%s]}`,
		name, strings.Join(hooks, ","))
}

func TestWhatCostsTooMuchToCompileIsNotApplied(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	f.refused(codes.InvalidArgument, "the objects of this apply have 3,000 matchConditions, and at most 2,000: split them", "root",
		costly("a", 1500)+"\n---\n"+costly("b", 1500))
	f.refused(codes.InvalidArgument, "the document has 2,001 matchConditions, and at most 2,000", "root", costly("a", config.MaxConditions+1))
	f.applied("author", costly("team-a", 1000)+"\n---\n"+costly("team-b", 1000))

	// 2,500 of 5,000 leave as many free; one more does not.
	f.refused(codes.FailedPrecondition, `the objects of "author" would have 2,501 matchConditions, and at most 2,499`, "author", costly("team-c", 501))
	f.applied("author", costly("team-c", 500))
	f.refused(codes.FailedPrecondition, `the objects of "author" would have 2,501 matchConditions`, "author", costly("team-c", 501))
	f.applied("author", costly("team-c", 499)) // less is never too much

	f.applied("root", costly("a", 2000))
	f.refused(codes.FailedPrecondition, "all objects together would have 5,001 matchConditions, and at most 5,000: remove some first", "root", costly("b", 502))
	f.applied("root", costly("b", 501))
	f.refused(codes.FailedPrecondition, "all objects together", "author", costly("team-d", 1))
	f.applied("author", costly("team-c", 498)) // it is still more than half of the free part, and less than before
}

// broad is a configuration whose rule names so many groups and so many resources, for one operation and scope.
func broad(name string, groups, resources int) string {
	words := func(prefix string, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("%q", fmt.Sprint(prefix, i)))
		}
		return strings.Join(all, ",")
	}
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[`+
		`{"name":"h.example.com","clientConfig":{},"failurePolicy":"Ignore","sideEffects":"None","admissionReviewVersions":["v1"],"rules":[`+
		`{"operations":["CREATE"],"scope":"Namespaced","apiGroups":[%s],"apiVersions":["v1"],"resources":[%s]}]}]}`, name, words("g.x", groups), words("r", resources))
}

func TestWhatCostsTooMuchToPlanIsNotApplied(t *testing.T) {
	citest.Sequential(t)
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	f.refused(codes.InvalidArgument, "the document has rules with 10,001 combinations of group, version, resource, operation and scope, and at most 10,000", "author",
		broad("team-a", 1, config.MaxCombinations+1))
	f.refused(codes.InvalidArgument, "the document has rules with 90,000 combinations", "author", broad("team-a", 300, 300))
	for i := range 5 { // 50,000 of 100,000 leave as many free; one more does not
		f.applied("author", broad(fmt.Sprint("team-", i), 100, 100))
	}
	f.refused(codes.FailedPrecondition, `the objects of "author" would have rules with 50,001 combinations of group, version, resource, operation and scope, and at most 49,999`,
		"author", broad("team-one", 1, 1))
	f.applied("author", broad("team-4", 1, 9_999)) // less is never too much
	f.applied("author", broad("team-one", 1, 1))

	for i := range 4 {
		f.applied("root", broad(fmt.Sprint("op-", i), 100, 100))
	}
	f.applied("root", broad("op-4", 1, 9_999))
	f.refused(codes.FailedPrecondition, "all objects together would have rules with 100,001 combinations", "root", broad("op-5", 1, 2))
	f.applied("root", broad("op-5", 1, 1))
	f.refused(codes.FailedPrecondition, "all objects together would have rules with 100,001 combinations", "author", broad("team-two", 1, 1))
	// An owner that has more than the others leave free may still write documents that raise no figure.
	f.applied("author", broad("team-4", 1, 9_998))
	f.applied("author", costly("team-4", 100))
}

// TestACopyIsChargedToItsCluster: the mesh writes copies of followed objects as an operator, and a user of the cluster chooses their conditions.
func TestACopyIsChargedToItsCluster(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	copyOf := func(cluster, name string, conditions int) string {
		return strings.Replace(costly(cluster+"-"+name, conditions), `"metadata":{`, fmt.Sprintf(`"metadata":{"annotations":{"portcullis.dev/followed":"%s/%s"},`, cluster, name), 1)
	}
	f.applied("root", copyOf("west", "a", 2000)) // as the mesh writes it
	f.refused(codes.FailedPrecondition, `the followed objects of cluster "west" would have 2,501 matchConditions, and at most 2,499, as many as they leave free`,
		"root", copyOf("west", "b", 501))
	f.applied("root", copyOf("west", "b", 500))
	f.applied("root", copyOf("east", "a", 1250))
	f.refused(codes.FailedPrecondition, `the followed objects of cluster "east" would have 1,251 matchConditions`, "root", copyOf("east", "a", 1251))
	f.applied("root", copyOf("west", "b", 400)) // less is never too much
	f.applied("author", costly("team-a", 400))
	f.applied("root", costly("a", 400))

	f.refused(codes.PermissionDenied, `only the mesh and operators write ValidatingWebhookConfiguration/team-x with the annotation portcullis.dev/followed`,
		"author", strings.Replace(costly("team-x", 1), `"metadata":{`, `"metadata":{"annotations":{"portcullis.dev/followed":"west/x"},`, 1))
}

// TestADocumentHasSoManyHooks has hooks that match nothing: each dispatcher keeps them all the same.
func TestADocumentHasSoManyHooks(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	hooks := strings.Repeat(`,{"name":"h.t.example","clientConfig":{},"sideEffects":"None","admissionReviewVersions":["v1"]}`, config.MaxHooks+1)[1:]
	f.refused(codes.InvalidArgument, "the document has 5,001 hooks, and at most 5,000", "author",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"team-a"},"webhooks":[`+hooks+`]}`)
}
