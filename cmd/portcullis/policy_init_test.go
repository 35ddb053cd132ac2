package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

// TestANewPolicyPassesItsCases follows the README.md and the workflow of the folder. Of apply, which needs a mesh, it tries a dry run.
func TestANewPolicyPassesItsCases(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("deploy", 0o700); err != nil {
		t.Fatal(err)
	}
	write("deploy/web.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}")
	said, code := execute(t, "policy", "init", "require-owner")
	if code != 0 || !strings.Contains(said, "portcullis test require-owner --coverage-min 100") {
		t.Fatalf("exit code %d: %s", code, said)
	}
	if said, code := execute(t, "test", "require-owner", "--coverage-min", "100"); code != 0 {
		t.Errorf("exit code %d: %s", code, said)
	}
	t.Chdir("require-owner")

	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	workflow, err := os.ReadFile(filepath.Join(".github", "workflows", "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(workflow, &map[string]any{}); err != nil {
		t.Error(err)
	}
	var script strings.Builder
	for _, found := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllSubmatch(readme, -1) {
		script.Write(found[1])
	}
	for _, found := range regexp.MustCompile(`(?m)- run: (portcullis .*\n)`).FindAllSubmatch(workflow, -1) {
		script.Write(found[1])
	}
	ran := map[string]int{}
	for _, words := range commandLines(t, "require-owner", script.String()) {
		if err := taken(words); err != nil {
			t.Errorf("%q: %v", words, err)
		}
		args := words[1:]
		if args[0] == "apply" {
			args = append(slices.DeleteFunc(slices.Clone(args), func(w string) bool { return w == "--wait" }), "--dry-run=client")
		}
		want, part := 0, ""
		if args[0] == "review" {
			want, part = cli.ExitDenied, "require-owner  metadata.labels: set the label team"
		}
		if said, code := execute(t, args...); code != want || !strings.Contains(said, part) {
			t.Errorf("%q: exit code %d, want %d with %q:\n%s", args, code, want, part, said)
		}
		ran[args[0]]++
	}
	if ran["test"] != 2 || ran["review"] != 1 || ran["apply"] != 1 || ran["lint"] != 1 {
		t.Errorf("%v", ran)
	}

	write("policy.yaml", "mine")
	if said, code := execute(t, "policy", "init", "../require-owner"); code != cli.ExitError || !strings.Contains(said, "is not empty") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if mine, err := os.ReadFile("policy.yaml"); string(mine) != "mine" {
		t.Errorf("the file is %q now, %v", mine, err)
	}
}

func TestNamesOfNewPoliciesAreChecked(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, want := range map[string]string{
		"Require_Team": `did you mean "require-team"?`, "a.b": `did you mean "a-b"?`, "ü": "is no name of a policy", strings.Repeat("a", 64): "is no name of a policy",
	} {
		if said, code := execute(t, "policy", "init", "dir/"+name+"/."); code != cli.ExitError || !strings.Contains(said, want) {
			t.Errorf("%q: exit code %d, want %q: %s", name, code, want, said)
		}
	}
	if said, code := execute(t, "policy", "init"); code != cli.ExitError || !strings.Contains(said, "name the policy, for example require-team") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if said, code := execute(t, "policy", "int", "a"); code != cli.ExitError || !strings.Contains(said, `did you mean "init"?`) {
		t.Errorf("exit code %d: %s", code, said)
	}
}
