package schemas

import (
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// internalDefinitions are the definitions as API servers keep them in memory.
func internalDefinitions(t *testing.T) []apiextensions.CustomResourceDefinition {
	t.Helper()
	all, err := Definitions(filepath.Join(root, "internal", "config", "kinds"))
	if err != nil {
		t.Fatal(err)
	}
	out := make([]apiextensions.CustomResourceDefinition, len(all))
	for i := range all {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&all[i])
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&all[i].Spec)
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&all[i], &out[i], nil); err != nil {
			t.Fatal(err)
		}
		out[i].Status.StoredVersions = []string{"v1"}
	}
	return out
}

// TestAPIServersTakeTheDefinitions asks the code that API servers have: structural schemas, and the cost of expressions.
func TestAPIServersTakeTheDefinitions(t *testing.T) {
	for _, crd := range internalDefinitions(t) {
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), &crd) {
			t.Errorf("%s: %v", crd.Name, err)
		}
	}
}
