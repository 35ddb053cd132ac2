package kinds

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// PolicyResource is a resource of a Policy, as rules of admission name it.
type PolicyResource struct {
	// Group is its API group; empty for the core group.
	Group string
	// Version is the version in which expressions see its objects; "*" for each version as the client wrote it.
	Version string
	// Resource is its plural name.
	Resource string
	// Subresource is empty for the object itself.
	Subresource string
}

// podTemplates are the fields that lead to the Pod, or to the Pod template, in an object that has one, by resource.
var podTemplates = map[string]string{ //nolint:gochecknoglobals // a table, never written
	"pods": "", "deployments.apps": "spec.template", "statefulsets.apps": "spec.template", "daemonsets.apps": "spec.template",
	"replicasets.apps": "spec.template", "jobs.batch": "spec.template", "cronjobs.batch": "spec.jobTemplate.spec.template",
	"replicationcontrollers": "spec.template",
}

// PodTemplate are the fields that lead from an object to its Pod template, separated by dots; none for a Pod. ok is false if it has neither.
func (r PolicyResource) PodTemplate() (path string, ok bool) {
	if r.Subresource != "" && (r.Resource != "pods" || !slices.Contains(PodSubresources(), r.Subresource)) {
		return "", false
	}
	path, ok = podTemplates[strings.TrimSuffix(r.Resource+"."+r.Group, ".")]
	return path, ok
}

// PodSubresources are the subresources by which containers of a Pod are added and changed. Their objects are Pods.
func PodSubresources() []string { return []string{"ephemeralcontainers", "resize"} }

// PodControllers are the resources with a Pod template that PolicySpec.PodControllers adds.
func PodControllers() []PolicyResource {
	return []PolicyResource{
		{"apps", "v1", "daemonsets", ""},
		{"apps", "v1", "deployments", ""},
		{"apps", "v1", "replicasets", ""},
		{"apps", "v1", "statefulsets", ""},
		{"batch", "v1", "cronjobs", ""},
		{"batch", "v1", "jobs", ""},
	}
}

// PodsOnly reports whether a resource of a Policy is pods.
func PodsOnly(text string) bool {
	r, err := ParsePolicyResource(text)
	return err == nil && r == PolicyResource{"", "v1", "pods", ""}
}

// builtinGroups are resources of Kubernetes by group and version. No name stands in two groups.
var builtinGroups = map[[2]string][]string{ //nolint:gochecknoglobals // a table, never written
	{"", "v1"}: {
		"configmaps", "endpoints", "limitranges", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "replicationcontrollers",
		"resourcequotas", "secrets", "serviceaccounts", "services",
	},
	{"admissionregistration.k8s.io", "v1"}: {
		"mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
	},
	{"apiextensions.k8s.io", "v1"}:      {"customresourcedefinitions"},
	{"apps", "v1"}:                      {"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"},
	{"autoscaling", "v2"}:               {"horizontalpodautoscalers"},
	{"batch", "v1"}:                     {"cronjobs", "jobs"},
	{"certificates.k8s.io", "v1"}:       {"certificatesigningrequests"},
	{"coordination.k8s.io", "v1"}:       {"leases"},
	{"discovery.k8s.io", "v1"}:          {"endpointslices"},
	{"networking.k8s.io", "v1"}:         {"ingressclasses", "ingresses", "networkpolicies"},
	{"node.k8s.io", "v1"}:               {"runtimeclasses"},
	{"policy", "v1"}:                    {"poddisruptionbudgets"},
	{"rbac.authorization.k8s.io", "v1"}: {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
	{"scheduling.k8s.io", "v1"}:         {"priorityclasses"},
	{"storage.k8s.io", "v1"}:            {"csidrivers", "storageclasses", "volumeattachments"},
}

// BuiltinResources are the resources of Kubernetes that a Policy may name without their group, in no order.
func BuiltinResources() (all []PolicyResource) {
	for gv, names := range builtinGroups {
		for _, name := range names {
			all = append(all, PolicyResource{gv[0], gv[1], name, ""})
		}
	}
	return all
}

// builtin is a resource of Kubernetes. An empty group means any.
func builtin(group, name string) (PolicyResource, bool) {
	for gv, names := range builtinGroups {
		if (group == "" || gv[0] == group) && slices.Contains(names, name) {
			return PolicyResource{gv[0], gv[1], name, ""}, true
		}
	}
	return PolicyResource{}, false
}

func isBuiltinGroup(name string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(builtinGroups)), func(gv [2]string) bool { return gv[0] != "" && gv[0] == name })
}

var resourceVersion = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

// ParsePolicyResource reads a resource of a Policy: [GROUP/[VERSION/]]RESOURCE[/SUBRESOURCE]. GROUP is left out for resources of Kubernetes. Without
// VERSION the version of a resource of Kubernetes is the version that it knows best, and of another resource each.
func ParsePolicyResource(text string) (PolicyResource, error) {
	if strings.Contains(text, "*") {
		return PolicyResource{}, errors.New("must be a resource by its name: patterns are not read")
	}
	parts, r := strings.Split(text, "/"), PolicyResource{}
	if group := parts[0]; len(parts) > 1 && (isBuiltinGroup(group) || strings.Contains(group, ".")) {
		r.Group, r.Version, parts = group, "*", parts[1:]
		if resourceVersion.MatchString(parts[0]) {
			r.Version, parts = parts[0], parts[1:]
		}
	}
	if len(parts) < 1 || len(parts) > 2 {
		return PolicyResource{}, errors.New("must be RESOURCE, GROUP/RESOURCE or GROUP/VERSION/RESOURCE, and may have a subresource, as in pods/exec")
	}
	r.Resource = parts[0]
	if len(parts) == 2 {
		r.Subresource = parts[1]
	}
	for _, part := range parts {
		if len(validation.IsDNS1035Label(part)) > 0 {
			return PolicyResource{}, fmt.Errorf("%q is no name of a resource, such as pods: lower-case letters, digits and -", part)
		}
	}
	if r.Group != "" && len(validation.IsDNS1123Subdomain(r.Group)) > 0 {
		return PolicyResource{}, fmt.Errorf("%q is no API group, such as apps or stable.example.com", r.Group)
	}
	return r.complete()
}

// complete adds group and version of a resource of Kubernetes. Of its groups a misspelt resource is refused: a policy on it would never do anything.
func (r PolicyResource) complete() (PolicyResource, error) {
	known, ok := builtin(r.Group, r.Resource)
	explicit := r.Version != "" && r.Version != "*"
	switch {
	case ok && !explicit:
		r.Group, r.Version = known.Group, known.Version
	case ok, explicit, r.Group != "" && !isBuiltinGroup(r.Group):
	default:
		return PolicyResource{}, errors.New("is no resource of Kubernetes that is known without its version: write its plural, as in pods, or " +
			"GROUP/VERSION/RESOURCE, as in stable.example.com/v1/widgets" + suggest.DidYouMean(r.Resource, builtinNames(r.Group)))
	}
	return r, nil
}

// builtinNames are the resources of a group, sorted; an empty group means all.
func builtinNames(group string) (names []string) {
	for _, known := range BuiltinResources() {
		if group == "" || known.Group == group {
			names = append(names, known.Resource)
		}
	}
	slices.Sort(names)
	return names
}
