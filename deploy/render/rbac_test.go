package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestTheChartGrantsWhatTheManifestsGrant: the rights for a source are written twice, in the chart and in a manifest by hand.
func TestTheChartGrantsWhatTheManifestsGrant(t *testing.T) {
	for file, set := range map[string]string{
		"../configmaps-rbac.yaml":       "configuration.namespace=portcullis",
		"../custom-resources-rbac.yaml": "configuration.customResources=true",
	} {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := render(t, set)
		if err != nil {
			t.Fatal(err)
		}
		got := rules(t, rendered.String())
		for name, want := range rules(t, string(manifest)) {
			if !reflect.DeepEqual(got[name], want) {
				t.Errorf("%s grants %s %v, and the chart %v", file, name, want, got[name])
			}
		}
	}
}

// rules are the rules of Roles and ClusterRoles, by kind and name.
func rules(t *testing.T, documents string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	byName := map[string][]rbacv1.PolicyRule{}
	for document := range strings.SplitSeq(documents, "\n---\n") {
		var role rbacv1.Role
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(document, "---\n")), &role); err != nil {
			t.Fatal(err)
		}
		if role.Rules != nil {
			byName[role.Kind+"/"+role.Name] = role.Rules
		}
	}
	return byName
}

// TestTheChartHasTheDefinitions: all that make schemas writes, and only where they are asked for, as helm does it.
func TestTheChartHasTheDefinitions(t *testing.T) {
	count := func(crds bool) (n int) {
		rendered, err := Render(Options{Chart: chartDir, Release: "portcullis", Namespace: "portcullis-system", CRDs: crds})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range rendered.Objects {
			if strings.Contains(o.Content, "\nkind: CustomResourceDefinition\n") {
				n++
			}
		}
		return n
	}
	files, err := os.ReadDir(filepath.Join(chartDir, "crds"))
	if err != nil {
		t.Fatal(err)
	}
	if got := count(true); got != len(files) || count(false) != 0 {
		t.Errorf("the chart has %d definitions, of %d, and %d that nobody asked for", got, len(files), count(false))
	}
}
