package kinds

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// RoleKind is the kind of a Role.
const RoleKind = "Role"

// Role says who may do what through ConfigService.
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
	// Identities have the role: the first URI in a certificate, else its common name. Empty means nobody.
	Identities []string `json:"identities,omitempty"`
	// NamePrefixes bound what an author writes: objects whose name begins with one of them. Empty means nothing, and "" in the
	// list everything.
	NamePrefixes []string `json:"namePrefixes,omitempty"`
	// Clusters bound what an author's hooks see: the routes of each of them have to name clusters of this list. Empty means
	// all clusters.
	Clusters []string `json:"clusters,omitempty"`
}

// RoleName is a role as documents write it.
type RoleName string

// The roles. Each may do what those before it may.
const (
	// RoleViewer reads everything.
	RoleViewer RoleName = "viewer"
	// RoleAuthor writes webhook configurations and HookRoutes of its names.
	RoleAuthor RoleName = "author"
	// RoleOperator writes everything, also Clusters and Roles.
	RoleOperator RoleName = "operator"
)

// Writes reports whether an author with this role may write an object of a name.
func (s *RoleSpec) Writes(name string) bool {
	for _, prefix := range s.NamePrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Validate returns what is wrong with the role, with paths from the top of the document.
func (r *Role) Validate() field.ErrorList {
	errs := r.Metadata.validate(field.NewPath("metadata"))
	spec := field.NewPath("spec")
	if s := r.Spec.Role; s != RoleViewer && s != RoleAuthor && s != RoleOperator {
		errs = append(errs, notSupported(spec.Child("role"), s, RoleViewer, RoleAuthor, RoleOperator))
	}
	errs = append(errs, validateIdentities(r.Spec.Identities, spec.Child("identities"))...)
	errs = append(errs, validateList(r.Spec.NamePrefixes, spec.Child("namePrefixes"))...)
	errs = append(errs, validateNames(r.Spec.Clusters, spec.Child("clusters"))...)
	if r.Spec.Role != RoleAuthor && len(r.Spec.NamePrefixes)+len(r.Spec.Clusters) > 0 {
		errs = append(errs, field.Forbidden(spec, "only what an author may write is bounded: remove namePrefixes and clusters"))
	}
	return errs
}
