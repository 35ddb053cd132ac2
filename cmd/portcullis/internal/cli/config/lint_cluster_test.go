package config

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// aboutWidgets is a policy whose expression misspells a field of a custom resource.
const aboutWidgets = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: small}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}]}
  validations: [{expression: object.spec.sice < 5}]
`

// definition is a CustomResourceDefinition with a field of a whole number.
func definition(plural, kind, field string) map[string]any {
	object := func(name string, schema any) map[string]any {
		return map[string]any{"type": "object", "properties": map[string]any{name: schema}}
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + ".example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": object("spec", object(field, map[string]any{"type": "integer"}))},
			}},
		},
	}
}

// TestTheDefinitionsOfAClusterAreBounded has an API server that answers a list of many items, an endless one, or no list.
func TestTheDefinitionsOfAClusterAreBounded(t *testing.T) {
	for want, answer := range map[string]func(w io.Writer){
		"more than 5000 definitions": func(w io.Writer) {
			fmt.Fprintf(w, `{"kind":"List","items":[%s{}]}`, strings.Repeat(`{},`, MaxDefinitions))
		},
		"more than 67108864 bytes": func(w io.Writer) {
			fmt.Fprint(w, `{"kind":"List","items":[`)
			for item := `{"metadata":{"name":"` + strings.Repeat("x", 1<<20) + `"}},`; ; {
				if _, err := io.WriteString(w, item); err != nil {
					return
				}
			}
		},
		"more than 1000000 values": func(w io.Writer) {
			fmt.Fprintf(w, `{"items":[{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"allOf":[0%s]}}}]}}]}`, strings.Repeat(",0", MaxDefinitionsValues))
		},
		"has more than 50000 objects": func(w io.Writer) {
			fmt.Fprintf(w, `{"kind":"List","items":[{"spec":{"versions":[{}%s]}}]}`, strings.Repeat(",{}", answers.MaxItemParts))
		},
		"larger than 8388608 bytes": func(w io.Writer) {
			for text := strings.Repeat(" ", 1<<20); ; {
				if _, err := io.WriteString(w, text); err != nil {
					return
				}
			}
		},
		"want \"{\" in JSON": func(w io.Writer) { fmt.Fprint(w, `[]`) },
		"is no definition":   func(w io.Writer) { fmt.Fprint(w, `{"items":[7]}`) },
	} {
		file := serverOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			answer(w)
		})
		clitest.Execute(t, NewLint(), strings.NewReader(aboutWidgets), "-f", "-", "--kubeconfig="+file).Fails(t, want)
	}
	file := serverOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"List","items":[%s{}]}`, strings.Repeat(`{},`, MaxDefinitions-1))
	})
	if r := clitest.Execute(t, NewLint(), strings.NewReader(aboutWidgets), "-f", "-", "--kubeconfig="+file); r.Code != 0 {
		t.Errorf("exit code %d with as many definitions as may be: %s", r.Code, r.Notes)
	}
}

// definitionServer is an API server that lists definitions, one in a page. The result is a kubeconfig.
func definitionServer(t *testing.T, definitions ...map[string]any) string {
	t.Helper()
	return serverOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" || len(definitions) == 0 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		n := len(r.URL.Query().Get("continue"))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinitionList", "items": definitions[n : n+1],
			"metadata": map[string]any{"continue": strings.Repeat("x", (n+1)%len(definitions))},
		})
	})
}

// serverOf is an API server. The result is a kubeconfig.
func serverOf(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: prod-1, contexts: [{name: prod-1, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLintChecksTypesByTheDefinitionsOfACluster(t *testing.T) {
	const want = "for Widget (example.com/v1): line 1, column 12: undefined field 'sice' (type-check)"
	file := definitionServer(t, definition("gadgets", "Gadget", "sice"), definition("widgets", "Widget", "size"))
	for _, flag := range []string{"--kubeconfig=" + file, "--kube-context=prod-1"} {
		t.Setenv("KUBECONFIG", file)
		if r := clitest.Execute(t, NewLint(), strings.NewReader(aboutWidgets), "-f", "-", flag); r.Code != 0 || !strings.Contains(r.Out, want) {
			t.Errorf("%s: exit code %d, no %q in %s%s", flag, r.Code, want, r.Out, r.Notes)
		}
	}
	if r := clitest.Execute(t, NewLint(), strings.NewReader(aboutWidgets), "-f", "-"); r.Code != 0 || strings.Contains(r.Out, "type-check") {
		t.Errorf("without a cluster: exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
	clitest.Execute(t, NewLint(), strings.NewReader(aboutWidgets), "-f", "-", "--kubeconfig="+definitionServer(t)).
		Fails(t, "customresourcedefinitions of the cluster: ")
	clitest.Execute(t, NewLint(), strings.NewReader(aboutWidgets), "-f", "-", "--kubeconfig=nothere").Fails(t, "nothere")
}

func TestLintBesideAHostileAPIServer(t *testing.T) {
	clitest.BesideAHostileAPIServer(t, func(kubeconfig string) clitest.Result {
		return clitest.Execute(t, NewLint(), strings.NewReader(aboutWidgets), "-f", "-", "--kubeconfig="+kubeconfig)
	})
}
