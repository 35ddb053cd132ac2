package kinds

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/conversion/custom"
)

// ClusterKind is the kind of a Cluster.
const ClusterKind = "Cluster"

// MaxStaticNamespaces bounds NamespaceSource.Static.
const MaxStaticNamespaces = 10_000

// Bounds of ClusterSpec.MaxConfigurationAge. Less than two listings fit in a shorter one. A longer one would be a long time to
// wait for a dispatcher that has died: a permit to serve stale is for incidents that last.
const (
	MinConfigurationAge = 2 * time.Second
	MaxConfigurationAge = 10 * time.Minute
)

// Cluster is a Kubernetes cluster that sends reviews: how its callers are recognised, and the origin of data that a review
// does not carry. The paths that the cluster's API servers call contain its name.
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
	// common name. Empty means none.
	Identities []string `json:"identities,omitempty"`
	// Authorities may vouch for Identities: fingerprints of CA certificates and SPIFFE trust domains, as
	// identity.CheckAuthority takes them. A caller's certificate must have been issued below a listed authority. Empty means
	// every authority of the listener's bundle.
	Authorities []string `json:"authorities,omitempty"`
	// Capabilities are secrets in the path by which callers without a client certificate may send reviews of this cluster, where a
	// dispatcher accepts capabilities (serve --allow-capabilities); at most MaxCapabilities. Empty means none.
	Capabilities []Capability `json:"capabilities,omitempty"`
	// RotateCapability, if present, accepts the capabilities that dispatchers make themselves for this cluster, beside Capabilities
	// (serve --capability-key-file); with Registration they write them into the entries, another one each such time: whole seconds from
	// MinCapabilityPeriod to MaxCapabilityPeriod, as Go writes durations ("720h"). Each is accepted for three such times more. Empty means none.
	RotateCapability string `json:"rotateCapability,omitempty"`
	// Kubeconfig is the absolute path of a kubeconfig file for the cluster. The cluster is then asked for all that reviews do
	// not carry, and the document says none of it: the other fields are absent. Its current context may get, list and watch
	// namespaces; list and watch customresourcedefinitions and apiservices; and create subjectaccessreviews.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Bridge, if present, means that the cluster is asked as with Kubeconfig, through the bridges that run in it (portcullis bridge).
	// Each bridge has an identity of Identities. The other fields are absent.
	Bridge *Bridge `json:"bridge,omitempty"`
	// Namespaces is where the labels of namespaces come from. Absent, without Kubeconfig, means that they are unknown: a
	// review that a namespaceSelector has to look at is then refused, since neither a match nor a skip would be true.
	Namespaces *NamespaceSource `json:"namespaces,omitempty"`
	// APIVersions are the group versions of built-in resources that the cluster serves, as in an apiVersion, the versions of
	// each group in the order of the cluster's discovery. Absent, without Kubeconfig, means that it may serve whatever
	// Kubernetes ever has.
	APIVersions []string `json:"apiVersions,omitempty"`
	// CustomResourceDefinitions are copied from the cluster. Group, names, versions with their subresources, the defaults in schemas and
	// conversion are read, and nothing else. Absent, without Kubeconfig, means that custom resources have the version alone in which they came.
	CustomResourceDefinitions []apiextensionsv1.CustomResourceDefinition `json:"customResourceDefinitions,omitempty"`
	// Bypass exempts requests of this cluster from all hooks. Absent exempts none.
	Bypass *Bypass `json:"bypass,omitempty"`
	// Follow, if present, has the mesh call webhooks that others configure in the cluster, such as cert-manager, Istio or Kyverno. It
	// needs Kubeconfig, whose context may then also get, list, watch and patch mutatingwebhookconfigurations and
	// validatingwebhookconfigurations, and get, create and update leases in kube-system. Absent follows none.
	Follow *Follow `json:"follow,omitempty"`
	// Registration, if present, has the mesh keep the entries in the cluster's own API server: the webhook configurations that
	// `portcullis cluster register` makes. It needs Kubeconfig. Absent leaves them to that command.
	Registration *Registration `json:"registration,omitempty"`
	// MaxConfigurationAge is how old the configuration may be that reviews of the cluster are judged by, as Go writes durations
	// ("30s"), from MinConfigurationAge to MaxConfigurationAge. Empty means as old as the dispatcher has it for all, 5 s. A hook
	// that was added or closed may go uncalled for so long by a dispatcher that has lost its store.
	MaxConfigurationAge string `json:"maxConfigurationAge,omitempty"`
}

// MaxAge is MaxConfigurationAge as a duration; 0 means the dispatcher's own. The cluster must be valid.
func (s *ClusterSpec) MaxAge() time.Duration { return duration(s.MaxConfigurationAge) }

// Bridge marks a cluster whose bridges give access to its API server.
type Bridge struct{}

// NamespaceSource is the source of the labels of namespaces: exactly one field is set.
type NamespaceSource struct {
	// Kubeconfig is the absolute path of a kubeconfig file for the cluster. Its current context may get, list and watch
	// namespaces.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Static are the labels by name of namespace. A namespace that is not in it does not exist. The label
	// kubernetes.io/metadata.name, which API servers give every namespace, need not be written.
	Static map[string]map[string]string `json:"static,omitempty"`
}

// Validate returns the errors of the cluster, with paths from the top of the document.
func (c *Cluster) Validate() field.ErrorList {
	errs := c.Metadata.validate(field.NewPath("metadata"))
	spec := field.NewPath("spec")
	errs = append(errs, validateIdentities(c.Spec.Identities, spec.Child("identities"))...)
	errs = append(errs, validateAuthorities(c.Spec.Authorities, spec.Child("authorities"))...)
	errs = append(errs, validateCapabilities(c.Spec.Capabilities, spec.Child("capabilities"))...)
	errs = append(errs, c.Spec.validateRotation(spec)...)
	errs = append(errs, validateDuration(c.Spec.MaxConfigurationAge, MinConfigurationAge, MaxConfigurationAge, spec.Child("maxConfigurationAge"))...)
	if c.Spec.Bypass != nil {
		errs = append(errs, c.Spec.Bypass.validate(spec.Child("bypass"))...)
	}
	if c.Spec.Follow != nil {
		errs = append(errs, c.Spec.Follow.validate(spec.Child("follow"), c.Spec.Kubeconfig)...)
	}
	if c.Spec.Registration != nil {
		errs = append(errs, c.Spec.Registration.validate(spec.Child("registration"))...)
		if c.Spec.Kubeconfig == "" {
			errs = append(errs, field.Forbidden(spec.Child("registration"),
				"needs spec.kubeconfig; without it, write the entries by `portcullis cluster register --apply`"))
		}
	}
	if c.Spec.Kubeconfig != "" || c.Spec.Bridge != nil {
		return append(errs, c.Spec.validateAsked(spec)...)
	}
	if c.Spec.Namespaces != nil {
		errs = append(errs, c.Spec.Namespaces.validate(spec.Child("namespaces"))...)
	}
	errs = append(errs, validateAPIVersions(c.Spec.APIVersions, spec.Child("apiVersions"))...)
	return append(errs, validateDefinitions(c.Spec.CustomResourceDefinitions, spec.Child("customResourceDefinitions"))...)
}

// validateAsked checks a cluster that is asked: two answers to the same question are none.
func (s *ClusterSpec) validateAsked(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.Bridge == nil:
		errs = validateFile(s.Kubeconfig, path.Child("kubeconfig"))
	case s.Kubeconfig != "":
		errs = field.ErrorList{field.Forbidden(path.Child("kubeconfig"), "the cluster is asked through its bridges: remove it, or spec.bridge")}
	}
	for _, said := range []struct {
		name string
		said bool
	}{
		{"namespaces", s.Namespaces != nil},
		{"apiVersions", s.APIVersions != nil},
		{"customResourceDefinitions", s.CustomResourceDefinitions != nil},
	} {
		if said.said {
			errs = append(errs, field.Forbidden(path.Child(said.name), "the cluster is asked for it: remove it, or spec.kubeconfig and spec.bridge"))
		}
	}
	return errs
}

func validateFile(file string, path *field.Path) field.ErrorList {
	if !filepath.IsAbs(file) {
		return field.ErrorList{field.Invalid(path, file, "must be an absolute path")}
	}
	return nil
}

func validateAPIVersions(versions []string, path *field.Path) field.ErrorList {
	if versions != nil && len(versions) == 0 {
		return field.ErrorList{field.Required(path, "name the group versions that the cluster serves, or leave it out")}
	}
	errs := validateList(versions, path)
	for i, version := range versions {
		if gv, err := schema.ParseGroupVersion(version); err != nil || gv.Version == "" {
			errs = append(errs, field.Invalid(path.Index(i), version, "must be a group and a version, as in apps/v1, or v1"))
		}
	}
	return errs
}

// validateDefinitions checks CustomResourceDefinitions as far as they are read.
func validateDefinitions(crds []apiextensionsv1.CustomResourceDefinition, path *field.Path) field.ErrorList {
	if len(crds) > MaxListItems {
		return field.ErrorList{field.TooMany(path, len(crds), MaxListItems)}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range crds {
		errs = append(errs, validateDefinition(&crds[i], path.Index(i))...)
		if name := crds[i].Name; names[name] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("metadata", "name"), name))
		}
		names[crds[i].Name] = true
	}
	return errs
}

func validateDefinition(crd *apiextensionsv1.CustomResourceDefinition, path *field.Path) field.ErrorList {
	const kind = "CustomResourceDefinition"
	if crd.APIVersion != apiextensionsv1.SchemeGroupVersion.String() {
		return field.ErrorList{notSupported(path.Child("apiVersion"), crd.APIVersion, apiextensionsv1.SchemeGroupVersion.String())}
	}
	if crd.Kind != kind {
		return field.ErrorList{notSupported(path.Child("kind"), crd.Kind, kind)}
	}
	if want := crd.Spec.Names.Plural + "." + crd.Spec.Group; crd.Name != want {
		return field.ErrorList{field.Invalid(path.Child("metadata", "name"), crd.Name, fmt.Sprintf("must be spec.names.plural.spec.group, %q", want))}
	}
	if _, err := custom.Compile(crd); err != nil {
		return field.ErrorList{field.Invalid(path.Child("spec"), crd.Name, err.Error())}
	}
	return nil
}

func (n *NamespaceSource) validate(path *field.Path) field.ErrorList {
	if (n.Kubeconfig == "") == (n.Static == nil) {
		return field.ErrorList{field.Required(path, "exactly one of kubeconfig and static is required")}
	}
	if n.Kubeconfig != "" {
		return validateFile(n.Kubeconfig, path.Child("kubeconfig"))
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
