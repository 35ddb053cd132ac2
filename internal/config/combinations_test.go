package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// words is a list of n words in JSON.
func words(prefix string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"%s%d"`, prefix, i)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// naming is a document of a kind of which each rule names groups x versions x resources, with operations as written.
func naming(kind, operations string, rules ...[3]int) string {
	var all []string
	for _, r := range rules {
		all = append(all, fmt.Sprintf(`{%s"apiGroups":%s,"apiVersions":%s,"resources":%s}`,
			operations, words("g.x", r[0]), words("v", r[1]), words("r", r[2])))
	}
	list := strings.Join(all, ",")
	switch kind {
	case "InitializerConfiguration":
		return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":%q,"metadata":{"name":"a"},"initializers":[{"name":"a.b.c","rules":[%s]}]}`, kind, list)
	case "ExternalAdmissionHookConfiguration":
		return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":%q,"metadata":{"name":"a"},"externalAdmissionHooks":[{"name":"a.b.c",`+
			`"clientConfig":{"service":{"namespace":"ns","name":"svc"},"caBundle":"Cg=="},"rules":[%s]}]}`, kind, list)
	}
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":"a"},"webhooks":[{"name":"a.b.c","clientConfig":{},`+
		`"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[%s]}]}`, kind, list)
}

// TestLimitsOfCombinations: the cost of planning a document is counted before anything is expanded, however large it would
// be.
func TestLimitsOfCombinations(t *testing.T) {
	const create, every, two = `"operations":["CREATE"],"scope":"Namespaced",`, `"operations":["*"],`, `"operations":["CREATE","UPDATE"],`
	for name, tc := range map[string]struct {
		document string
		want     string // the figure in the problem; empty for none
	}{
		"as many as there may be":               {naming(validatingKind, create, [3]int{100, 1, 100}), ""},
		"one more, in a second rule":            {naming(validatingKind, create, [3]int{100, 1, 100}, [3]int{1, 1, 1}), "10,001"},
		"every operation and scope counts":      {naming(validatingKind, every, [3]int{5, 5, 50}), ""},
		"every operation and scope, and more":   {naming(validatingKind, every, [3]int{5, 5, 51}), "10,200"},
		"two operations":                        {naming(mutatingKind, two, [3]int{50, 1, 51}), "10,200"},
		"versions":                              {naming(mutatingKind, create, [3]int{1, 10_001, 1}), "10,001"},
		"300 of each, in 7 kB":                  {naming(validatingKind, create, [3]int{300, 300, 300}), "27,000,000"},
		"as many as fit into a document":        {naming(validatingKind, every, [3]int{100_000, 100_000, 100_000}), "1,099,511,627,776"},
		"of an initializer, for CREATE alone":   {naming("InitializerConfiguration", "", [3]int{50, 1, 100}), ""},
		"of an initializer, and more":           {naming("InitializerConfiguration", "", [3]int{50, 1, 101}), "10,100"},
		"of an external admission hook":         {naming("ExternalAdmissionHookConfiguration", two, [3]int{25, 1, 100}), ""},
		"more of an external admission hook":    {naming("ExternalAdmissionHookConfiguration", two, [3]int{25, 1, 101}), "10,100"},
		"an operation that is written so often": {naming(validatingKind, `"operations":[`+strings.Repeat(`"CREATE",`, 10_000)+`"CREATE"],"scope":"Cluster",`, [3]int{1, 1, 1}), "10,001"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, problems := decode("", []byte(tc.document))
			want := "the document has rules with " + tc.want + " combinations of group, version, resource, operation and scope, and at most 10,000"
			switch {
			case tc.want == "" && (len(objects) != 1 || problems.Err() != nil):
				t.Errorf("%d objects, %.300v", len(objects), problems.Err())
			case tc.want != "" && (len(objects) != 0 || len(problems) != 1 || problems[0].Code != CodeLimit || problems[0].Severity != match.SeverityError ||
				problems[0].Message != want):
				t.Errorf("problems %.300q, want %s", lines(problems), want)
			}
		})
	}
}
