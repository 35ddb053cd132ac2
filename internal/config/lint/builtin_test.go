package lint

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// discovered are the resources that kube-apiserver serves, from the discovery documents of its own module.
func discovered(t *testing.T) map[string][]metav1.APIResource {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "api", "discovery", "api*__v*.json"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d discovery documents: %v", len(files), err)
	}
	all := map[string][]metav1.APIResource{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list metav1.APIResourceList
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		all[gv.Group] = append(all[gv.Group], list.APIResources...)
	}
	return all
}

// operationsBy are the operations that the verbs of a resource lead to. The kinds of objects that are sent to connect are
// options.
func operationsBy(r *metav1.APIResource) operations {
	var set operations
	for _, verb := range r.Verbs {
		switch verb {
		case "create":
			set |= creates
		case "update", "patch":
			set |= updates
		case "delete", "deletecollection":
			set |= deletes
		}
	}
	if strings.HasSuffix(r.Kind, "Options") {
		return connects
	}
	return set
}

func TestTheBuiltinResourcesAreThoseOfKubernetes(t *testing.T) {
	b := newBuiltin()
	kinds, resources := map[string]string{}, 0
	for group, list := range discovered(t) {
		for i := range list {
			if !strings.Contains(list[i].Name, "/") {
				kinds[group+"/"+list[i].Name] = list[i].Kind
			}
		}
		for i := range list {
			r := &list[i]
			resources++
			name, sub, _ := strings.Cut(r.Name, "/")
			ours := b.byGroup[group][name]
			if ours == nil {
				t.Errorf("apiResources has no %s of the group %q", r.Name, group)
				continue
			}
			s, ok := ours.subresources[sub]
			want := subresource{operationsBy(r), kinds[group+"/"+name] != r.Kind}
			if !ok || s != want || ours.namespaced != r.Namespaced {
				t.Errorf("apiResources has %+v, in namespaces %t, for %s of the group %q, want %+v, %t", s, ours.namespaced, r.Name, group, want, r.Namespaced)
			}
		}
	}
	if resources < 100 {
		t.Errorf("only %d resources were looked at", resources)
	}
}

// requests are all requests that are known to lead to hooks.
func requests(b *builtin) []admission.Attributes {
	var all []admission.Attributes
	for group, resources := range b.byGroup {
		for name, r := range resources {
			if exempt(group, name) {
				continue
			}
			namespace := ""
			if r.namespaced || name == "namespaces" { // The name of a Namespace is its namespace too.
				namespace = "n"
			}
			for sub, s := range r.subresources {
				for i, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
					if s.operations&(1<<i) != 0 {
						resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}
						all = append(all, admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, namespace, "x", resource, sub, operation, nil, false, nil))
					}
				}
			}
		}
	}
	return all
}

// TestResourcesInVainAreThoseThatNoRequestOfKubernetesMatches compares with kube-apiserver's own matcher of rules, for random rules of
// names that Kubernetes knows.
func TestResourcesInVainAreThoseThatNoRequestOfKubernetesMatches(t *testing.T) {
	b := newBuiltin()
	all := requests(b)
	random := rand.New(rand.NewPCG(1, 2))
	var groups, patterns []string
	for group, resources := range b.byGroup {
		groups = append(groups, group)
		for name, r := range resources {
			for sub := range r.subresources {
				if sub == "" {
					patterns = append(patterns, name, name+"/*")
					continue
				}
				patterns = append(patterns, name+"/"+sub, "*/"+sub)
			}
		}
	}
	slices.Sort(groups)
	slices.Sort(patterns)
	patterns = append(patterns, wildcard, "*/*")
	scopes := []admissionregistrationv1.ScopeType{admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope}
	operations := []admissionregistrationv1.OperationType{
		admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect,
		admissionregistrationv1.OperationAll,
	}
	some := func(from []string) []string {
		out := []string{from[random.IntN(len(from))]}
		for random.IntN(3) == 0 {
			out = append(out, from[random.IntN(len(from))])
		}
		return out
	}
	ended := map[bool]int{}
	rounds := citest.Cases(2000, 20_000, 200_000)
	for range rounds {
		pattern := some(patterns)[0]
		rule := admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{operations[random.IntN(len(operations))], operations[random.IntN(len(operations)-1)]},
			Rule: admissionregistrationv1.Rule{
				APIGroups: some(groups), APIVersions: []string{wildcard}, Resources: []string{pattern}, Scope: &scopes[random.IntN(len(scopes))],
			},
		}
		name, _, _ := strings.Cut(pattern, "/")
		if homes := b.homes(name); len(homes) > 0 && random.IntN(3) > 0 {
			rule.APIGroups = some(homes)
		}
		if name != wildcard && random.IntN(5) == 0 {
			rule.APIGroups = []string{wildcard}
		}
		matches := slices.ContainsFunc(all, func(attr admission.Attributes) bool { return (&rules.Matcher{Rule: rule, Attr: attr}).Matches() })
		r := b.reachOf(&match.Hook{}, &rule)
		if why := r.inVain(pattern); (why == "") != matches {
			t.Fatalf("%+v\na request matches: %t, and we say %q", rule, matches, why)
		}
		ended[matches]++
	}
	if ended[true] < rounds/10 || ended[false] < rounds/10 {
		t.Errorf("the rules are too much alike: %v", ended)
	}
}
