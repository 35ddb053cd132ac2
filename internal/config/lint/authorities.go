package lint

import (
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Authorities are how many CA certificates the bundles of a dispatcher hold. The zero Authorities are not known.
type Authorities struct {
	// Callers is of the listener for API servers.
	Callers int
	// Hosts is of the listener for hosts, direct callers and operators.
	Hosts int
}

// anyAuthority finds grants without authorities where there are several: each of these can issue the identities of all.
func anyAuthority(objects []config.Object, trusted Authorities, only func(config.Key) bool) []match.Finding {
	var findings []match.Finding
	for i := range objects {
		if o := &objects[i]; only(o.Key) {
			if field, n := unbound(o, trusted); n > 1 {
				findings = append(findings, warning(CodeAnyAuthority, o.Key.String()+" "+field,
					"each of the %d authorities in the bundle of the listener can issue certificates of these identities: name those that may "+
						"in spec.authorities, as `portcullis certs show` prints them", n))
			}
		}
	}
	return findings
}

// unbound is the field with the identities of a grant that names no authorities, and how many may vouch for them; 0 where
// there is no such grant.
func unbound(o *config.Object, trusted Authorities) (field string, n int) {
	switch {
	case o.Cluster != nil && len(o.Cluster.Spec.Identities) > 0 && len(o.Cluster.Spec.Authorities) == 0:
		return "spec.identities", max(trusted.Callers, trusted.Hosts)
	case o.Role != nil && len(o.Role.Spec.Identities) > 0 && len(o.Role.Spec.Authorities) == 0:
		return "spec.identities", trusted.Hosts
	case o.Route != nil && len(o.Route.Spec.Hosts) > 0 && len(o.Route.Spec.Authorities) == 0:
		return "spec.hosts", trusted.Hosts
	}
	return "", 0
}
