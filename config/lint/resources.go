package lint

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// wildcard stands for everything in a rule.
const wildcard = "*"

// inVain returns why no request ever matches a resource of a rule, and the remedy; empty if a request may match.
func inVain(rule *admissionregistrationv1.RuleWithOperations, resource string) string {
	name, subresource, _ := strings.Cut(resource, "/")
	switch {
	case strings.ToLower(resource) != resource:
		return "resources are in lower case and in the plural, as in the paths of the API: " + strings.ToLower(name)
	case allExempt(rule.APIGroups, name):
		return "hooks never see it, since they could lock out their own repair: remove it from the rule"
	case !slices.Equal(rule.APIGroups, []string{""}) || name == wildcard:
		return ""
	case groupOf(name) != "":
		return "it is not in the core group: write apiGroups: [" + groupOf(name) + "]"
	case onlyConnects(rule.Operations) && !connectable(name, subresource):
		return "nobody connects to it: CONNECT is for pods/exec, pods/attach, pods/portforward, pods/proxy, services/proxy and nodes/proxy"
	case rule.Scope == nil:
		return ""
	case *rule.Scope == admissionregistrationv1.ClusterScope && isNamespaced(name):
		return "it is in namespaces, and the scope of the rule is Cluster: write scope: Namespaced"
	case *rule.Scope == admissionregistrationv1.NamespacedScope && isClusterScoped("", name):
		return "it is in no namespace, and the scope of the rule is Namespaced: write scope: Cluster"
	}
	return ""
}

// allExempt reports whether no group of the rule has a resource of that name that hooks see (SEMANTICS C19).
func allExempt(groups []string, name string) bool {
	return !slices.ContainsFunc(groups, func(group string) bool { return !exempt(group, name) })
}

// exempt reports whether hooks see no object of a resource: match goes by the kinds of the first ones.
func exempt(group, name string) bool {
	if group != "admissionregistration.k8s.io" {
		return match.IsIdentityOrAccessReview(group, name)
	}
	switch name {
	case "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
		return true
	}
	return false
}

// groupOf is the group of a resource that people look for in the core group, which never had it.
func groupOf(name string) string {
	switch name {
	case "deployments", "daemonsets", "statefulsets", "replicasets", "controllerrevisions":
		return "apps"
	case "jobs", "cronjobs":
		return "batch"
	case "ingresses", "ingressclasses", "networkpolicies":
		return "networking.k8s.io"
	case "roles", "rolebindings", "clusterroles", "clusterrolebindings":
		return "rbac.authorization.k8s.io"
	case "horizontalpodautoscalers":
		return "autoscaling"
	case "poddisruptionbudgets":
		return "policy"
	case "leases":
		return "coordination.k8s.io"
	case "storageclasses", "volumeattachments", "csidrivers", "csinodes":
		return "storage.k8s.io"
	case "customresourcedefinitions":
		return "apiextensions.k8s.io"
	case "certificatesigningrequests":
		return "certificates.k8s.io"
	}
	return ""
}

func onlyConnects(operations []admissionregistrationv1.OperationType) bool {
	return !slices.ContainsFunc(operations, func(o admissionregistrationv1.OperationType) bool { return o != admissionregistrationv1.Connect })
}

// connectable reports whether the API has a CONNECT for a resource of the core group.
func connectable(name, subresource string) bool {
	switch name {
	case "pods":
		return slices.Contains([]string{wildcard, "attach", "exec", "portforward", "proxy"}, subresource)
	case "services", "nodes":
		return subresource == wildcard || subresource == "proxy"
	}
	return false
}

// isNamespaced reports whether a resource of the core group is in namespaces.
func isNamespaced(name string) bool {
	switch name {
	case "bindings", "configmaps", "endpoints", "events", "limitranges", "persistentvolumeclaims", "pods", "podtemplates",
		"replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services":
		return true
	}
	return false
}

// isClusterScoped reports whether a resource of Kubernetes is in no namespace, as rules see it. Of others nothing is known.
func isClusterScoped(group, name string) bool {
	switch name {
	case "namespaces", "nodes", "persistentvolumes":
		return group == ""
	case "clusterroles", "clusterrolebindings":
		return group == "rbac.authorization.k8s.io"
	case "customresourcedefinitions":
		return group == "apiextensions.k8s.io"
	case "apiservices":
		return group == "apiregistration.k8s.io"
	case "certificatesigningrequests":
		return group == "certificates.k8s.io"
	case "ingressclasses":
		return group == "networking.k8s.io"
	case "priorityclasses":
		return group == "scheduling.k8s.io"
	case "runtimeclasses":
		return group == "node.k8s.io"
	case "storageclasses", "volumeattachments", "csidrivers", "csinodes":
		return group == "storage.k8s.io"
	}
	return false
}
