package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

func TestLintKnowsTheCustomResourcesOfACluster(t *testing.T) {
	citest.Gate(t, "one command: 2 s")
	const group = "lint.example.com"
	crd := widgetDefinition(group, nil)
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}},
		}
	}
	cluster.InstallDefinitions(t, crd)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	lint := exec.CommandContext(t.Context(), portcullis, "lint", "-f", "-", "--strict", "--kubeconfig="+kubeconfig)
	lint.Stdin = strings.NewReader(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: small}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [` + group + `], apiVersions: [v1], operations: [CREATE], resources: [widgets]}]}
  validations: [{expression: object.size < 5 && object.metadata.name != '' && object.sice < 5}]
`)

	out, err := lint.CombinedOutput()

	const want = "for Widget (lint.example.com/v1): line 1, column 56: undefined field 'sice' (type-check)"
	if err == nil || !strings.Contains(string(out), want) || strings.Count(string(out), "type-check") != 1 {
		t.Errorf("%v, no %q in\n%s", err, want, out)
	}
}
