package service

import (
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/identity"
)

// access is what an identity may do: the sum of its roles.
type access struct {
	identity string
	roles    []*kinds.RoleSpec
}

// accessOf is what a caller may do by a configuration.
func (b *base) accessOf(caller identity.Peer, operators identity.Grant) access {
	a := access{identity: caller.Name()}
	if operators.Includes(caller) {
		a.roles = append(a.roles, &kinds.RoleSpec{Role: kinds.RoleOperator})
	}
	for _, role := range b.roles {
		if role.Grant().Includes(caller) {
			a.roles = append(a.roles, role)
		}
	}
	return a
}

// has reports whether one of the roles is among those.
func (a access) has(names ...kinds.RoleName) bool {
	return slices.ContainsFunc(a.roles, func(r *kinds.RoleSpec) bool { return slices.Contains(names, r.Role) })
}

func (a access) operator() bool { return a.has(kinds.RoleOperator) }

// mayRead is nil for who may see the configuration.
func (a access) mayRead() error {
	if a.identity == "" {
		return errNoIdentity
	}
	if len(a.roles) == 0 {
		return errNoRole(a.identity)
	}
	return nil
}

// mayWrite is nil for who may write an object. What the hooks of an author may see is known only once they are compiled.
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
	if o.Cluster != nil || o.Role != nil {
		return status.Errorf(codes.PermissionDenied, "%q is an author: only operators may write %s", a.identity, o.Key)
	}
	names := []string{o.Name}
	if o.Route != nil {
		names = append(names, o.Route.Spec.Configuration)
	}
	for _, name := range names {
		if len(a.authors(name)) == 0 {
			return status.Errorf(codes.PermissionDenied, "%q may not write %s: none of the namePrefixes of its Roles begins %q", a.identity, o.Key, name)
		}
	}
	return nil
}

// authors are the roles by which objects of a name may be written.
func (a access) authors(name string) []*kinds.RoleSpec {
	var out []*kinds.RoleSpec
	for _, r := range a.roles {
		if r.Role == kinds.RoleAuthor && r.Writes(name) {
			out = append(out, r)
		}
	}
	return out
}

// reaches reports whether one of the roles lets the hooks of a configuration see the reviews of those clusters, of which none
// means all, at that host, which is empty for none.
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

// trespass is an error when a change of objects of the store is about hooks that see, or would see, reviews of clusters that
// are not the author's, or that would be called at a host that is not. Taking a hook away from a cluster is as much as giving
// it one.
func (b *base) trespass(by access, after map[config.Key]config.Object, touched map[config.Key]bool) error {
	if by.operator() {
		return nil
	}
	for i, objects := range []map[config.Key]config.Object{b.objects, after} {
		snapshot, _ := config.Recompile(b.compiled, "", b.with(objects))
		for _, h := range snapshot.Hooks() {
			key := config.Key{Kind: kindOf(h), Name: h.ID.Configuration}
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

// hostOf is the host that a webhook is called at; empty when it is not called over HTTPS.
func hostOf(c *admissionregistrationv1.WebhookClientConfig) string {
	switch {
	case c.Service != nil:
		return c.Service.Name + "." + c.Service.Namespace + ".svc"
	case c.URL != nil:
		if u, err := url.Parse(*c.URL); err == nil {
			return strings.ToLower(u.Hostname())
		}
		return *c.URL // which is no host that a Role names
	}
	return ""
}

// touch notes an object that is changed, and the configurations that it says something about as a route.
func touch(touched map[config.Key]bool, o *config.Object) {
	touched[o.Key] = true
	if o.Route != nil {
		for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
			touched[config.Key{Kind: kind, Name: o.Route.Spec.Configuration}] = true
		}
	}
}

// kindOf is the kind of configuration that a hook is in.
func kindOf(h *match.Hook) string {
	if h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return "ValidatingWebhookConfiguration"
	}
	return "MutatingWebhookConfiguration"
}
