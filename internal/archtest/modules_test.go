package archtest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// root is the module's root, seen from this package.
const root = "../../"

// requirement is a require line of a go.mod.
type requirement struct {
	Path     string
	Version  string
	Indirect bool
}

// requirements are the require lines of a go.mod file, by module path.
func requirements(t *testing.T, file string) map[string]requirement {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatalf("go mod edit -json %s: %v", file, err)
	}
	var mod struct{ Require []requirement }
	if err := json.Unmarshal(out, &mod); err != nil { //nolint:musttag // the fields bear the go command's own names
		t.Fatal(err)
	}
	byPath := map[string]requirement{}
	for _, r := range mod.Require {
		byPath[r.Path] = r
	}
	return byPath
}

func TestGeneratedCodeIsMadeByTheVersionsItRunsWith(t *testing.T) {
	ours, plugins := requirements(t, root+"go.mod"), requirements(t, root+"tools/protoc/go.mod")
	for _, path := range []string{"google.golang.org/protobuf", "github.com/grpc-ecosystem/grpc-gateway/v2"} {
		if got, want := plugins[path].Version, ours[path].Version; got != want || want == "" {
			t.Errorf("tools/protoc/go.mod has %s %q, go.mod has %q: go get -C tools/protoc %s@%s", path, got, want, path, want)
		}
	}
}

func TestEveryDirectDependencyHasAReason(t *testing.T) {
	const document = "docs/design/0001-dependencies.md"
	text, err := os.ReadFile(root + document)
	if err != nil {
		t.Fatal(err)
	}
	ours := requirements(t, root+"go.mod")
	for path, r := range ours {
		if !r.Indirect && !strings.Contains(string(text), "`"+path+"`") {
			t.Errorf("go.mod requires %s, and %s does not say why", path, document)
		}
	}
}
