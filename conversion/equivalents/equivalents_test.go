package equivalents_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

func versions(t testing.TB, list string) []schema.GroupVersion {
	t.Helper()
	var gvs []schema.GroupVersion
	for _, text := range strings.Fields(list) {
		gv, err := schema.ParseGroupVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		gvs = append(gvs, gv)
	}
	return gvs
}

// resource is a resource as people write it: "apps/v1 deployments/scale".
func resource(t testing.TB, text string) (schema.GroupVersionResource, string) {
	t.Helper()
	version, p, _ := strings.Cut(text, " ")
	name, sub, _ := strings.Cut(p, "/")
	return versions(t, version)[0].WithResource(name), sub
}

// text is ways as people write them.
func text(ways []conversion.ResourceKind) []string {
	var out []string
	for _, w := range ways {
		p := path.Join(w.Resource.Resource, w.Subresource)
		out = append(out, w.Resource.GroupVersion().String()+" "+p+" is "+w.Kind.GroupVersion().String()+" "+w.Kind.Kind)
	}
	return out
}

func TestResourcesAreEquivalentInTheOrderInWhichTheAPIServerInstallsThem(t *testing.T) {
	const kubernetes115 = "apiregistration.k8s.io/v1 apiregistration.k8s.io/v1beta1 events.k8s.io/v1beta1 apps/v1 apps/v1beta2 apps/v1beta1 " +
		"autoscaling/v1 autoscaling/v2beta1 autoscaling/v2beta2 batch/v1 batch/v1beta1 networking.k8s.io/v1 networking.k8s.io/v1beta1 extensions/v1beta1 policy/v1beta1 v1"
	const kubernetes136 = "v1 apps/v1 events.k8s.io/v1 autoscaling/v2 autoscaling/v1 policy/v1 networking.k8s.io/v1"
	cases := map[string]struct {
		served, resource string
		want             []string
	}{
		"deployments, as the proposal has them": {kubernetes115, "apps/v1 deployments", []string{
			"extensions/v1beta1 deployments is extensions/v1beta1 Deployment", "apps/v1 deployments is apps/v1 Deployment",
			"apps/v1beta2 deployments is apps/v1beta2 Deployment", "apps/v1beta1 deployments is apps/v1beta1 Deployment",
		}},
		"their scale, as the proposal has it": {kubernetes115, "extensions/v1beta1 deployments/scale", []string{
			"extensions/v1beta1 deployments/scale is extensions/v1beta1 Scale", "apps/v1 deployments/scale is autoscaling/v1 Scale",
			"apps/v1beta2 deployments/scale is apps/v1beta2 Scale", "apps/v1beta1 deployments/scale is apps/v1beta1 Scale",
		}},
		"a subresource that not all of them have": {kubernetes115, "apps/v1 deployments/rollback", []string{
			"extensions/v1beta1 deployments/rollback is extensions/v1beta1 DeploymentRollback", "apps/v1beta1 deployments/rollback is apps/v1beta1 DeploymentRollback",
		}},
		"the scale of a core resource": {kubernetes115, "v1 replicationcontrollers/scale", []string{
			"v1 replicationcontrollers/scale is autoscaling/v1 Scale", "extensions/v1beta1 replicationcontrollers/scale is extensions/v1beta1 Scale",
		}},
		"ingresses of two groups": {kubernetes115, "networking.k8s.io/v1beta1 ingresses", []string{
			"extensions/v1beta1 ingresses is extensions/v1beta1 Ingress", "networking.k8s.io/v1 ingresses is networking.k8s.io/v1 Ingress",
			"networking.k8s.io/v1beta1 ingresses is networking.k8s.io/v1beta1 Ingress",
		}},
		"events: core comes first":           {kubernetes136, "events.k8s.io/v1 events", []string{"v1 events is v1 Event", "events.k8s.io/v1 events is events.k8s.io/v1 Event"}},
		"autoscalers, as the server has it":  {kubernetes136, "autoscaling/v1 horizontalpodautoscalers/status", []string{"autoscaling/v2 horizontalpodautoscalers/status is autoscaling/v2 HorizontalPodAutoscaler", "autoscaling/v1 horizontalpodautoscalers/status is autoscaling/v1 HorizontalPodAutoscaler"}},
		"autoscalers, as an older server":    {kubernetes115, "autoscaling/v1 horizontalpodautoscalers", []string{"autoscaling/v1 horizontalpodautoscalers is autoscaling/v1 HorizontalPodAutoscaler", "autoscaling/v2beta1 horizontalpodautoscalers is autoscaling/v2beta1 HorizontalPodAutoscaler", "autoscaling/v2beta2 horizontalpodautoscalers is autoscaling/v2beta2 HorizontalPodAutoscaler"}},
		"deployments alone":                  {kubernetes136, "apps/v1 deployments", []string{"apps/v1 deployments is apps/v1 Deployment"}},
		"a version that is not served":       {kubernetes136, "apps/v1beta1 deployments", []string{"apps/v1 deployments is apps/v1 Deployment"}},
		"a group that is not served":         {kubernetes136, "extensions/v1beta1 deployments", nil},
		"a subresource that nobody has":      {kubernetes136, "apps/v1 deployments/proxy", nil},
		"a custom resource of a known name":  {kubernetes136, "example.com/v1 deployments", nil},
		"a resource with one version always": {kubernetes136, "v1 pods", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gvr, sub := resource(t, tc.resource)
			if diff := cmp.Diff(tc.want, text(equivalents.Served(versions(t, tc.served)).For(gvr, sub))); diff != "" {
				t.Errorf("equivalents (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllVersionsEverServedAreEquivalentInAClusterOfWhichNothingIsKnown(t *testing.T) {
	known := equivalents.Known()
	for from, want := range map[string][]string{
		"apps/v1 deployments": {
			"extensions/v1beta1 deployments is extensions/v1beta1 Deployment", "apps/v1 deployments is apps/v1 Deployment",
			"apps/v1beta2 deployments is apps/v1beta2 Deployment", "apps/v1beta1 deployments is apps/v1beta1 Deployment",
		},
		"apps/v1 statefulsets/scale": {
			"apps/v1 statefulsets/scale is autoscaling/v1 Scale", "apps/v1beta2 statefulsets/scale is apps/v1beta2 Scale",
			"apps/v1beta1 statefulsets/scale is apps/v1beta1 Scale",
		},
		"autoscaling/v1 horizontalpodautoscalers": {
			"autoscaling/v2 horizontalpodautoscalers is autoscaling/v2 HorizontalPodAutoscaler",
			"autoscaling/v1 horizontalpodautoscalers is autoscaling/v1 HorizontalPodAutoscaler",
			"autoscaling/v2beta2 horizontalpodautoscalers is autoscaling/v2beta2 HorizontalPodAutoscaler",
			"autoscaling/v2beta1 horizontalpodautoscalers is autoscaling/v2beta1 HorizontalPodAutoscaler",
		},
		"policy/v1 poddisruptionbudgets": {
			"policy/v1 poddisruptionbudgets is policy/v1 PodDisruptionBudget",
			"policy/v1beta1 poddisruptionbudgets is policy/v1beta1 PodDisruptionBudget",
		},
		"v1 pods":                nil,
		"example.com/v1 widgets": nil,
	} {
		gvr, sub := resource(t, from)
		if diff := cmp.Diff(want, text(known.For(gvr, sub))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", from, diff)
		}
	}
}

// TestNoneOfTheEquivalentsOfAnAPIServerIsMissingInAClusterOfWhichNothingIsKnown compares with a kube-apiserver of our
// types' version that serves everything.
func TestNoneOfTheEquivalentsOfAnAPIServerIsMissingInAClusterOfWhichNothingIsKnown(t *testing.T) {
	lists := discovery(t)
	known, exact := equivalents.Known(), equivalents.Discovered(lists)
	for _, list := range lists {
		for _, r := range list.APIResources {
			gvr, sub := resource(t, list.GroupVersion+" "+r.Name)
			want := exact.For(gvr, sub)
			if len(want) < 2 {
				continue
			}
			for _, way := range want {
				if !slices.Contains(known.For(gvr, sub), way) {
					t.Errorf("%s %s: no %v", list.GroupVersion, r.Name, way)
				}
			}
		}
	}
}

func TestFamiliesAreTheEquivalentsOfEachOfTheirMembers(t *testing.T) {
	known := equivalents.Known()
	families := known.Families()
	if len(families) < 30 {
		t.Errorf("only %d families", len(families))
	}
	for _, ways := range families {
		for _, way := range ways {
			if diff := cmp.Diff(text(ways), text(known.For(way.Resource, way.Subresource))); diff != "" {
				t.Errorf("%v (-family +equivalents):\n%s", way, diff)
			}
		}
	}
}

func TestWhatIsNotBuiltInIsLeftOutOfDiscovery(t *testing.T) {
	e := equivalents.Discovered([]*metav1.APIResourceList{
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "deployments", Kind: "Deployment"}}},
		{GroupVersion: "a/b/c", APIResources: []metav1.APIResource{{Name: "deployments", Kind: "Deployment"}}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Kind: "Deployment"}}},
	})
	gvr, _ := resource(t, "apps/v1 deployments")
	if diff := cmp.Diff([]string{"apps/v1 deployments is apps/v1 Deployment"}, text(e.For(gvr, ""))); diff != "" {
		t.Error(diff)
	}
}

// TestTheEquivalentsAreThoseOfKubernetesOwnRegistry fills the registry of k8s.io/apimachinery as installing the API groups
// does: group by group, version by version, path by path. Discovery lists versions in the order in which API servers install them, as package
// builtin tests.
func TestTheEquivalentsAreThoseOfKubernetesOwnRegistry(t *testing.T) {
	lists := discovery(t)
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(r schema.GroupResource) string { return r.Resource })
	for _, dir := range providers(t) {
		for _, list := range lists {
			if gv := versions(t, list.GroupVersion)[0]; gv.Group == groupOf(dir) {
				register(registry, gv, list)
			}
		}
	}
	e := equivalents.Discovered(lists)
	several := 0
	for _, list := range lists {
		gv := versions(t, list.GroupVersion)[0]
		if gv.Group == "apiextensions.k8s.io" || gv.Group == "apiregistration.k8s.io" {
			continue // servers of their own, with a registry of their own
		}
		for _, r := range list.APIResources {
			gvr, sub := resource(t, gv.String()+" "+r.Name)
			var want []conversion.ResourceKind
			for _, other := range registry.EquivalentResourcesFor(gvr, sub) {
				want = append(want, conversion.ResourceKind{Resource: other, Subresource: sub, Kind: registry.KindFor(other, sub)})
			}
			if diff := cmp.Diff(text(want), text(e.For(gvr, sub))); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", gv, r.Name, diff)
			}
			if len(want) > 1 {
				several++
			}
		}
	}
	if several < 30 {
		t.Errorf("only %d resources have equivalents", several)
	}
}

func register(registry runtime.EquivalentResourceRegistry, gv schema.GroupVersion, list *metav1.APIResourceList) {
	sorted := slices.Clone(list.APIResources)
	slices.SortFunc(sorted, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range sorted {
		kind := gv.WithKind(r.Kind)
		if r.Version != "" {
			kind.Group, kind.Version = r.Group, r.Version
		}
		name, sub, _ := strings.Cut(r.Name, "/")
		registry.RegisterKindFor(gv.WithResource(name), sub, kind)
	}
}

func TestTheTableKnowsAllThatKubernetesServesInSeveralWays(t *testing.T) {
	lists := discovery(t)
	var all []schema.GroupVersion
	for _, list := range lists {
		all = append(all, versions(t, list.GroupVersion)...)
	}
	known, exact := equivalents.Served(all), equivalents.Discovered(lists)
	for _, list := range lists {
		for _, r := range list.APIResources {
			gvr, sub := resource(t, list.GroupVersion+" "+r.Name)
			want := text(exact.For(gvr, sub))
			if len(want) < 2 {
				continue
			}
			got := slices.DeleteFunc(text(known.For(gvr, sub)), func(way string) bool { return !slices.Contains(want, way) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", list.GroupVersion, r.Name, diff)
			}
		}
	}
}

// discovery is the discovery of a kube-apiserver of our types' version with everything switched on, from its own tests' data. The versions of a group
// are in the order of its discovery.
func discovery(t testing.TB) []*metav1.APIResourceList {
	t.Helper()
	dir := filepath.Join(kubernetesSource(t), "api", "discovery")
	var groups metav1.APIGroupList
	readJSON(t, filepath.Join(dir, "apis.json"), &groups)
	files := []string{"api__v1.json"}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			files = append(files, "apis__"+g.Name+"__"+v.Version+".json")
		}
	}
	var lists []*metav1.APIResourceList
	for _, file := range files {
		list := &metav1.APIResourceList{}
		readJSON(t, filepath.Join(dir, file), list)
		lists = append(lists, list)
	}
	return lists
}

func readJSON(t testing.TB, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// kubernetesSource is where the sources of k8s.io/kubernetes lie.
func kubernetesSource(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		citest.Lacks(t, "no go command finds the sources of k8s.io/kubernetes")
	}
	return strings.TrimSpace(string(out))
}

// providers are the directories of the groups in the order of CompletedConfig.StorageProviders.
func providers(t testing.TB) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(kubernetesSource(t), "pkg", "controlplane", "instance.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]string{}
	for _, spec := range file.Imports {
		if p := strings.Trim(spec.Path.Value, `"`); spec.Name != nil && strings.HasPrefix(p, "k8s.io/kubernetes/pkg/registry/") {
			imported[spec.Name.Name] = path.Base(path.Dir(p))
		}
	}
	dirs := []string{"core"} // a variable that is made before the list
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if of, ok := literal.Type.(*ast.SelectorExpr); ok {
			if dir := imported[of.X.(*ast.Ident).Name]; dir != "" && strings.HasSuffix(of.Sel.Name, "StorageProvider") {
				dirs = append(dirs, dir)
			}
		}
		return true
	})
	if len(dirs) < 20 {
		t.Fatalf("found only %v", dirs)
	}
	return dirs
}

// groupOf is the group whose code is in a directory.
func groupOf(dir string) string {
	suffix := map[string]string{
		"core": "", "apiserverinternal": "internal.apiserver.k8s.io", "rbac": "rbac.authorization.k8s.io", "flowcontrol": "flowcontrol.apiserver.k8s.io",
		"autoscaling": "autoscaling", "batch": "batch", "policy": "policy", "apps": "apps",
	}
	if group, ok := suffix[dir]; ok {
		return group
	}
	return dir + ".k8s.io"
}
