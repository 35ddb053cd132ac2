package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestThePageAboutPoliciesLeadsToADenial follows docs/policies.md with two API servers.
func TestThePageAboutPoliciesLeadsToADenial(t *testing.T) {
	citest.Soak(t, "follows docs/policies.md with kubectl and two API servers: 45 s")
	requireTools(t, "bash", "kubectl")
	g := &guide{dir: t.TempDir()}
	g.env = []string{
		"PATH=" + filepath.Dir(portcullis) + string(os.PathListSeparator) + os.Getenv("PATH"), "PORTCULLIS_STOP_DELAY=0s",
		"KUBECONFIG=" + twoContexts(t, g.dir, "trial", "prod-1"), "PORTCULLIS_SETTINGS=" + filepath.Join(g.dir, "settings.yaml"),
	}
	g.read(t, "policies.md", strings.NewReplacer("127.0.0.1:8443", freeAddress(t), "127.0.0.1:8444", freeAddress(t),
		"127.0.0.1:8445", freeAddress(t), "alice", "e2e-admin"))
	examples := make([]string, 3)
	for i := range examples {
		examples[i] = g.step(t, "Three policies", i).text
	}
	if err := os.WriteFile(filepath.Join(g.dir, "policies.yaml"), []byte(strings.Join(examples, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, context := range []string{"trial", "prod-1"} { // no controller makes the service account here
		said, err := g.shell(t, strings.ReplaceAll("kubectl --context C create namespace shop && kubectl --context C -n shop create serviceaccount default", "C", context))
		if err != nil {
			t.Fatal(said)
		}
	}

	const section = "From nothing to enforcement"
	g.run(t, section)
	g.serve(t, section, 1)
	for i, example := range g.steps[section][2:] {
		if example.language == "sh" {
			g.runBlock(t, section, i+2)
		} else {
			g.compare(t, section, i+2)
		}
	}
	if said, err := g.shell(t, "kubectl --context trial -n shop create deployment web-4 --image=nginx"); err != nil {
		t.Errorf("after the mesh is gone: %v: %s", err, said)
	}
}
