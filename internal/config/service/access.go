package service

import (
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// access is an identity with its roles.
type access struct {
	identity string
	roles    []*kinds.RoleSpec
	cluster  string // for which the mesh itself writes; empty for a caller
}

// writer is charged for the bytes of a change: an author, or the cluster that the mesh writes for; empty for an operator.
func (a access) writer() string {
	switch {
	case a.cluster != "":
		return "cluster " + a.cluster
	case a.operator():
		return ""
	}
	return a.identity
}

func (st *storedState) accessOf(caller identity.Peer, operators identity.Grant) access {
	a := access{identity: caller.Name()}
	if operators.Includes(caller) {
		a.roles = append(a.roles, &kinds.RoleSpec{Role: kinds.RoleOperator})
	}
	for _, role := range st.roles {
		if role.Grant().Includes(caller) {
			a.roles = append(a.roles, role)
		}
	}
	return a
}

func (a access) has(names ...kinds.RoleName) bool {
	return slices.ContainsFunc(a.roles, func(r *kinds.RoleSpec) bool { return slices.Contains(names, r.Role) })
}

func (a access) operator() bool { return a.has(kinds.RoleOperator) }

// mayRead returns an error unless the identity may see the configuration.
func (a access) mayRead() error {
	if a.identity == "" {
		return errNoIdentity
	}
	if len(a.roles) == 0 {
		return errNoRole(a.identity)
	}
	return nil
}

// mayWrite returns an error unless the identity may write an object. [storedState.authorize] checks which reviews the hooks of
// an author may see, which is known once they are compiled.
func (a access) mayWrite(o *config.Object) error {
	if err := a.mayRead(); err != nil {
		return err
	}
	if a.operator() {
		return nil
	}
	if !a.has(kinds.RoleAuthor) {
		return status.Errorf(codes.PermissionDenied, "%q is a viewer: an author or an operator may write %s", a.identity, o.Key)
	}
	if o.Cluster != nil || o.Role != nil || o.Params != nil {
		return status.Errorf(codes.PermissionDenied, "%q is an author: only operators may write %s", a.identity, o.Key)
	}
	if cluster, _ := o.Followed(); cluster != "" {
		return status.Errorf(codes.PermissionDenied, "%q is an author: only the mesh and operators write %s with the annotation %s, "+
			"which keeps the Cluster %q from being removed", a.identity, o.Key, config.FollowedAnnotation, cluster)
	}
	names := []string{o.Name}
	for _, key := range governed(o) {
		names = append(names, key.Name)
	}
	for _, name := range names {
		if len(a.authors(name)) == 0 {
			return status.Errorf(codes.PermissionDenied, "%q may not write %s: none of the namePrefixes of its Roles begins %q", a.identity, o.Key, name)
		}
	}
	return nil
}

// refuseUnread returns an error if an author would change a stored object that this dispatcher cannot decode: it may be in force, for clusters of others.
func (st *storedState) refuseUnread(by access, key config.Key) error {
	record := st.state.Records[key]
	if _, read := st.objects[key]; read || record == nil || record.Removing || by.operator() {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "%s is stored in a form that this dispatcher cannot read: only operators may change it", key)
}

// authors returns the roles that allow writing objects of a name.
func (a access) authors(name string) []*kinds.RoleSpec {
	var out []*kinds.RoleSpec
	for _, r := range a.roles {
		if r.Role == kinds.RoleAuthor && r.Writes(name) {
			out = append(out, r)
		}
	}
	return out
}

// reaches reports whether a role lets the hooks of a configuration see reviews of these clusters (none means all) at this host
// (empty means none).
func (a access) reaches(configuration string, clusters []string, host string) bool {
	if a.operator() {
		return true
	}
	return slices.ContainsFunc(a.authors(configuration), func(r *kinds.RoleSpec) bool {
		if host != "" && !r.NamesHost(host) {
			return false
		}
		if len(r.Clusters) == 0 {
			return true
		}
		outside := func(cluster string) bool { return !slices.Contains(r.Clusters, cluster) }
		return len(clusters) > 0 && !slices.ContainsFunc(clusters, outside)
	})
}

// authorize returns an error if a change touches hooks that see, or would see, reviews of clusters that the author has no role
// for, or that would be called at a host that the author has no role for. To remove a hook from a cluster needs the same role
// as to add one.
func (st *storedState) authorize(by access, after map[config.Key]config.Object, touched map[config.Key]bool) error {
	if by.operator() {
		return nil
	}
	for i, objects := range []map[config.Key]config.Object{st.objects, after} {
		snapshot, _ := config.Recompile(st.compiled, "", st.allWith(objects))
		for _, h := range snapshot.Hooks() {
			key := config.KeyOf(h)
			host := hostOf(&h.ClientConfig)
			switch {
			case !touched[key]:
			case !by.reaches(key.Name, h.Route.Clusters, ""):
				return status.Errorf(codes.PermissionDenied,
					"hook %q of %s sees, or would see, reviews of clusters that are not %q's: name the clusters of its Role in a HookRoute of the hook, or ask an operator",
					h.ID.Name, key, by.identity)
			case i == 1 && !by.reaches(key.Name, h.Route.Clusters, host):
				return status.Errorf(codes.PermissionDenied,
					"hook %q of %s would be called at %s, which is none of the webhookHosts of %q's Roles for these clusters: name one of them, or ask an operator",
					h.ID.Name, key, host, by.identity)
			}
		}
	}
	return nil
}

// hostOf returns the host of a webhook; empty if it is not called over HTTPS.
func hostOf(c *admissionregistrationv1.WebhookClientConfig) string {
	switch {
	case c.Service != nil:
		return c.Service.Name + "." + c.Service.Namespace + ".svc"
	case c.URL != nil:
		if u, err := url.Parse(*c.URL); err == nil {
			return strings.ToLower(u.Hostname())
		}
		return *c.URL // not a host, so no Role names it
	}
	return ""
}

// touch adds an object, and the documents whose hooks it governs.
func touch(touched map[config.Key]bool, o *config.Object) {
	touched[o.Key] = true
	for _, key := range governed(o) {
		touched[key] = true
	}
}

// governed are the documents whose hooks another document governs: the configurations that a route names, whichever of them exists, and the policy of a
// binding.
func governed(o *config.Object) (keys []config.Key) {
	switch {
	case o.Binding != nil:
		return []config.Key{{Kind: policy.ValidatingKind, Name: o.Binding.Spec.PolicyName}}
	case o.MutatingBinding != nil:
		return []config.Key{{Kind: policy.MutatingKind, Name: o.MutatingBinding.Spec.PolicyName}}
	case o.Route == nil:
		return nil
	}
	if kind, name, ofPolicy := strings.Cut(o.Route.Spec.Configuration, "/"); ofPolicy {
		return []config.Key{{Kind: kind, Name: name}}
	}
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", kinds.InitializersKind} {
		keys = append(keys, config.Key{Kind: kind, Name: o.Route.Spec.Configuration})
	}
	return keys
}
