// Package schemas makes the CustomResourceDefinitions of portcullis.dev/v1 for API servers, in deploy/chart/portcullis/crds, and the JSON schemas for
// editors, in deploy/schemas/. Both come from the Go types, their comments, and rules that mirror their validation. The decoder of package config
// decides the meaning of a document: a schema may let more pass, and never less (docs/design/0024-custom-resources.md).
package schemas

import (
	"fmt"
	"reflect"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// kind is one kind of portcullis.dev/v1.
type kind struct {
	kinds.Resource
	description string
	of          reflect.Type
	rules       map[string]rule
	columns     []apiextensionsv1.CustomResourceColumnDefinition
}

// inForce are the columns of kinds that hooks are made of.
func inForce(first ...apiextensionsv1.CustomResourceColumnDefinition) []apiextensionsv1.CustomResourceColumnDefinition {
	return append(first,
		column("Accepted", `.status.conditions[?(@.type=="Accepted")].status`),
		column("In Force", ".status.inForce"),
	)
}

func column(name, path string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: "string", JSONPath: path}
}

func wide(c apiextensionsv1.CustomResourceColumnDefinition) apiextensionsv1.CustomResourceColumnDefinition {
	c.Priority = 1
	return c
}

// allKinds are the kinds, with their schemas' sources.
func allKinds() []kind {
	details := map[string]kind{
		kinds.HookRouteKind: {
			description: "HookRoute says how a hook, or all hooks of a configuration, are called, and which identities may serve them.",
			of:          reflect.TypeFor[kinds.HookRoute](), rules: routeRules(),
			columns: inForce(column("Configuration", ".spec.configuration"), wide(column("Hook", ".spec.hook"))),
		},
		kinds.ClusterKind: {
			description: "Cluster is a Kubernetes cluster that sends reviews to the mesh.",
			of:          reflect.TypeFor[kinds.Cluster](), rules: clusterRules(), columns: inForce(),
		},
		kinds.RoleKind: {
			description: "Role grants identities verbs of the mesh's ConfigService.",
			of:          reflect.TypeFor[kinds.Role](), rules: roleRules(), columns: inForce(column("Role", ".spec.role")),
		},
		kinds.PolicyKind: {
			description: "Policy is a rule for the objects of clusters that the mesh judges itself: a short form of a ValidatingAdmissionPolicy or a " +
				"MutatingAdmissionPolicy and its binding.",
			of: reflect.TypeFor[kinds.Policy](), rules: policyRules(),
			columns: inForce(column("Mode", ".spec.mode"), wide(column("Resources", ".spec.resources"))),
		},
		kinds.PolicyParamsKind: {
			description: "PolicyParams are params of ValidatingAdmissionPolicies and MutatingAdmissionPolicies in the configuration of the mesh: objects that " +
				"no cluster needs to have.",
			of: reflect.TypeFor[kinds.PolicyParams](), rules: paramsRules(), columns: inForce(wide(column("Clusters", ".spec.clusters"))),
		},
		kinds.InitializersKind: {
			description: "InitializerConfiguration has initializers, which change objects before they exist in the cluster: it is the " +
				"InitializerConfiguration of admissionregistration.k8s.io/v1alpha1 in Kubernetes 1.7.",
			of:    reflect.TypeFor[kinds.InitializerConfiguration](),
			rules: initializerRules(), columns: inForce(wide(column("Initializers", ".initializers[*].name"))),
		},
	}
	var all []kind
	for _, resource := range kinds.Resources() {
		k := details[resource.Kind]
		if resource.Kubernetes != "" {
			k = kindsOfKubernetes()[resource.Kind]
			k.description = fmt.Sprintf("%s is a %s of admissionregistration.k8s.io/v1 for the mesh, which the API server of this cluster does not use.",
				resource.Kind, resource.Kubernetes)
		}
		k.Resource = resource
		all = append(all, k)
	}
	return all
}

// kindsOfKubernetes are the kinds that Kubernetes has under other names.
func kindsOfKubernetes() map[string]kind {
	return map[string]kind{
		kinds.ValidatingHooksKind: {
			of: reflect.TypeFor[admissionregistrationv1.ValidatingWebhookConfiguration](), rules: webhookRules(), columns: hooks(),
		},
		kinds.MutatingHooksKind: {
			of: reflect.TypeFor[admissionregistrationv1.MutatingWebhookConfiguration](), rules: mutatingRules(), columns: hooks(),
		},
		kinds.ValidatingHookPolicyKind: {
			of: reflect.TypeFor[kinds.ValidatingHookPolicy](), rules: validatingPolicyRules(), columns: inForce(),
		},
		kinds.MutatingHookPolicyKind: {
			of: reflect.TypeFor[admissionregistrationv1.MutatingAdmissionPolicy](), rules: mutatingPolicyRules(), columns: inForce(),
		},
		kinds.ValidatingHookPolicyBindingKind: {
			of:    reflect.TypeFor[admissionregistrationv1.ValidatingAdmissionPolicyBinding](),
			rules: validatingBindingRules(), columns: inForce(column("Policy", ".spec.policyName"), column("Actions", ".spec.validationActions")),
		},
		kinds.MutatingHookPolicyBindingKind: {
			of:    reflect.TypeFor[admissionregistrationv1.MutatingAdmissionPolicyBinding](),
			rules: mutatingBindingRules(), columns: inForce(column("Policy", ".spec.policyName")),
		},
	}
}

func hooks() []apiextensionsv1.CustomResourceColumnDefinition {
	return inForce(wide(column("Hooks", ".webhooks[*].name")))
}

// Definitions are the CustomResourceDefinitions. The comments are read from the source of package kinds in a directory.
func Definitions(kindsDir string) ([]apiextensionsv1.CustomResourceDefinition, error) {
	comments, err := readComments(kindsDir)
	if err != nil {
		return nil, err
	}
	var definitions []apiextensionsv1.CustomResourceDefinition
	for _, k := range allKinds() {
		document, err := k.schema(comments)
		if err != nil {
			return nil, err
		}
		definitions = append(definitions, k.definition(document))
	}
	return definitions, nil
}

// schema is the schema of the documents of the kind, without their status.
func (k *kind) schema(comments comments) (schema, error) {
	r := &reader{comments: comments, rules: k.rules, used: map[string]bool{}}
	s := r.object(k.of, "")
	if unused := r.unused(); len(unused) > 0 {
		return s, fmt.Errorf("%s has no fields %s, of which rules speak", k.Kind, strings.Join(unused, ", "))
	}
	if len(r.strange) > 0 {
		return s, fmt.Errorf("%s has fields that documents cannot have: %s", k.Kind, strings.Join(r.strange, ", "))
	}
	s.Description = k.description
	s.Properties["apiVersion"] = schema{Type: "string", Description: "apiVersion is " + kinds.APIVersion + "."}
	s.Properties["kind"] = schema{Type: "string", Description: "kind is " + k.Kind + "."}
	s.Properties["metadata"] = schema{Type: "object"}
	s.Required = nil
	if spec, ok := s.Properties["spec"]; ok && len(spec.Required) > 0 {
		s.Required = []string{"spec"}
	}
	return s, nil
}

func (k *kind) definition(document schema) apiextensionsv1.CustomResourceDefinition {
	document.Properties["status"] = statusSchema()
	return apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: k.Plural + "." + kinds.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kinds.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: k.Plural, Singular: strings.ToLower(k.Kind), Kind: k.Kind, ListKind: k.Kind + "List",
				ShortNames: k.Short, Categories: []string{"portcullis"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kinds.Version, Served: true, Storage: true,
				Schema:                   &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &document},
				Subresources:             &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				AdditionalPrinterColumns: append(k.columns, column("Served", ".status.served"), age()),
			}},
		},
	}
}

func age() apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}
}
