package kinds

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// RoleKind is the kind of a Role.
const RoleKind = "Role"

// Role grants identities verbs of ConfigService.
type Role struct {
	TypeMeta `json:",inline"`
	// Metadata names the role. The name has no meaning beyond that.
	Metadata Metadata `json:"metadata"`
	// Spec is the role.
	Spec RoleSpec `json:"spec"`
}

// RoleSpec is a role.
type RoleSpec struct {
	// Role is RoleViewer, RoleAuthor or RoleOperator.
	Role RoleName `json:"role"`
	// Identities have the role: the first URI in a certificate, else its common name. Empty means none.
	Identities []string `json:"identities,omitempty"`
	// Authorities may vouch for Identities, as the authorities of a ClusterSpec do.
	Authorities []string `json:"authorities,omitempty"`
	// NamePrefixes bound the objects that an author may write: their names begin with a listed prefix. Empty means none, and
	// "" in the list all.
	NamePrefixes []string `json:"namePrefixes,omitempty"`
	// Clusters bound the reviews that an author's hooks see: the routes of each hook must name clusters of this list. Empty
	// means all clusters.
	Clusters []string `json:"clusters,omitempty"`
	// WebhookHosts bound which servers an author's hooks may name in clientConfig: the host of the url, without its port, or
	// NAME.NAMESPACE.svc of the service. An entry is a host, or "*." and a suffix for every host below it. Empty means any.
	WebhookHosts []string `json:"webhookHosts,omitempty"`
}

// RoleName is a role as documents write it.
type RoleName string

// The roles. Each includes the rights of the roles before it.
const (
	// RoleViewer reads everything.
	RoleViewer RoleName = "viewer"
	// RoleAuthor writes webhook configurations and HookRoutes of its names.
	RoleAuthor RoleName = "author"
	// RoleOperator writes everything, also Clusters and Roles.
	RoleOperator RoleName = "operator"
)

// Grant selects the identities that have the role.
func (s *RoleSpec) Grant() identity.Grant {
	return identity.Grant{Names: s.Identities, Authorities: s.Authorities}
}

// Writes reports whether an author with this role may write an object of a name.
func (s *RoleSpec) Writes(name string) bool {
	return slices.ContainsFunc(s.NamePrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// NamesHost reports whether hooks of an author with this role may name a host, which is in lower case.
func (s *RoleSpec) NamesHost(host string) bool {
	return len(s.WebhookHosts) == 0 || namesHost(s.WebhookHosts, host)
}

// namesHost reports whether a list of hosts, as validateHosts takes it, names a host, which is in lower case.
func namesHost(list []string, host string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		suffix, below := strings.CutPrefix(entry, "*")
		return host == entry || below && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	})
}

// Validate returns the errors of the role, with paths from the top of the document.
func (r *Role) Validate() field.ErrorList {
	errs := r.Metadata.validate(field.NewPath("metadata"))
	spec := field.NewPath("spec")
	if s := r.Spec.Role; s != RoleViewer && s != RoleAuthor && s != RoleOperator {
		errs = append(errs, notSupported(spec.Child("role"), s, RoleViewer, RoleAuthor, RoleOperator))
	}
	errs = append(errs, validateIdentities(r.Spec.Identities, spec.Child("identities"))...)
	errs = append(errs, validateAuthorities(r.Spec.Authorities, spec.Child("authorities"))...)
	errs = append(errs, validateList(r.Spec.NamePrefixes, spec.Child("namePrefixes"))...)
	errs = append(errs, validateNames(r.Spec.Clusters, spec.Child("clusters"))...)
	errs = append(errs, validateHosts(r.Spec.WebhookHosts, spec.Child("webhookHosts"))...)
	if r.Spec.Role != RoleAuthor && len(r.Spec.NamePrefixes)+len(r.Spec.Clusters)+len(r.Spec.WebhookHosts) > 0 {
		errs = append(errs, field.Forbidden(spec, "only Roles of authors have these bounds: remove namePrefixes, clusters and webhookHosts"))
	}
	return errs
}

// validateHosts checks hosts of webhooks.
func validateHosts(hosts []string, path *field.Path) field.ErrorList {
	errs := validateList(hosts, path)
	for i, entry := range hosts {
		host, below := strings.CutPrefix(entry, "*.")
		if _, err := netip.ParseAddr(host); err == nil && !below {
			continue
		}
		if len(validation.IsDNS1123Subdomain(host)) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), entry,
				`must be a host in lower case without a port, for example "hooks.example.com", "10.0.0.1" or "*.policy.svc"`))
		}
	}
	return errs
}
