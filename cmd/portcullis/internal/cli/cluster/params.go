package cluster

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// noteParams names the permissions that the policies of a cluster need to read their params there, a line for each kind. No chart and no `cluster join`
// grants them: the kinds are the choice of the policies.
func noteParams(notes io.Writer, cluster string, hooks []*match.Hook, served registration.Families) {
	var kinds []schema.GroupVersionKind
	readers := map[schema.GroupVersionKind][]string{}
	for _, h := range hooks {
		if h.Policy == nil || !h.Serves(cluster) {
			continue
		}
		for _, q := range h.Policy.Asks(cluster) {
			if q.Code != match.CodeParams {
				continue
			}
			if readers[q.Kind] == nil {
				kinds = append(kinds, q.Kind)
			}
			readers[q.Kind] = append(readers[q.Kind], h.ID.Configuration)
		}
	}
	for _, kind := range kinds {
		who := readers[kind][0]
		if more := len(readers[kind]) - 1; more > 0 {
			who = fmt.Sprintf("%s and %d more", who, more)
		}
		fmt.Fprintf(notes, "info: params of %s: give the identity of the mesh in cluster %q a ClusterRole with the rule "+
			"{apiGroups: [%q], resources: [%s], verbs: [list]}, if it has none: without it the bindings fail, by failurePolicy\n",
			who, cluster, kind.Group, resourceOf(kind, served))
	}
}

// resourceOf is the resource of a kind, by the resources of the cluster or else by the usual plural.
func resourceOf(kind schema.GroupVersionKind, served registration.Families) string {
	for _, family := range served {
		for i := range family {
			if family[i].Kind.GroupKind() == kind.GroupKind() && family[i].Subresource == "" {
				return family[i].Resource.Resource
			}
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.Resource
}
