package builtin_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestDiscoveryListsVersionsInTheOrderInWhichTheAPIServerInstallsThem protects an assumption of package equivalents. A kube-apiserver of our types'
// version that serves everything wrote the document.
func TestDiscoveryListsVersionsInTheOrderInWhichTheAPIServerInstallsThem(t *testing.T) {
	source, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		citest.Lacks(t, "no go command finds the sources of k8s.io/kubernetes")
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(source)), "api", "discovery", "apis.json"))
	if err != nil {
		t.Fatal(err)
	}
	var groups metav1.APIGroupList
	if err := json.Unmarshal(data, &groups); err != nil {
		t.Fatal(err)
	}
	several := 0
	for _, g := range groups.Groups {
		var listed []schema.GroupVersion
		for _, v := range g.Versions {
			listed = append(listed, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
		// The scheme has versions too that are not served any more.
		installed := slices.DeleteFunc(legacyscheme.Scheme.PrioritizedVersionsForGroup(g.Name), func(gv schema.GroupVersion) bool {
			return !slices.Contains(listed, gv)
		})
		if len(installed) == 0 {
			continue // a group of another server
		}
		if diff := cmp.Diff(installed, listed); diff != "" {
			t.Errorf("%s (-installed +listed):\n%s", g.Name, diff)
		}
		if len(listed) > 1 {
			several++
		}
	}
	if several < 8 {
		t.Errorf("only %d groups have several versions", several)
	}
}
