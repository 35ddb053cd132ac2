package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// seen is the version in which a hook got a review, and the one in which the
// client wrote.
func seen(q *hostsdk.Request) string {
	a := q.Admission()
	return fmt.Sprintf("%s/%s %s for %s/%s", a.GetKind().GetGroup(), a.GetKind().GetVersion(), a.GetKind().GetKind(),
		a.GetRequestKind().GetGroup(), a.GetRequestKind().GetVersion())
}

// inVersion has the hooks of a configuration name one version of their
// resources.
func inVersion(c *admissionregistrationv1.MutatingWebhookConfiguration, version string) *admissionregistrationv1.MutatingWebhookConfiguration {
	for i := range c.Webhooks {
		c.Webhooks[i].Rules[0].APIVersions = []string{version}
	}
	return c
}

// mutateAll has kube-apiserver send the mesh mutating reviews of a resource in
// the version in which clients write it.
func (r *road) mutateAll(t *testing.T, group, resource string) {
	t.Helper()
	hook := r.entry("mutate", []admissionregistrationv1.OperationType{admissionregistrationv1.Create})
	hook.Group, hook.Resources = group, []string{resource}
	cluster.InstallMutating(t, kube.Mutating(r.name, hook))
}

// TestAHookSeesTheVersionOfABuiltInKindThatItAsksFor writes autoscaling/v2,
// where the hook knows autoscaling/v1 alone.
func TestAHookSeesTheVersionOfABuiltInKindThatItAsksFor(t *testing.T) {
	const hook = "scale.example.com"
	onScalers := kube.Hook{
		Name: hook, Group: "autoscaling", Resources: []string{"horizontalpodautoscalers"},
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
	}
	r := newRoad(t, inVersion(kube.Mutating("scale", onScalers), "v1"))
	var calls asked
	r.host(t, hostsdk.Mutate(hook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		calls.add(seen(q), q)
		return hostsdk.Patch([]byte(`[{"op":"add","path":"/spec/targetCPUUtilizationPercentage","value":55}]`)), nil
	}))
	r.mutateAll(t, "autoscaling", "horizontalpodautoscalers")

	created, err := cluster.Client().AutoscalingV2().HorizontalPodAutoscalers(r.namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "scaler"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web", APIVersion: "apps/v1"},
			MaxReplicas:    7,
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ // v1 has no such field
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To(int32(42))},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a scaler: %v", err)
	}

	if diff := cmp.Diff([]string{"autoscaling/v1 HorizontalPodAutoscaler for autoscaling/v2"}, calls.what); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	cpu := int32(0)
	for _, m := range created.Spec.Metrics {
		if m.Resource != nil && m.Resource.Name == "cpu" {
			cpu = ptr.Deref(m.Resource.Target.AverageUtilization, 0)
		}
	}
	if window := created.Spec.Behavior.ScaleDown.StabilizationWindowSeconds; cpu != 55 || ptr.Deref(window, 0) != 42 {
		t.Errorf("CPU target %d, window %v: want what the hook set, and what it could not see", cpu, window)
	}
}

const widgets = "widgets"

// widgetDefinition is a kind of two versions, with a field that each calls
// differently if there is a conversion webhook, else the same.
func widgetDefinition(group string, conversion *apiextensionsv1.CustomResourceConversion) *apiextensionsv1.CustomResourceDefinition {
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: ptr.To(true),
			}},
		}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: widgets + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped, Conversion: conversion,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: widgets, Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v1beta1", false)},
		},
	}
}

// convertWidgets is a conversion webhook: v1beta1 names the size of v1
// dimension.
func convertWidgets(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("read the review: %v", err), http.StatusBadRequest)
		return
	}
	from, to := `"dimension"`, `"size"`
	if strings.HasSuffix(review.Request.DesiredAPIVersion, "/v1beta1") {
		from, to = to, from
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, o := range review.Request.Objects {
		var object unstructured.Unstructured
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(o.Raw), from, to)), &object.Object); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		object.SetAPIVersion(review.Request.DesiredAPIVersion)
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: &object})
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // a caller that has gone away needs no answer
}

// TestAHookSeesTheVersionOfACustomResourceThatItAsksFor writes v1beta1, where
// the hook knows v1 alone.
func TestAHookSeesTheVersionOfACustomResourceThatItAsksFor(t *testing.T) {
	citest.Gate(t, "covers versions of resources: 5 s")
	tests := []struct {
		name       string
		group      string
		conversion func(*testing.T) *apiextensionsv1.CustomResourceConversion
		field      string // the hook's name of the field dimension of v1beta1
	}{
		{"strategy None", "none.example.com", func(*testing.T) *apiextensionsv1.CustomResourceConversion { return nil }, "dimension"},
		{"a conversion webhook", "webhook.example.com", conversionWebhook, "size"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			const hook = "widgets.example.com"
			cluster.InstallDefinitions(t, widgetDefinition(test.group, test.conversion(t)))
			onWidgets := kube.Hook{
				Name: hook, Group: test.group, Resources: []string{widgets},
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			}
			r := newRoad(t, inVersion(kube.Mutating("widgets", onWidgets), "v1"))
			var calls asked
			r.host(t, hostsdk.Mutate(hook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
				var object struct {
					APIVersion string         `json:"apiVersion"`
					Spec       map[string]any `json:"spec"`
				}
				err := json.Unmarshal(q.RawObject(), &object)
				calls.add(fmt.Sprintf("%s: %s %v", seen(q), object.APIVersion, object.Spec), q)
				return hostsdk.Patch(fmt.Appendf(nil, `[{"op":"replace","path":"/spec/%s","value":2}]`, test.field)), err
			}))
			r.mutateAll(t, test.group, widgets)

			version := schema.GroupVersionResource{Group: test.group, Version: "v1beta1", Resource: widgets}
			created, err := cluster.Dynamic(t).Resource(version).Namespace(r.namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": test.group + "/v1beta1", "kind": "Widget", "metadata": map[string]any{"name": "widget"},
				"spec": map[string]any{"dimension": int64(1), "other": "kept"},
			}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("create a widget: %v", err)
			}

			want := []string{fmt.Sprintf("%[1]s/v1 Widget for %[1]s/v1beta1: %[1]s/v1 map[%[2]s:1 other:kept]", test.group, test.field)}
			if test.field == "size" {
				want = []string{fmt.Sprintf("%[1]s/v1 Widget for %[1]s/v1beta1: %[1]s/v1 map[other:kept size:1]", test.group)}
			}
			if diff := cmp.Diff(want, calls.what); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]any{"dimension": int64(2), "other": "kept"}, created.Object["spec"]); diff != "" {
				t.Errorf("the widget (-want +got):\n%s", diff)
			}
		})
	}
}

// conversionWebhook is a running one, for kube-apiserver and the mesh alike.
func conversionWebhook(t *testing.T) *apiextensionsv1.CustomResourceConversion {
	t.Helper()
	url := serveHTTPS(t, http.HandlerFunc(convertWidgets))
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To(url + "/convert"), CABundle: cluster.Authority().PEM()},
		},
	}
}

// TestConditionsMayAskForPermissions has a hook spare the users that hold a
// permission, which only the cluster knows.
func TestConditionsMayAskForPermissions(t *testing.T) {
	citest.Gate(t, "covers versions of resources: a second")
	const hook, verb = "spare.example.com", "bypass"
	c := kube.Validating("spare", onPods(hook))
	c.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name:       "spared",
		Expression: `!authorizer.group("policy.example.com").resource("reviews").namespace(request.namespace).check("` + verb + `").allowed()`,
	}}
	r := newRoad(t, c)
	r.host(t, hostsdk.Validate(hook, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny("not spared").WithCode(http.StatusConflict), nil
	}))
	r.validate(t)

	for user, spared := range map[string]bool{"plain": false, "spared": true} {
		client := r.userWhoMay(t, user, spared, verb)
		_, err := client.CoreV1().Pods(r.namespace).Create(t.Context(), kube.Pod(r.namespace, user), metav1.CreateOptions{})
		if spared && err != nil {
			t.Errorf("user %s: %v, want the hook left out", user, err)
		}
		if !spared {
			wantError(t, err, http.StatusConflict, "not spared")
		}
	}
}

// userWhoMay is a client of a user that may create Pods in the road's
// namespace, and may do verb to reviews of policy.example.com if so told.
func (r *road) userWhoMay(t *testing.T, user string, may bool, verb string) *kubernetes.Clientset {
	t.Helper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}}
	if may {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"policy.example.com"}, Resources: []string{"reviews"}, Verbs: []string{verb}})
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	if _, err := cluster.Client().RbacV1().Roles(r.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := cluster.Client().RbacV1().RoleBindings(r.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := cluster.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kube.CloseIdleConnections(client) })
	eventually(t, user+" may do what he was granted", func() error {
		for _, rule := range rules {
			asked := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: r.namespace, Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0],
				},
			}}
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), asked, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if !answer.Status.Allowed {
				return fmt.Errorf("not yet to %v", rule.Resources)
			}
		}
		return nil
	})
	return client
}

// serveHTTPS serves anybody who trusts the cluster's authority; it returns the
// URL.
func serveHTTPS(t *testing.T, handler http.Handler) string {
	t.Helper()
	pair, err := cluster.Authority().Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}
