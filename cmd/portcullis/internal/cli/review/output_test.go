package review

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// manifests are files with each kind of document.
var manifests = map[string]string{
	"deploy/web.yaml": "# the shop\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  labels:\n    app: web\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: web}\n",
	"deploy/more/list.json":         "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n {\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}},\n {\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"failing\"}}\n]}\n",
	"deploy/more/broken.yml":        "apiVersion: v1\nkind: Pod\nmetadata: {name: b\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: job-}\n",
	"deploy/more/versionless.yaml":  "\nkind: Pod\n",
	"deploy/kustomization.yaml":     "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
	"deploy/values.yaml":            "image: nginx\n---\n- a\n",
	"deploy/.hidden/secret.yaml":    "kind: [",
	"deploy/notes.txt":              "kind: [",
	"deploy/more/deeper/empty.yaml": "# nothing\n",
}

// inManifests changes to a directory with the files.
func inManifests(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range manifests {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// byKind judges by the kind of the object.
func byKind(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
	answer := &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Allowed: true}}
	deny := func(outcome string, outcomes ...*admissionv1.HookOutcome) {
		answer.Response.Allowed, answer.Outcome, answer.Outcomes = false, outcome, outcomes
		answer.Response.Status = &admissionv1.Status{Message: "all of it", Code: 422}
	}
	switch r.GetRequest().GetKind().GetKind() {
	case "Deployment":
		deny("denied",
			&admissionv1.HookOutcome{Hook: "require-team", Outcome: "denied", Reason: "Policy 'require-team' denied request: metadata.labels.team: set the label team"},
			&admissionv1.HookOutcome{Hook: "other", Outcome: "skipped", Reason: "not about it"},
			&admissionv1.HookOutcome{Hook: "probes", Outcome: "failed", Reason: "expression 'object.spec.x' resulted in error: no such key: x"},
			&admissionv1.HookOutcome{Hook: "replicas", Outcome: "denied", Reason: "ValidatingAdmissionPolicy 'replicas' with binding 'b' denied request: spec: none, is it 50%,\nor more?"},
		)
		answer.Response.Warnings = []string{"apps/v1 is old"}
	case "Pod":
		if r.GetRequest().GetName() == "failing" {
			deny("failed", &admissionv1.HookOutcome{Hook: "images.example.com", Outcome: "failed", Reason: "no host serves the hook"})
			break
		}
		deny("denied", &admissionv1.HookOutcome{Hook: "images.example.com", Outcome: "denied", Reason: "not pinned"})
		answer.Response.Status.Details = &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{{Message: "why"}, {Field: "metadata.name", Message: "why"}}}
	case "Service":
		answer.Outcomes = []*admissionv1.HookOutcome{{Hook: "other", Outcome: "skipped"}}
	case "ConfigMap":
		answer.Outcomes = []*admissionv1.HookOutcome{{Hook: "other", Outcome: "allowed"}}
	}
	return answer, nil
}

// TestDirectoriesAreReviewed in each form of the output: one document that cannot be read keeps no other from its verdict.
func TestDirectoriesAreReviewed(t *testing.T) {
	mesh := clitest.StartMesh(t, byKind).File(t)
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for format, file := range map[string]string{"": "directory.txt", "wide": "directory-wide.txt", "github": "directory-github.txt", "sarif": "directory.sarif"} {
		t.Run(file, func(t *testing.T) {
			inManifests(t)
			t.Setenv("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
			args := []string{"-f", "deploy", "--ready-file", mesh, "--stage", "validate"}
			if format != "" {
				args = append(args, "-o", format)
			}
			r := clitest.Execute(t, NewCommand(), nil, args...)
			if r.Code != cli.ExitError {
				t.Errorf("exit code %d: %s", r.Code, r.Notes)
			}
			t.Chdir(filepath.Dir(testdata))
			clitest.Golden(t, file, r.Out)
			const summary = "7 reviewed: 2 allowed, 2 denied, 3 failed, 1 warnings; 1 matched no policy or hook; 3 documents that are no objects were left out\n"
			if all := r.Out + r.Notes; !strings.HasSuffix(all, summary) {
				t.Errorf("no summary at the end of %s", all)
			}
		})
	}
}

func TestManyReviewsAsJSON(t *testing.T) {
	inManifests(t)
	r := clitest.Execute(t, NewCommand(), nil, "deploy", "--ready-file", clitest.StartMesh(t, byKind).File(t), "-o", "json")
	var all struct {
		Reviews []report `json:"reviews"`
		Summary summary  `json:"summary"`
	}
	if err := json.Unmarshal([]byte(r.Out), &all); err != nil {
		t.Fatalf("%v: %s", err, r.Out)
	}
	if s := all.Summary; s.Reviewed != 7 || s.Allowed != 2 || s.Denied != 2 || s.Failed != 3 || s.Unmatched != 1 || s.Foreign != 3 {
		t.Errorf("summary %+v", s)
	}
	if one := all.Reviews[0]; one.File != "deploy/more/broken.yml" || one.Line != 3 || !strings.HasPrefix(one.Error, "not valid YAML: ") {
		t.Errorf("the first is %+v", one)
	}
	if last := all.Reviews[6]; last.Object != "Service default/web" || last.Line != 10 {
		t.Errorf("the last is %+v", last)
	}
}

// TestSARIFHasWhatItsSchemaRequires: the required fields of SARIF 2.1.0, and those that GitHub requires (docs.github.com, "SARIF support for code scanning").
func TestSARIFHasWhatItsSchemaRequires(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "directory.sarif"))
	if err != nil {
		t.Fatal(err)
	}
	var log map[string]any
	if err := json.Unmarshal(data, &log); err != nil {
		t.Fatal(err)
	}
	at := func(v any, path ...any) any {
		for _, step := range path {
			switch step := step.(type) {
			case string:
				m, _ := v.(map[string]any)
				v = m[step]
			case int:
				l, _ := v.([]any)
				v = l[step]
			}
		}
		return v
	}
	if log["version"] != "2.1.0" || at(log, "runs", 0, "tool", "driver", "name") != "portcullis" {
		t.Errorf("version %v, tool %v", log["version"], at(log, "runs", 0, "tool"))
	}
	rules := map[any]bool{}
	for _, rule := range at(log, "runs", 0, "tool", "driver", "rules").([]any) {
		if id := at(rule, "id"); id == "" || rules[id] {
			t.Errorf("rule %v", rule)
		} else {
			rules[id] = true
		}
	}
	results, _ := at(log, "runs", 0, "results").([]any)
	if len(results) != 8 {
		t.Errorf("%d results", len(results))
	}
	for _, result := range results {
		text, _ := at(result, "message", "text").(string)
		uri, _ := at(result, "locations", 0, "physicalLocation", "artifactLocation", "uri").(string)
		line, _ := at(result, "locations", 0, "physicalLocation", "region", "startLine").(float64)
		level := at(result, "level")
		if text == "" || uri == "" || line < 1 || !rules[at(result, "ruleId")] || level != "error" && level != "warning" {
			t.Errorf("result %v", result)
		}
	}
}

// TestWhatWasJudgedIsPrinted although a later review has no verdict, or the trace of one cannot be exported.
func TestWhatWasJudgedIsPrinted(t *testing.T) {
	const documents = "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: two}\n"
	mesh := clitest.StartMesh(t, func(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		if r.GetRequest().GetName() == "two" {
			return nil, status.Error(codes.Unavailable, "connection refused")
		}
		return &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Uid: r.GetRequest().GetUid(), Allowed: true}}, nil
	}).File(t)
	r := clitest.Execute(t, NewCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", mesh, "--stage", "validate")
	if r.Code != cli.ExitError || !strings.HasPrefix(r.Out, "standard input:1  Pod/one  allowed  -  no policy or hook matched\n1 reviewed: ") ||
		!strings.Contains(r.Notes, "no mesh answers") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1") // nothing listens there
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	one, _, _ := strings.Cut(documents, "---")
	if r = clitest.Execute(t, NewCommand(), strings.NewReader(one), "-f", "-", "--ready-file", mesh, "--stage", "validate"); !strings.HasPrefix(r.Out, "validate: allowed\n") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
}
