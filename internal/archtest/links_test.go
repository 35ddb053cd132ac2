package archtest_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kubernetesTests are the packages whose tests link k8s.io/kubernetes, which doubles the time and memory that this takes. The tests of all others read
// documents with package configtest.
func kubernetesTests() []string {
	return []string{
		"bridge",                               // internal/oracle
		"bridge/outbound",                      // internal/oracle
		"cmd/portcullis",                       // the program
		"cmd/portcullis/internal/cases",        // a part of the program
		"cmd/portcullis/internal/cli/audit",    // a part of the program
		"cmd/portcullis/internal/cli/bench",    // a part of the program
		"cmd/portcullis/internal/cli/casetest", // a part of the program
		"cmd/portcullis/internal/cli/cluster",  // a part of the program
		"cmd/portcullis/internal/cli/config",   // a part of the program
		"cmd/portcullis/internal/cli/connect",  // the command review
		"cmd/portcullis/internal/cli/policy",   // a part of the program
		"cmd/portcullis/internal/cli/replay",   // a part of the program
		"cmd/portcullis/internal/cli/review",   // a part of the program
		"cmd/portcullis/internal/kubekinds",    // conversion/builtin
		"cmd/portcullis/internal/localhosts",   // a part of the program
		"cmd/portcullis/internal/offline",      // a part of the program
		"cmd/portcullis/internal/replay",       // a part of the program
		"cmd/portcullis/internal/serve",        // a part of the program
		"conversion/builtin",                   // itself
		"dispatcher",                           // internal/oracle and conversion/builtin
		"dispatcher/match",                     // internal/oracle
		"dispatcher/policy",                    // internal/oracle
		"internal/cluster",                     // conversion/builtin
		"internal/cluster/registration",        // the validation of entries by the API server
		"internal/config",                      // all that the API server does with a document
		"internal/config/policies",             // all that the API server does with an expansion
		"internal/oracle",                      // itself
		"internal/schemas",                     // a decoder that refuses as the program does
	}
}

func TestFewTestsLinkKubernetes(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-C", root, "-test", "-f", "{{.ImportPath}}{{range .Deps}} {{.}}{{end}}", "./...").Output()
	if err != nil {
		t.Fatal("go list -test:", err)
	}
	var linking []string
	module := house(t).Module + "/"
	for line := range strings.Lines(string(out)) {
		program, _, _ := strings.Cut(line, " ")
		if name, ok := strings.CutSuffix(program, ".test"); ok && strings.Contains(line, " k8s.io/kubernetes/") {
			linking = append(linking, strings.TrimPrefix(name, module))
		}
	}
	slices.Sort(linking)
	if diff := cmp.Diff(kubernetesTests(), linking); diff != "" {
		t.Errorf("the tests that link k8s.io/kubernetes (-named here +found):\n%s", diff)
	}
}
