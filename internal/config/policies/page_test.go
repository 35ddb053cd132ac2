package policies_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// TestThePoliciesOfThePage judges requests by the policies that docs/policies.md shows.
func TestThePoliciesOfThePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "policies.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]config.PolicyDocument{}
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		for _, p := range compile(t, block[1]) {
			shown[p.Document().Metadata.Name] = p
		}
	}
	pod := func(labels, spec string) request { return request{object: object("Pod", "default", labels, spec)} }
	privileged := "containers: [{name: a, image: a}], initContainers: [{name: b, image: b, securityContext: {privileged: true}}]"
	exec := func(namespace string, groups ...string) request {
		return request{operation: admission.Connect, subresource: "exec", object: "apiVersion: v1\nkind: PodExecOptions", exec: namespace, groups: groups}
	}
	judged := map[string]bool{}
	for _, tc := range []struct {
		policy, cluster string
		request         request
		want            string
	}{
		{"no-latest-images", "", pod("", image("nginx")), "recorded: give each image a tag other than latest"},
		{"no-latest-images", "", pod("", image("nginx:1")), "allowed"},
		{"no-latest-images", "", request{object: object("Pod", "kube-system", "", image("nginx"))}, "allowed"},
		{"label-team", "", pod("", image("a")), "recorded: metadata.labels.team: set the label team to one of web, data"},
		{"label-team", "", pod("team: sandbox", image("a")), "recorded: metadata.labels.team: set the label team to one of web, data"},
		{"label-team", "", pod("team: web", image("a")), "allowed"},
		{"label-team", "trial", pod("team: sandbox", image("a")), "allowed"},
		{"label-team", "", request{object: object("Deployment", "default", "team: web", image("a"))}, "recorded: metadata.labels.team: set the label team to one of web, data"},
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
	} {
		judged[tc.policy] = true
		p, ok := shown[tc.policy]
		if !ok {
			t.Errorf("the page shows no policy %s", tc.policy)
			continue
		}
		e := p.Expand(tc.cluster)
		checkAccepted(t, e)
		if got := judge(t, e, tc.request); got != tc.want {
			t.Errorf("%s in cluster %q: %s, want %s", tc.policy, tc.cluster, got, tc.want)
		}
	}
	for name := range shown {
		if !judged[name] {
			t.Errorf("no request is judged by %s", name)
		}
	}
}
