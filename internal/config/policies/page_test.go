package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
)

// blocks returns the blocks of YAML in a page of docs.
func blocks(t *testing.T, name string) (all []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		all = append(all, block[1])
	}
	return all
}

// judged is a request, and the answer of a policy in a cluster.
type judged struct {
	policy, cluster string
	request         request
	want            string
}

// judgeByPage judges requests by the policies of a page. Each policy has one.
func judgeByPage(t *testing.T, page string, requests []judged) {
	t.Helper()
	l, shown, asked := newLaboratory(t), map[string]config.Object{}, map[string]bool{}
	for _, block := range blocks(t, page) {
		if !strings.HasPrefix(block, "apiVersion: portcullis.dev/") {
			continue
		}
		for _, p := range compile(t, block) {
			shown[p.Name] = p
		}
	}
	for _, tc := range requests {
		asked[tc.policy] = true
		p, ok := shown[tc.policy]
		if !ok {
			t.Errorf("the page shows no policy %s", tc.policy)
			continue
		}
		e := p.Expandable.Expand(tc.cluster)
		checkAccepted(t, e)
		answer := func() string { return judge(t, e, tc.request) }
		if e.MutatingPolicy != nil {
			answer = func() string { return fmt.Sprint(l.changes(t, e, requestOf(t, tc.request.object, tc.request.old))) }
		}
		if got := answer(); got != tc.want {
			t.Errorf("%s in cluster %q: %s, want %s", tc.policy, tc.cluster, got, tc.want)
		}
	}
	for name := range shown {
		if !asked[name] {
			t.Errorf("no request is judged by %s", name)
		}
	}
}

func pod(labels, spec string) request {
	return request{object: object("Pod", "default", labels, spec)}
}

// privileged is a Pod with a privileged init container.
const privileged = "containers: [{name: a, image: a}], initContainers: [{name: b, image: b, securityContext: {privileged: true}}]"

// TestThePoliciesOfThePage judges requests by the policies that docs/policies.md shows.
func TestThePoliciesOfThePage(t *testing.T) {
	exec := func(namespace string, groups ...string) request {
		return request{operation: admission.Connect, subresource: "exec", object: "apiVersion: v1\nkind: PodExecOptions", exec: namespace, groups: groups}
	}
	judgeByPage(t, "policies.md", []judged{
		{"no-latest-images", "", pod("", image("nginx")), "recorded: give each image a tag other than latest"},
		{"no-latest-images", "", pod("", image("nginx:1")), "allowed"},
		{"no-latest-images", "", request{object: object("Pod", "kube-system", "", image("nginx"))}, "allowed"},
		{"label-team", "", pod("", image("a")), "recorded: metadata.labels.team: set the label team to one of web, data"},
		{"label-team", "", pod("team: sandbox", image("a")), "recorded: metadata.labels.team: set the label team to one of web, data"},
		{"label-team", "", pod("team: web", image("a")), "allowed"},
		{"label-team", "trial", pod("team: sandbox", image("a")), "allowed"},
		{"label-team", "", request{object: object("Deployment", "default", "team: web", image("a"))}, "recorded: spec.template.metadata.labels.team: set the label team to one of web, data"},
		{"no-privileged-pods", "", pod("", privileged), "warned: privileged containers are for the platform team"},
		{"no-privileged-pods", "prod-1", pod("", privileged), "denied: privileged containers are for the platform team"},
		{"no-privileged-pods", "prod-1", pod("", image("a")), "allowed"},
		{"few-replicas", "trial", request{object: object("Deployment", "default", "", image("a"))}, "allowed"},
		{"few-replicas", "trial", request{
			object: strings.Replace(object("StatefulSet", "default", "", image("a")), "spec: {", "spec: {replicas: 4, ", 1),
		}, "recorded: spec.replicas: at most 3 replicas"},
		{"no-exec", "", exec("shop"), "denied: ask the platform team for a session in production"},
		{"no-exec", "", exec("shop", "platform"), "allowed"},
		{"no-exec", "", exec("default"), "allowed"},
		{
			"pod-defaults", "", request{object: object("Deployment", "shop", "", privileged)},
			"map[spec.template.metadata.labels.example.com/team:shop spec.template.spec.containers[0].image:registry.example.com/a " +
				"spec.template.spec.containers[0].securityContext.allowPrivilegeEscalation:false]",
		},
		{"pod-defaults", "", request{object: object("Pod", "kube-system", "", image("a"))}, "map[]"},
	})
}

// TestThePoliciesOfOtherEngines judges requests by the policies that docs/coming-from.md shows, and reads the documents beside them.
func TestThePoliciesOfOtherEngines(t *testing.T) {
	inSystem := request{object: object("Pod", "kube-system", "", image("a")+", hostNetwork: true")}
	judgeByPage(t, "coming-from.md", []judged{
		{"host-network", "", pod("", image("a")+", hostNetwork: true"), "denied: the network of the node is for the platform team"},
		{"host-network", "", inSystem, "allowed"},
		{"host-network", "", pod("", image("a")), "allowed"},
		{"require-team", "", pod("app: x", image("a")), "denied: set the label team"},
		{"require-team", "", pod("team: ''", image("a")), "denied: set the label team"},
		{"require-team", "", pod("team: web", image("a")), "allowed"},
		{"require-team", "", inSystem, "allowed"},
		{"allowed-registries", "", pod("", image("registry.example.com/shop:1")), "allowed"},
		{"allowed-registries", "", pod("", image("registry.example.com.attacker.test/shop:1")), "denied: take images from our registry"},
		{"allowed-registries", "", pod("", image("nginx")), "denied: take images from our registry"},
		{"allowed-registries", "trial", pod("", image("nginx")), "allowed"},
		{"no-privileged-pods", "", pod("", privileged), "recorded: no privileged containers"},
		{"no-privileged-pods", "", pod("", image("a")), "allowed"},
	})

	var read, refused []string
	for _, block := range blocks(t, "coming-from.md") {
		if strings.HasPrefix(block, "apiVersion: portcullis.dev/") {
			continue
		}
		objects, problems := config.NewDecoder(apiserver.Validator{}).Decode("page.yaml", []byte(block))
		for _, o := range objects {
			read = append(read, o.Kind)
		}
		for _, p := range problems {
			if !strings.Contains(p.Message, "is not judged here: ") {
				t.Error(p)
			}
			refused = append(refused, p.Key.Kind)
		}
	}
	if diff := cmp.Diff([]string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, read); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ClusterPolicy", "ConstraintTemplate", "AllowedRegistries", "ClusterAdmissionPolicy"}, refused); diff != "" {
		t.Error(diff)
	}
}
