package archtest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/archtest"
)

// graph is a module "example.com/m" with the given imports; packages without a dot in their first element are standard.
func graph(imports map[string][]string) *archtest.Graph {
	g := &archtest.Graph{Module: "example.com/m", Packages: map[string]*archtest.Package{}}
	for _, std := range []string{"fmt", "net", "net/http"} {
		g.Packages[std] = &archtest.Package{ImportPath: std, Standard: true}
	}
	for path, list := range imports {
		g.Packages[path] = &archtest.Package{ImportPath: path, Imports: list}
	}
	return g
}

func TestCheckEdges(t *testing.T) {
	tests := map[string]struct {
		imports map[string][]string
		rule    archtest.Edges
		want    []string
	}{
		"a direct import of a denied package is reported with the reason": {
			imports: map[string][]string{"example.com/m/core": {"fmt", "net/http"}},
			rule:    archtest.Edges{From: []string{"./core"}, Deny: []string{"net/http"}, Reason: "no HTTP here"},
			want:    []string{"./core -> net/http: no HTTP here"},
		},
		"a denied package behind another one is no direct import": {
			imports: map[string][]string{"example.com/m/core": {"example.com/x"}, "example.com/x": {"net/http"}},
			rule:    archtest.Edges{From: []string{"./core"}, Deny: []string{"net/http"}, Reason: "no HTTP here"},
		},
		"an indirect rule reports the shortest road": {
			imports: map[string][]string{
				"example.com/m/core": {"example.com/a", "example.com/b"},
				"example.com/a":      {"example.com/b"},
				"example.com/b":      {"example.com/m/shell"},
			},
			rule: archtest.Edges{From: []string{"./core"}, Deny: []string{"./shell/..."}, Indirect: true, Reason: "shells are above"},
			want: []string{"./core -> example.com/b -> ./shell: shells are above"},
		},
		"a tree pattern names the package and all below, and no sibling with the same prefix": {
			imports: map[string][]string{
				"example.com/m/core":     {"net"},
				"example.com/m/core/sub": {"net"},
				"example.com/m/corex":    {"net"},
			},
			rule: archtest.Edges{From: []string{"./core/..."}, Deny: []string{"net/..."}, Reason: "pure"},
			want: []string{"./core -> net: pure", "./core/sub -> net: pure"},
		},
		"an exact pattern names one package": {
			imports: map[string][]string{"example.com/m/core": {"net/http"}},
			rule:    archtest.Edges{From: []string{"./core"}, Deny: []string{"net"}, Reason: "pure"},
		},
		"the whole module with an exception": {
			imports: map[string][]string{
				"example.com/m":       {"example.com/heavy"},
				"example.com/m/cmd/m": {"example.com/heavy/a"},
				"example.com/m/x":     {"example.com/heavy/a", "example.com/heavy/b"},
			},
			rule: archtest.Edges{From: []string{"./..."}, Except: []string{"./cmd/..."}, Deny: []string{"example.com/heavy/..."}, Reason: "wired in cmd"},
			want: []string{
				"example.com/m -> example.com/heavy: wired in cmd",
				"./x -> example.com/heavy/a: wired in cmd",
				"./x -> example.com/heavy/b: wired in cmd",
			},
		},
		"packages of other modules are bound by no rule": {
			imports: map[string][]string{"example.com/mx": {"net"}, "example.com/other": {"net"}},
			rule:    archtest.Edges{From: []string{"./...", "example.com/..."}, Deny: []string{"net"}, Reason: "pure"},
		},
		"with Only everything else is reported, and what is behind it is not": {
			imports: map[string][]string{
				"example.com/m/sdk":     {"fmt", "example.com/rpc/a", "example.com/m/sdk/sub"},
				"example.com/m/sdk/sub": {"example.com/m/core"},
				"example.com/m/core":    {"example.com/heavy"},
				"example.com/rpc/a":     {"example.com/net"},
			},
			rule: archtest.Edges{From: []string{"./sdk/..."}, Only: []string{"std", "example.com/rpc/..."}, Indirect: true, Reason: "light"},
			want: []string{
				"./sdk -> ./sdk/sub -> ./core: light",
				"./sdk -> example.com/rpc/a -> example.com/net: light",
				"./sdk/sub -> ./core: light",
			},
		},
		"a package that is not there yet breaks no rule": {
			imports: map[string][]string{"example.com/m/core": {"example.com/m/missing"}},
			rule:    archtest.Edges{From: []string{"./later/...", "./core"}, Deny: []string{"net"}, Indirect: true, Reason: "pure"},
		},
		"a cycle ends": {
			imports: map[string][]string{"example.com/m/a": {"example.com/m/b"}, "example.com/m/b": {"example.com/m/a", "net"}},
			rule:    archtest.Edges{From: []string{"./a"}, Deny: []string{"net"}, Indirect: true, Reason: "pure"},
			want:    []string{"./a -> ./b -> net: pure"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := archtest.CheckEdges(graph(tt.imports), []archtest.Edges{tt.rule})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

// Each rule of the house, shown one import of its own that it forbids: a rule whose patterns are misspelt would pass
// everything.
func TestEveryHouseRuleReportsAViolation(t *testing.T) {
	for _, rule := range houseEdges() {
		for _, from := range rule.From {
			for _, deny := range forbidden(rule) {
				t.Run(from+" must not import "+deny, func(t *testing.T) {
					importer, imported := instance(from), instance(deny)
					if importer == imported {
						t.Skip("a tree may import itself")
					}
					g := graph(map[string][]string{importer: {imported}, imported: nil})
					if got := archtest.CheckEdges(g, []archtest.Edges{rule}); len(got) != 1 {
						t.Errorf("%s importing %s: %d violations, want 1", importer, imported, len(got))
					}
				})
			}
		}
	}
}

// forbidden are patterns that the rule forbids.
func forbidden(rule archtest.Edges) []string {
	if len(rule.Only) > 0 {
		return append([]string{"./dispatcher/...", "k8s.io/api/..."}, rule.Deny...)
	}
	return rule.Deny
}

// instance is a package of "example.com/m", or outside of it, that the pattern names.
func instance(pattern string) string {
	path := strings.TrimSuffix(pattern, "/...")
	if path == "." {
		return "example.com/m/anything"
	}
	if rel, ok := strings.CutPrefix(path, "./"); ok {
		return "example.com/m/" + rel
	}
	return path
}
