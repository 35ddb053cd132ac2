package kube

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Account makes a service account, with its namespace, and is a configuration
// with a token of it. RBAC decides on its rights.
func (c *Cluster) Account(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make a token: %v", err)
	}
	return &rest.Config{
		Host: c.url.String(), BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.PEM()},
	}
}

// IssueTokens stands in for the token controller of the cluster, until the
// test ends.
func (c *Cluster) IssueTokens(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	secrets := c.client.CoreV1().Secrets(metav1.NamespaceSystem)
	tokens, err := secrets.Watch(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		defer tokens.Stop()
		for event := range tokens.ResultChan() {
			secret, isSecret := event.Object.(*corev1.Secret)
			if !isSecret || event.Type == watch.Deleted || len(secret.Data) > 0 {
				continue
			}
			token, err := c.client.CoreV1().ServiceAccounts(secret.Namespace).
				CreateToken(ctx, secret.Annotations[corev1.ServiceAccountNameKey], &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			if err == nil {
				secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token.Status.Token)}
				_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("issue a token: %v", err)
			}
		}
	})
}

// Apply creates the objects of a manifest, of the kinds that grant rights.
// Objects that exist stay as they are.
func (c *Cluster) Apply(t testing.TB, manifest string) {
	t.Helper()
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.create(t, object)
	}
}

func (c *Cluster) create(t testing.TB, object any) {
	t.Helper()
	if err := c.tryCreate(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func (c *Cluster) tryCreate(ctx context.Context, object any) (err error) {
	var options metav1.CreateOptions
	rbac := c.client.RbacV1()
	switch o := object.(type) {
	case *corev1.Namespace:
		_, err = c.client.CoreV1().Namespaces().Create(ctx, o, options)
	case *rbacv1.Role:
		_, err = rbac.Roles(o.Namespace).Create(ctx, o, options)
	case *rbacv1.ClusterRole:
		_, err = rbac.ClusterRoles().Create(ctx, o, options)
	case *rbacv1.RoleBinding:
		_, err = rbac.RoleBindings(o.Namespace).Create(ctx, o, options)
	case *rbacv1.ClusterRoleBinding:
		_, err = rbac.ClusterRoleBindings().Create(ctx, o, options)
	default:
		err = fmt.Errorf("%T is of none of the kinds that are created here", o)
	}
	return err
}

// Finalize ends the deletion of a namespace, which stands in for the
// controller that would: its objects are forgotten nowhere.
func (c *Cluster) Finalize(t testing.TB, name string) {
	t.Helper()
	namespaces := c.client.CoreV1().Namespaces()
	namespace, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(t.Context(), namespace, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
