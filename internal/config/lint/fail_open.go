package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// wideFailOpen finds clusters where resources that give power always fail open, or every resource does: who can make a hook fail, for
// example by load, writes these unjudged.
func wideFailOpen(objects []config.Object, only func(config.Key) bool) []match.Finding {
	var findings []match.Finding
	for i := range objects {
		o := &objects[i]
		if o.Cluster == nil || o.Cluster.Spec.Bypass == nil || !only(o.Key) {
			continue
		}
		for j, r := range o.Cluster.Spec.Bypass.FailOpen {
			if wide := wideIn(r); len(wide) > 0 {
				findings = append(findings, warning(CodeWideFailOpen, fmt.Sprintf("%s spec.bypass.failOpen[%d]", o.Key, j),
					"%s always fail open: who can make a hook fail, for example by load, writes them unjudged: "+
						"name only resources that the cluster cannot do without while hooks fail, for example leases", listed(wide)))
			}
		}
	}
	return findings
}

// wideIn are the resources of an item that give power, and its wildcards, with their groups.
func wideIn(r kinds.BypassResources) []string {
	var wide []string
	for _, group := range r.APIGroups {
		for _, name := range r.Resources {
			resource, _, _ := strings.Cut(name, "/")
			if resource == "*" || group == "*" || givesPower(group, resource) {
				wide = append(wide, strings.TrimSuffix(fmt.Sprintf("%q of group %q", name, group), ` of group ""`))
			}
		}
	}
	return wide
}

// givesPower reports whether write access to a resource can give the writer rights of others, or change their policies.
func givesPower(group, resource string) bool {
	powers := map[string][]string{
		"":                             {"secrets", "serviceaccounts"},
		"certificates.k8s.io":          {"certificatesigningrequests"},
		"rbac.authorization.k8s.io":    {"roles", "rolebindings", "clusterroles", "clusterrolebindings"},
		"apiextensions.k8s.io":         {"customresourcedefinitions"},
		"apiregistration.k8s.io":       {"apiservices"},
		"admissionregistration.k8s.io": nil,
		"portcullis.dev":               nil,
	}
	names, known := powers[group]
	return known && (names == nil || slices.Contains(names, resource))
}
