package kube

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Namespace makes a namespace for one test, with labels and with the service
// account that Pods need, and returns its name. It is never deleted: nobody
// would finish the deletion. When the test fails its output ends with the
// cluster's logs.
func (c *Cluster) Namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs())
		}
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: labels}}
	created, err := c.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	if err := c.createServiceAccount(t.Context(), created.Name); err != nil {
		t.Fatal(err)
	}
	return created.Name
}

// ContextReaders is the group whose users may read the objects that a mesh
// needs and reviews do not carry, and no others (docs/configuration.md).
const ContextReaders = "e2e:context-readers"

// letReadContext grants it.
func (c *Cluster) letReadContext(ctx context.Context) error {
	const name = "e2e-context-readers"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			Verbs: []string{"list", "watch"},
		},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}}
	if _, err := c.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a role: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: ContextReaders}},
	}
	if _, err := c.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind a role: %w", err)
	}
	return nil
}

// SetNamespaceLabel replaces one label of a namespace, or removes it when
// value is "". kube-apiserver and everybody else learn of it a little later.
func (c *Cluster) SetNamespaceLabel(ctx context.Context, namespace, key, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, key)
	}
	_, err := c.client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("label namespace %s: %w", namespace, err)
	}
	return nil
}

// Pod is the smallest Pod that kube-apiserver accepts in a namespace made by
// [Cluster.Namespace]. The caller owns it.
func Pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/app:1"}},
		},
	}
}

// CreatePod creates pod as the all-powerful user; tests of the answer itself
// use [Cluster.Client].
func (c *Cluster) CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return c.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
}
