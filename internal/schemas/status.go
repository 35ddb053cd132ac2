package schemas

import (
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// statusSchema is the schema of the status of every kind.
func statusSchema() schema {
	r := &reader{used: map[string]bool{}}
	condition := r.object(reflect.TypeFor[metav1.Condition](), "")
	conditions := schema{
		Type: "array", XListType: ptr.To("map"), XListMapKeys: []string{"type"}, MaxItems: ptr.To(int64(8)),
		Description: "conditions are Accepted (the document is valid), InForce (every dispatcher known judges by this version of it), and " +
			"Served (each of its hooks has a host, or is called over HTTPS). Reconciling (not in force yet) and Stalled (not accepted) are " +
			"there only while they are true.",
	}
	conditions.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &condition}
	return schema{
		// Tools without knowledge of these kinds take an object without a status for ready: kstatus compares generations.
		Default: &apiextensionsv1.JSON{Raw: []byte(`{"observedGeneration":-1}`)},
		Type:    "object", Description: "status is the state of the document in the mesh. One of the dispatchers writes it.",
		Properties: map[string]schema{
			"observedGeneration": {
				Type: "integer", Format: "int64",
				Description: "observedGeneration is metadata.generation of the version that the status is about; -1 before the first status.",
			},
			"inForce":    {Type: "string", Description: "inForce is how many dispatchers of those known judge by this version, as in 2/2."},
			"served":     {Type: "string", Description: "served is how many hosts serve the hooks of the document."},
			"conditions": conditions,
		},
	}
}
