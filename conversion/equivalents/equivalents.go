// Package equivalents knows which built-in resources of Kubernetes are one and the same, for matchPolicy Equivalent. It knows their names alone, and
// therefore links none of their types.
package equivalents

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Builtin knows which built-in resources of one API server are the same, as its EquivalentResourceRegistry does
// (k8s.io/apimachinery/pkg/runtime). It never changes and may be used concurrently.
type Builtin struct {
	ways map[string][]conversion.ResourceKind // by resource and subresource, as in a path
	own  map[schema.GroupResource]bool
}

// Discovered returns the resources that an API server with these resources considers equivalent. The versions of a group come in the order in which
// its discovery lists them: it is the order in which it installs them. The order of the groups is known.
//
// Groups that are not built in are left out: each CustomResourceDefinition is a world of its own, and so is each aggregated API.
func Discovered(lists []*metav1.APIResourceList) *Builtin {
	e := &Builtin{ways: map[string][]conversion.ResourceKind{}, own: map[schema.GroupResource]bool{}}
	for _, list := range inInstallOrder(lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // inInstallOrder left none
		}
		for i := range list.APIResources {
			e.add(gv, &list.APIResources[i])
		}
	}
	return e
}

// add takes a resource in, after all that are there already.
func (e *Builtin) add(gv schema.GroupVersion, r *metav1.APIResource) {
	resource, subresource, _ := strings.Cut(r.Name, "/")
	way := conversion.ResourceKind{Resource: gv.WithResource(resource), Subresource: subresource, Kind: gv.WithKind(r.Kind)}
	if r.Version != "" {
		way.Kind.Group, way.Kind.Version = r.Group, r.Version
	}
	e.ways[r.Name] = append(e.ways[r.Name], way)
	e.own[way.Resource.GroupResource()] = true
}

// For returns the ways to reach a resource, in the order in which the API server tries them, with the given one among them; none for a resource that
// is not built in. The slice must not be changed.
//
// Resources are the same if the API server stores them in one place. For built-in resources the name alone decides the place, whatever the group
// (DefaultStorageFactory.ResourcePrefix of k8s.io/apiserver/pkg/server/storage).
func (e *Builtin) For(resource schema.GroupVersionResource, subresource string) []conversion.ResourceKind {
	if !e.own[resource.GroupResource()] {
		return nil
	}
	if subresource == "" {
		return e.ways[resource.Resource]
	}
	return e.ways[resource.Resource+"/"+subresource]
}

// Families are the ways to reach each resource and subresource, as For returns them, in the order of their names. Callers must not change them, as
// with For.
func (e *Builtin) Families() [][]conversion.ResourceKind {
	all := make([][]conversion.ResourceKind, 0, len(e.ways))
	for _, path := range slices.Sorted(maps.Keys(e.ways)) {
		all = append(all, e.ways[path])
	}
	return all
}

func inInstallOrder(lists []*metav1.APIResourceList) []*metav1.APIResourceList {
	groups := installOrder()
	rank := func(l *metav1.APIResourceList) int {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return -1
		}
		return slices.Index(groups, gv.Group)
	}
	sorted := slices.DeleteFunc(slices.Clone(lists), func(l *metav1.APIResourceList) bool { return rank(l) < 0 })
	slices.SortStableFunc(sorted, func(a, b *metav1.APIResourceList) int { return cmp.Compare(rank(a), rank(b)) })
	return sorted
}

// installOrder is the order in which kube-apiserver installs its groups: CompletedConfig.StorageProviders of
// k8s.io/kubernetes/pkg/controlplane, with extensions where it was while it was served, and the two groups that servers
// of their own install.
func installOrder() []string {
	return []string{
		"", "internal.apiserver.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "extensions", "networking.k8s.io", "node.k8s.io",
		"policy", "rbac.authorization.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
		"flowcontrol.apiserver.k8s.io", "apps", "admissionregistration.k8s.io", "events.k8s.io", "resource.k8s.io",
		"apiextensions.k8s.io", "apiregistration.k8s.io",
	}
}
