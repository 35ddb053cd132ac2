package lint

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// ownEntries finds hooks that are entries of the mesh itself: objects of a registration, which a cluster shows with all
// others, and addresses at which reviews of a declared cluster are taken.
func ownEntries(hooks []*match.Hook, objects []config.Object, about func(*match.Hook) bool) []match.Finding {
	registered, declared := map[config.Key]string{}, map[string]bool{}
	for i := range objects {
		o := &objects[i]
		if m, ok := o.Content().(metav1.Object); ok { // a webhook configuration
			if cluster, ok := registration.MadeFor(m); ok {
				registered[o.Key] = cluster
			}
		}
		if o.Cluster != nil {
			declared[o.Name] = true
		}
	}
	const remedy = "the mesh would call itself for each request that the hook covers, until no time is left or it is refused; "
	var findings []match.Finding
	for _, h := range hooks {
		if h.Route.Stream || !about(h) {
			continue
		}
		if cluster, ok := registered[config.KeyOf(h)]; ok {
			findings = append(findings, warning(CodeOwnEntry, h.Path(".clientConfig"), `"portcullis cluster register" made it for the API `+
				"servers of cluster %s: "+remedy+"leave out objects with the label app.kubernetes.io/managed-by=portcullis", cluster))
		} else if cluster := registration.Reviews(&h.ClientConfig); declared[cluster] {
			findings = append(findings, warning(CodeOwnEntry, h.Path(".clientConfig"), "it is where API servers of cluster %s reach a mesh: "+
				"if that is this one, "+remedy+"name the webhook itself, or remove the hook", cluster))
		}
	}
	return findings
}
