package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
)

var update = flag.Bool("update", false, "record what kube-apiserver says in testdata instead of comparing with it")

// verdict is the answer of kube-apiserver to one configuration of the corpus.
type verdict struct {
	File     string `json:"file"`
	Accepted bool   `json:"accepted"`
	Code     int32  `json:"code,omitempty"`
	Message  string `json:"message,omitempty"`
}

// recordedVerdicts is the file of all verdicts, sorted by file. Tests of
// other modules read it too: it is the API server's opinion without an API
// server.
const recordedVerdicts = "testdata/webhookconfiguration_verdicts.json"

// TestCorpusWebhookConfigurationsAreJudgedAsRecorded asks the real API server
// about each v1 configuration of the corpus and compares with the record. The
// record can be trusted because of this test.
func TestCorpusWebhookConfigurationsAreJudgedAsRecorded(t *testing.T) {
	files := corpusConfigurations(t)
	if *update {
		record(t, files)
	}
	recorded := readVerdicts(t)
	if len(recorded) != len(files) {
		t.Errorf("%d verdicts are recorded for %d files; run with -update", len(recorded), len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got := judgeFile(t, file)
			if diff := cmp.Diff(recorded[got.File], got); diff != "" {
				t.Errorf("kube-apiserver judges differently than recorded (-recorded +now; run with -update if that is right):\n%s", diff)
			}
		})
	}
}

// TestCorpusWebhookConfigurationsAreReadByTheMeshAsByTheAPIServer holds the
// mesh to the same verdicts, and to errors that are at least as clear: they
// name every field that kube-apiserver's name, and a line.
func TestCorpusWebhookConfigurationsAreReadByTheMeshAsByTheAPIServer(t *testing.T) {
	recorded := readVerdicts(t)
	for _, file := range corpusConfigurations(t) {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			objects, problems := config.NewDecoder(apiserver.Validator{}).Decode(name, readFile(t, file))
			err, theirs := problems.Err(), recorded[name]
			if accepted := err == nil && len(objects) == 1; accepted != theirs.Accepted {
				t.Fatalf("the mesh says %v to %d objects, kube-apiserver: %+v", err, len(objects), theirs)
			}
			if err == nil {
				return
			}
			for _, field := range fieldPath.FindAllString(noClientConfig.ReplaceAllString(theirs.Message, ""), -1) {
				if !strings.Contains(err.Error(), field) {
					t.Errorf("the mesh says %v, which does not name %s; kube-apiserver says %s", err, field, theirs.Message)
				}
			}
			if line := regexp.MustCompile(regexp.QuoteMeta(name) + `:[1-9]\d*: `); !line.MatchString(err.Error()) || !fieldPath.MatchString(err.Error()) {
				t.Errorf("the mesh says %v, want a line and a field", err)
			}
		})
	}
}

// fieldPath is how Kubernetes names a field of a webhook configuration.
var fieldPath = regexp.MustCompile(`\b(?:metadata|webhooks\[\d+\])(?:\.[A-Za-z]+(?:\[\d+\])*)+`)

// noClientConfig is the one complaint that the mesh does not share: a hook
// without an address is served over streams.
var noClientConfig = regexp.MustCompile(`webhooks\[\d+\]\.clientConfig: Required value`)

func TestCorpusVerdictsAreStrict(t *testing.T) {
	const manifest = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: strict}
webhooks: []
webhoks: []
`
	got := judge(t, []byte(manifest))
	if got.Accepted || !strings.Contains(got.Message, `unknown field "webhoks"`) {
		t.Errorf("verdict = %+v, want a refusal of the unknown field", got)
	}
}

// corpusConfigurations are the v1 configurations of the corpus, sorted.
func corpusConfigurations(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(corpus(t), "webhookconfigurations", "*.v1.*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("the corpus has no webhook configurations")
	}
	return files
}

func judgeFile(t *testing.T, file string) verdict {
	t.Helper()
	manifest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	result := judge(t, manifest)
	result.File = filepath.Base(file)
	return result
}

// judge sends the manifest as it is, dry, with strict field validation.
func judge(t *testing.T, manifest []byte) verdict {
	t.Helper()
	resource, err := resourceOf(manifest)
	if err != nil {
		t.Fatal(err)
	}
	err = cluster.Client().AdmissionregistrationV1().RESTClient().Post().
		Resource(resource).
		Param("dryRun", metav1.DryRunAll).
		Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", runtime.ContentTypeYAML). // JSON is YAML too
		Body(manifest).
		Do(t.Context()).
		Error()
	if err == nil {
		return verdict{Accepted: true}
	}
	var refusal apierrors.APIStatus
	if !errors.As(err, &refusal) {
		t.Fatalf("no answer: %v", err)
	}
	return verdict{Code: refusal.Status().Code, Message: refusal.Status().Message}
}

func resourceOf(manifest []byte) (string, error) {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(manifest, &meta); err != nil {
		return "", fmt.Errorf("read the kind: %w", err)
	}
	switch meta.Kind {
	case "ValidatingWebhookConfiguration":
		return "validatingwebhookconfigurations", nil
	case "MutatingWebhookConfiguration":
		return "mutatingwebhookconfigurations", nil
	default:
		return "", fmt.Errorf("kind %q is no webhook configuration", meta.Kind)
	}
}

// readVerdicts is the record by file.
func readVerdicts(t *testing.T) map[string]verdict {
	t.Helper()
	data, err := os.ReadFile(recordedVerdicts)
	if err != nil {
		t.Fatalf("no record (run with -update to make it): %v", err)
	}
	var verdicts []verdict
	if err := json.Unmarshal(data, &verdicts); err != nil {
		t.Fatalf("read %s: %v", recordedVerdicts, err)
	}
	byFile := make(map[string]verdict, len(verdicts))
	for _, v := range verdicts {
		byFile[v.File] = v
	}
	return byFile
}

func record(t *testing.T, files []string) {
	t.Helper()
	var verdicts []verdict
	for _, file := range files {
		verdicts = append(verdicts, judgeFile(t, file))
	}
	data, err := json.MarshalIndent(verdicts, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordedVerdicts, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
