package kinds

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PolicyParamsKind is the kind of PolicyParams.
const PolicyParamsKind = "PolicyParams"

// MaxParamObjects bounds PolicyParamsSpec.Objects.
const MaxParamObjects = 1000

// PolicyParams are params of policies of Kubernetes in the configuration of the mesh.
type PolicyParams struct {
	TypeMeta `json:",inline"`
	// Metadata names the document. Policies do not name it.
	Metadata Metadata `json:"metadata"`
	// Spec has the params.
	Spec PolicyParamsSpec `json:"spec"`
}

// PolicyParamsSpec has params, and the clusters whose policies read them.
type PolicyParamsSpec struct {
	// Clusters are the clusters whose policies read the objects. Empty means all.
	Clusters []string `json:"clusters,omitempty"`
	// Objects are params, at most 1000: whole objects of Kubernetes with apiVersion, kind and metadata.name. Objects with a metadata.namespace are of a kind
	// that is in namespaces. A Secret is refused.
	Objects []map[string]any `json:"objects"`
}

// Validate returns the errors of the document, with paths from the top of it.
func (p *PolicyParams) Validate() field.ErrorList {
	errs := p.Metadata.validate(field.NewPath("metadata"))
	spec := field.NewPath("spec")
	errs = append(errs, validateNames(p.Spec.Clusters, spec.Child("clusters"))...)
	path := spec.Child("objects")
	switch n := len(p.Spec.Objects); {
	case n == 0:
		return append(errs, field.Required(path, "the params, for example a ConfigMap"))
	case n > MaxParamObjects:
		return append(errs, field.TooMany(path, n, MaxParamObjects))
	}
	for i, object := range p.Spec.Objects {
		errs = append(errs, validateParam(object, path.Index(i))...)
	}
	return errs
}

// validateParam checks the fields of an object by which policies find it.
func validateParam(object map[string]any, path *field.Path) (errs field.ErrorList) {
	dropNulls(object, "metadata", "namespace")
	dropNulls(object, "metadata", "labels")
	text := func(remedy string, fields ...string) string {
		at := path.Child(fields[0], fields[1:]...)
		value, found, err := unstructured.NestedString(object, fields...)
		switch {
		case err != nil:
			actual, _, _ := unstructured.NestedFieldNoCopy(object, fields...)
			errs = append(errs, field.TypeInvalid(at, actual, "must be a text: put it in quotes"))
		case value == "" && (remedy != "" || found):
			errs = append(errs, field.Required(at, remedy))
		}
		return value
	}
	version, kind := text("the version of the object, as in v1 or example.com/v1", "apiVersion"), text("the kind of the object, as in ConfigMap", "kind")
	text("paramRef.name or the order of params goes by it", "metadata", "name")
	text("", "metadata", "namespace")
	if len(errs) > 0 {
		return errs
	}
	if _, err := schema.ParseGroupVersion(version); err != nil {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), version, "must be VERSION or GROUP/VERSION, as in v1 or example.com/v1"))
	}
	if version == "v1" && kind == "Secret" {
		errs = append(errs, field.Forbidden(path, "each reader of the configuration would see the Secret: leave it in the cluster, or write a ConfigMap"))
	}
	labels := path.Child("metadata", "labels")
	values, _, err := unstructured.NestedStringMap(object, "metadata", "labels")
	if err != nil {
		return append(errs, field.Forbidden(labels, "must be a mapping of texts to texts: put values in quotes"))
	}
	return append(errs, metav1validation.ValidateLabels(values, labels)...)
}

// dropNulls removes a field of an object, or the keys in it, that are null: API servers do so in custom resources.
func dropNulls(object map[string]any, fields ...string) {
	switch value, _, _ := unstructured.NestedFieldNoCopy(object, fields...); value := value.(type) {
	case nil:
		unstructured.RemoveNestedField(object, fields...)
	case map[string]any:
		maps.DeleteFunc(value, func(_ string, v any) bool { return v == nil })
	}
}
