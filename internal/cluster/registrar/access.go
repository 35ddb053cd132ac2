package registrar

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/reconcile"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// AccessNamespace is where the service account of dispatchers is made, in every cluster.
const AccessNamespace = metav1.NamespaceSystem

// AccessName names the service account of dispatchers, and all that belongs to it, by the name of the entries.
func AccessName(entries string) string { return entries + "-access" }

// access are the objects that let dispatchers read data that reviews lack.
type access struct {
	name, cluster string
	accounts      kind[*corev1.ServiceAccount]
	roles         kind[*rbacv1.ClusterRole]
	bindings      kind[*rbacv1.ClusterRoleBinding]
	secrets       kind[*corev1.Secret]
	leaseRoles    kind[*rbacv1.Role]
	leaseBindings kind[*rbacv1.RoleBinding]
}

// accessOf names them by the name of the entries.
func (r *Registrar) accessOf(cluster, name string) *access {
	in := AccessNamespace + "/"
	return &access{
		name: AccessName(name), cluster: cluster,
		accounts: kind[*corev1.ServiceAccount]{
			"serviceaccount/" + in, r.client.CoreV1().ServiceAccounts(AccessNamespace), (*corev1.ServiceAccount).DeepCopy,
		},
		roles: kind[*rbacv1.ClusterRole]{"clusterrole/", r.client.RbacV1().ClusterRoles(), (*rbacv1.ClusterRole).DeepCopy},
		bindings: kind[*rbacv1.ClusterRoleBinding]{
			"clusterrolebinding/", r.client.RbacV1().ClusterRoleBindings(), (*rbacv1.ClusterRoleBinding).DeepCopy,
		},
		secrets:    kind[*corev1.Secret]{"secret/" + in, r.client.CoreV1().Secrets(AccessNamespace), (*corev1.Secret).DeepCopy},
		leaseRoles: kind[*rbacv1.Role]{"role/" + in, r.client.RbacV1().Roles(AccessNamespace), (*rbacv1.Role).DeepCopy},
		leaseBindings: kind[*rbacv1.RoleBinding]{
			"rolebinding/" + in, r.client.RbacV1().RoleBindings(AccessNamespace), (*rbacv1.RoleBinding).DeepCopy,
		},
	}
}

// accessRules grant the permissions that docs/configuration.md and the charts list.
func accessRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
}

// entryRules let dispatchers keep the entries of a name. RBAC cannot bound by name which objects are created.
func entryRules(name string) []rbacv1.PolicyRule {
	group, resources := []string{"admissionregistration.k8s.io"}, []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
	return []rbacv1.PolicyRule{
		{APIGroups: group, Resources: resources, Verbs: []string{"create"}},
		{APIGroups: group, Resources: resources, ResourceNames: []string{name}, Verbs: []string{"get", "update"}},
	}
}

// leaseRules let dispatchers elect a leader (package reconcile).
func leaseRules(name string) []rbacv1.PolicyRule {
	group, resources := []string{coordinationv1.GroupName}, []string{"leases"}
	return []rbacv1.PolicyRule{
		{APIGroups: group, Resources: resources, Verbs: []string{"create"}},
		{APIGroups: group, Resources: resources, ResourceNames: []string{reconcile.EntriesLease(name).Name}, Verbs: []string{"get", "update"}},
	}
}

// GrantOptions describe the rights of dispatchers in a cluster.
type GrantOptions struct {
	// Cluster is the name of the cluster, and Name the name of its entries.
	Cluster, Name string
	// Entries lets dispatchers write the entries, too.
	Entries bool
	// DryRun has the API server check the objects, and stores nothing.
	DryRun bool
}

// Grant makes a service account in AccessNamespace that may read data that reviews lack (accessRules), and a token for it that does not
// expire. It waits until the cluster has issued the token, or ctx ends; a dry run has no token. Existing objects keep their token. The
// changes before an error are returned too.
func (r *Registrar) Grant(ctx context.Context, o GrantOptions) (token string, changes []Diff, err error) {
	a := r.accessOf(o.Cluster, o.Name)
	for _, step := range a.steps(ctx, o) {
		c, err := step()
		if err != nil {
			return "", changes, err
		}
		changes = append(changes, c)
	}
	if o.DryRun {
		return "", changes, nil
	}
	token, err = a.token(ctx)
	return token, changes, err
}

// steps make the objects, in their order.
func (a *access) steps(ctx context.Context, o GrantOptions) []func() (Diff, error) {
	meta := func(namespace string) metav1.ObjectMeta {
		m := registration.Meta(a.name, a.cluster)
		m.Namespace = namespace
		return m
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: AccessNamespace, Name: a.name}}
	role := &rbacv1.ClusterRole{ObjectMeta: meta(""), Rules: accessRules()}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta(""), Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: a.name},
	}
	secret := &corev1.Secret{ObjectMeta: meta(AccessNamespace), Type: corev1.SecretTypeServiceAccountToken}
	secret.Annotations[corev1.ServiceAccountNameKey] = a.name
	steps := []func() (Diff, error){
		func() (Diff, error) {
			return a.accounts.ensure(ctx, &corev1.ServiceAccount{ObjectMeta: meta(AccessNamespace)}, o.DryRun)
		},
		func() (Diff, error) { return a.roles.apply(ctx, role, o.DryRun) },
		func() (Diff, error) { return a.bindings.apply(ctx, binding, o.DryRun) },
		func() (Diff, error) { return a.secrets.ensure(ctx, secret, o.DryRun) },
	}
	if !o.Entries {
		return steps
	}
	role.Rules = append(role.Rules, entryRules(o.Name)...)
	return append(steps, func() (Diff, error) {
		return a.leaseRoles.apply(ctx, &rbacv1.Role{ObjectMeta: meta(AccessNamespace), Rules: leaseRules(o.Name)}, o.DryRun)
	}, func() (Diff, error) {
		return a.leaseBindings.apply(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta(AccessNamespace), Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: a.name},
		}, o.DryRun)
	})
}

// token waits for the token controller of the cluster.
func (a *access) token(ctx context.Context) (string, error) {
	for {
		secret, err := a.secrets.client.Get(ctx, a.name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("secret/%s/%s: %w", AccessNamespace, a.name, err)
		}
		if token := secret.Data[corev1.ServiceAccountTokenKey]; len(token) > 0 {
			return string(token), nil
		}
		if !clock.Sleep(ctx, gonePoll) {
			return "", fmt.Errorf("secret/%s/%s: the cluster has issued no token: does its controller manager run?", AccessNamespace, a.name)
		}
	}
}

// ensure creates an object, and leaves an existing one as it is.
func (k kind[T]) ensure(ctx context.Context, want T, dryRun bool) (Diff, error) {
	c := Diff{Object: k.object(want.GetName()), Action: Unchanged}
	cluster, _ := registration.MadeFor(want)
	now, err := k.client.Get(ctx, want.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.Action = Created
		_, err = k.client.Create(ctx, want, metav1.CreateOptions{DryRun: dry(dryRun), FieldManager: FieldManager})
	case err == nil:
		err = checkOwner(now, cluster)
	}
	if err != nil {
		return Diff{}, fmt.Errorf("%s: %w", c.Object, err)
	}
	return c, nil
}

// Leave deletes all objects that Grant, Try and dispatchers made for a cluster, and waits until they are gone. Objects of other clusters
// stay. The changes have no line for missing objects, and call an object Unreadable that the caller may not read. The changes before an
// error are returned too.
func (r *Registrar) Leave(ctx context.Context, cluster, name string, dryRun bool) (changes []Diff, err error) {
	a := r.accessOf(cluster, name)
	for _, o := range []struct {
		name   string
		remove func() (Diff, error)
	}{
		{r.validating.object(trialName(name)), func() (Diff, error) { return r.validating.remove(ctx, cluster, trialName(name), dryRun) }},
		{"lease/" + reconcile.Namespace + "/" + reconcile.EntriesLease(name).Name, func() (Diff, error) { return r.removeLease(ctx, name, dryRun) }},
		{a.secrets.object(a.name), func() (Diff, error) { return a.secrets.remove(ctx, cluster, a.name, dryRun) }},
		{a.bindings.object(a.name), func() (Diff, error) { return a.bindings.remove(ctx, cluster, a.name, dryRun) }},
		{a.roles.object(a.name), func() (Diff, error) { return a.roles.remove(ctx, cluster, a.name, dryRun) }},
		{a.leaseBindings.object(a.name), func() (Diff, error) { return a.leaseBindings.remove(ctx, cluster, a.name, dryRun) }},
		{a.leaseRoles.object(a.name), func() (Diff, error) { return a.leaseRoles.remove(ctx, cluster, a.name, dryRun) }},
		{a.accounts.object(a.name), func() (Diff, error) { return a.accounts.remove(ctx, cluster, a.name, dryRun) }},
	} {
		c, err := o.remove()
		switch {
		case errors.Is(err, ErrForeign):
		case apierrors.IsForbidden(err):
			changes = append(changes, Diff{Object: o.name, Action: Unreadable})
		case err != nil:
			return changes, err
		case c.Action != Absent:
			changes = append(changes, Diff{Object: o.name, Action: c.Action}) // without the token
		}
	}
	return changes, nil
}
