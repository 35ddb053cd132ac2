package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// maxNamed is how many names a message has.
const maxNamed = 5

// unknownClusters finds routes, policies and params for clusters that are not declared: their reviews are refused before any hook is asked.
func unknownClusters(objects []config.Object, only func(config.Key) bool) []match.Finding {
	declared := map[string]bool{}
	for i := range objects {
		if objects[i].Cluster != nil {
			declared[objects[i].Name] = true
		}
	}
	var findings []match.Finding
	for i := range objects {
		o := &objects[i]
		if !only(o.Key) {
			continue
		}
		if o.Short != nil {
			if missing := undeclared(append(o.Short.Spec.Differing(), o.Short.Spec.Clusters...), declared); len(missing) > 0 {
				slices.Sort(missing)
				findings = append(findings, noCluster(o, "clusters", slices.Compact(missing), "the policy judges nothing of them"))
			}
		}
		if o.Params != nil {
			if missing := undeclared(o.Params.Spec.Clusters, declared); len(missing) > 0 {
				findings = append(findings, noCluster(o, "clusters", missing, "no policy reads the objects for them"))
			}
		}
		if o.Route == nil {
			continue
		}
		spec := &o.Route.Spec
		if missing := undeclared(spec.Clusters, declared); len(missing) > 0 {
			consequence := "the hook is not called for them"
			if len(missing) == len(spec.Clusters) {
				consequence = "the hook is never called"
			}
			findings = append(findings, noCluster(o, "clusters", missing, consequence))
		}
		if missing := undeclared(spec.HostClusters, declared); len(missing) > 0 {
			findings = append(findings, noCluster(o, "hostClusters", missing, "no Pod of a host is left alone there"))
		}
	}
	return findings
}

// undeclared returns the names without a Cluster document.
func undeclared(names []string, declared map[string]bool) (missing []string) {
	for _, name := range names {
		if !declared[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

func noCluster(o *config.Object, field string, missing []string, consequence string) match.Finding {
	return warning(CodeNoCluster, o.Key.String()+" spec."+field,
		"there is no Cluster document for %s, so that %s: mend the names, or add the documents", listed(missing), consequence)
}

// listed are names for people, and how many more there are.
func listed(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
