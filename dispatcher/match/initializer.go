package match

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// initializers is 1 for an object with initializers, so that they come first.
func (o Object) initializers() int {
	if o.Mutating != nil && o.Initializes {
		return 1
	}
	return 0
}

// matchInitializer decides whether an initializer whose rules cover the request is called.
func (h *Hook) matchInitializer(a *Attributes, d Decision) Decision {
	switch (schema.GroupResource{Group: a.requested.Resource.Group, Resource: a.requested.Resource.Resource}) {
	case schema.GroupResource{Resource: "secrets"}:
		if !h.names("secrets") {
			return Decision{Skip: SkipSecret}
		}
	case schema.GroupResource{Resource: "pods"}:
		skip, err := h.skipsPod(a)
		if err != nil || skip != "" {
			return Decision{Skip: skip, Err: err}
		}
	}
	switch {
	case a.req.GetDryRun():
		return Decision{Skip: SkipDryRun}
	case h.Route.Shadow && !h.Route.Stream:
		return Decision{Skip: SkipShadow}
	}
	return d
}

// explainInitializer is a reason of matchInitializer for a person.
func explainInitializer(skip string) string {
	switch skip {
	case SkipDryRun:
		return "it is a dry run: nothing is staged, and no initializer acts"
	case SkipMirrorPod:
		return "the Pod mirrors a static one of a node"
	case SkipOwnPod:
		return "the Pod runs as a host of the initializer, which could not start without itself"
	case SkipSecret:
		return "wildcards of initializers do not cover secrets, a rule has to name them"
	case SkipShadow:
		return "it is in shadow, and no host serves it over streams: a controller cannot be asked without an effect"
	}
	return skip
}

// names reports whether a rule names a resource, not by a wildcard.
func (h *Hook) names(resource string) bool {
	for i := range h.rules {
		if slices.Contains(h.rules[i].Resources, resource) {
			return true
		}
	}
	return false
}

// skipsPod returns why the initializer is not called for a Pod; empty if it is. No kubelet runs a mirror Pod, whatever its creator, and its
// annotation cannot be removed (SEMANTICS C49; ValidatePodUpdate of Kubernetes).
func (h *Hook) skipsPod(a *Attributes) (string, *apierrors.StatusError) {
	raw, account := a.req.GetObject().GetRaw(), ""
	mirror, err := conversion.Lookup(raw, "metadata", "annotations", corev1.MirrorPodAnnotationKey)
	if err == nil && slices.Contains(h.Route.HostClusters, a.req.GetCluster()) {
		account, err = conversion.LookupText(raw, "spec", "serviceAccountName")
	}
	switch {
	case err != nil:
		return "", apierrors.NewBadRequest("the Pod cannot be read: " + err.Error())
	case mirror != nil:
		return SkipMirrorPod, nil
	case h.runsAs(a.req.GetNamespace(), account):
		return SkipOwnPod, nil
	}
	return "", nil
}

// runsAs reports whether a service account of a cluster where hosts run is among the hosts of the hook: as its user name, or as a SPIFFE id that ends
// with /ns/NAMESPACE/sa/NAME. Neither says which cluster it is in, so that a tenant elsewhere may have an account of that name.
func (h *Hook) runsAs(namespace, account string) bool {
	if namespace == "" || account == "" {
		return false
	}
	user, id := "system:serviceaccount:"+namespace+":"+account, "/ns/"+namespace+"/sa/"+account
	return slices.ContainsFunc(h.Route.Hosts, func(host string) bool {
		return host == user || strings.HasPrefix(host, "spiffe://") && strings.HasSuffix(host, id)
	})
}
