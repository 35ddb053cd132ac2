package kinds

import (
	"maps"
	"path/filepath"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ClusterKind is the kind of a Cluster.
const ClusterKind = "Cluster"

// MaxStaticNamespaces bounds NamespaceSource.Static.
const MaxStaticNamespaces = 10_000

// Cluster is a Kubernetes cluster that sends reviews: how it is recognised, and where the mesh learns what a review does
// not carry. Its name is the one in the paths that the cluster's API servers call.
type Cluster struct {
	TypeMeta `json:",inline"`
	// Metadata names the cluster.
	Metadata Metadata `json:"metadata"`
	// Spec describes the cluster.
	Spec ClusterSpec `json:"spec"`
}

// ClusterSpec describes a cluster.
type ClusterSpec struct {
	// Identities are the callers that may send reviews of this cluster: the first URI in a client certificate, else its
	// common name. Empty means nobody.
	Identities []string `json:"identities,omitempty"`
	// Namespaces is where the labels of namespaces come from. Absent means that they are unknown: a review that a
	// namespaceSelector has to look at is then refused, since neither a match nor a skip would be true.
	Namespaces *NamespaceSource `json:"namespaces,omitempty"`
}

// NamespaceSource is where the labels of namespaces come from: exactly one of its fields is set.
type NamespaceSource struct {
	// Kubeconfig is the absolute path of a kubeconfig file for the cluster. Its current context may get, list and watch
	// namespaces.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Static are the labels by name of namespace. A namespace that is not in it does not exist. The label
	// kubernetes.io/metadata.name, which API servers give every namespace, need not be written.
	Static map[string]map[string]string `json:"static,omitempty"`
}

// Validate returns what is wrong with the cluster, with paths from the top of the document.
func (c *Cluster) Validate() field.ErrorList {
	errs := c.Metadata.validate(field.NewPath("metadata"))
	spec := field.NewPath("spec")
	errs = append(errs, validateIdentities(c.Spec.Identities, spec.Child("identities"))...)
	if c.Spec.Namespaces != nil {
		errs = append(errs, c.Spec.Namespaces.validate(spec.Child("namespaces"))...)
	}
	return errs
}

func (n *NamespaceSource) validate(path *field.Path) field.ErrorList {
	if (n.Kubeconfig == "") == (n.Static == nil) {
		return field.ErrorList{field.Required(path, "exactly one of kubeconfig and static is required")}
	}
	if n.Kubeconfig != "" && !filepath.IsAbs(n.Kubeconfig) {
		return field.ErrorList{field.Invalid(path.Child("kubeconfig"), n.Kubeconfig, "must be an absolute path")}
	}
	return validateStatic(n.Static, path.Child("static"))
}

func validateStatic(static map[string]map[string]string, path *field.Path) field.ErrorList {
	if len(static) > MaxStaticNamespaces {
		return field.ErrorList{field.TooMany(path, len(static), MaxStaticNamespaces)}
	}
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(static)) {
		at := path.Key(name)
		errs = append(errs, invalid(at, name, apivalidation.ValidateNamespaceName(name, false))...)
		errs = append(errs, metav1validation.ValidateLabels(static[name], at)...)
	}
	return errs
}
