package dispatcher_test

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
)

// endpoint is something that can be asked for.
type endpoint struct {
	conversion.ResourceKind

	cluster bool // its objects are in no namespace
}

// at is an endpoint: "group/version resource/subresource Kind", where the kind may have a group and version of its own.
func at(description string) endpoint {
	fields := strings.Fields(description)
	gv, _ := schema.ParseGroupVersion(fields[0])
	resource, sub, _ := strings.Cut(fields[1], "/")
	kind := gv.WithKind(fields[2])
	if i := strings.LastIndex(fields[2], "/"); i >= 0 {
		own, _ := schema.ParseGroupVersion(fields[2][:i])
		kind = own.WithKind(fields[2][i+1:])
	}
	return endpoint{ResourceKind: conversion.ResourceKind{Resource: gv.WithResource(resource), Subresource: sub, Kind: kind}}
}

func clusterWide(e endpoint) endpoint {
	e.cluster = true
	return e
}

// groupVersions are the versions that API servers have served, of the groups that the test knows, in the order of discovery.
func groupVersions() []schema.GroupVersion {
	var all []schema.GroupVersion
	for _, text := range []string{
		"apps/v1", "apps/v1beta2", "apps/v1beta1", "extensions/v1beta1", "autoscaling/v2", "autoscaling/v1", "networking.k8s.io/v1", "networking.k8s.io/v1beta1",
		"policy/v1", "policy/v1beta1", "batch/v1", "batch/v1beta1", "v1", "events.k8s.io/v1", "events.k8s.io/v1beta1",
	} {
		gv, _ := schema.ParseGroupVersion(text)
		all = append(all, gv)
	}
	return all
}

// versions are the group versions that the API server of a world serves, some perhaps in another order.
func (r chance) versions() []schema.GroupVersion {
	var served []schema.GroupVersion
	for _, gv := range groupVersions() {
		if gv.Version == "v1" || gv.Version == "v2" || !r.in(4) {
			served = append(served, gv)
		}
	}
	if r.in(4) {
		r.Shuffle(len(served), func(i, j int) { served[i], served[j] = served[j], served[i] })
	}
	return served
}

// definition is the CustomResourceDefinition of widgets.
func (r chance) definition() *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.test.dev"}}
	crd.Spec.Group, crd.Spec.Scope = "test.dev", apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"}
	crd.Status.AcceptedNames = crd.Spec.Names
	names := []string{"v1", "v1beta1"}
	if r.in(2) {
		names = []string{"v1beta1", "v1"}
	}
	for i, name := range names {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: i == 0,
			Subresources: &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
			},
		})
	}
	return crd
}

// endpoints are those that a world serves.
func (w *world) endpoints() []endpoint {
	widgets := at("test.dev/v1 widgets Widget")
	all := []endpoint{
		widgets, widgets, widgets, widgets, widgets, widgets, at("test.dev/v1beta1 widgets Widget"), at("test.dev/v1beta1 widgets Widget"),
		at("test.dev/v1 widgets/status Widget"), clusterWide(at("test.dev/v1 gadgets Gadget")),
	}
	if w.Custom {
		return append(all,
			at("v1 pods Pod"), clusterWide(at("v1 namespaces Namespace")), clusterWide(at("v1 namespaces/finalize Namespace")),
			clusterWide(at("admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration")),
			clusterWide(at("authentication.k8s.io/v1 tokenreviews TokenReview")),
			at("authorization.k8s.io/v1 localsubjectaccessreviews LocalSubjectAccessReview"),
		)
	}
	all = append(all,
		at("test.dev/v1 widgets/scale autoscaling/v1/Scale"), at("v1 pods/exec PodExecOptions"), at("v1 pods/exec PodExecOptions"),
		at("v1 pods Pod"), at("v1 pods Pod"), at("v1 configmaps ConfigMap"), at("v1 services Service"), clusterWide(at("v1 namespaces Namespace")),
	)
	served := equivalents.Served(w.Versions)
	for _, e := range []endpoint{
		at("apps/v1 deployments Deployment"), at("apps/v1 deployments Deployment"), at("apps/v1 deployments/scale Scale"), at("apps/v1 deployments/status Deployment"),
		at("autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler"), at("networking.k8s.io/v1 ingresses Ingress"),
		at("policy/v1 poddisruptionbudgets PodDisruptionBudget"), at("batch/v1 cronjobs CronJob"), at("v1 events Event"),
	} {
		for _, way := range served.For(e.Resource, e.Subresource) {
			all = append(all, endpoint{ResourceKind: way})
		}
	}
	return all
}

// typed reports whether objects of a kind have a Go type in the API server of the world.
func (w *world) typed(kind schema.GroupKind) bool { return !w.Custom && kind.Group != "test.dev" }

// registry has the equivalent resources of the API server of the world, in the order in which it installs them.
func (w *world) registry() runtime.EquivalentResourceMapper {
	all := runtime.NewEquivalentResourceRegistryWithIdentity(func(r schema.GroupResource) string { return r.Resource })
	for _, v := range w.Definition.Spec.Versions {
		gv := schema.GroupVersion{Group: w.Definition.Spec.Group, Version: v.Name}
		widgets, kind := gv.WithResource("widgets"), gv.WithKind("Widget")
		all.RegisterKindFor(widgets, "", kind)
		all.RegisterKindFor(widgets, "status", kind)
		all.RegisterKindFor(widgets, "scale", schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"})
	}
	if w.Custom {
		return all
	}
	registered := map[endpoint]bool{}
	for _, e := range w.endpoints() {
		for _, way := range equivalents.Served(w.Versions).For(e.Resource, e.Subresource) {
			if known := (endpoint{ResourceKind: way}); !registered[known] {
				registered[known] = true
				all.RegisterKindFor(way.Resource, way.Subresource, way.Kind)
			}
		}
	}
	return all
}

// content is an object of a kind as a client may write it, as far as it has a type in a version that Kubernetes has now.
func (r chance) content(kind string) (content map[string]any, version schema.GroupVersion) {
	metadata := r.metadata()
	withSpec := func(spec map[string]any) map[string]any { return map[string]any{"metadata": metadata, "spec": spec} }
	v1 := schema.GroupVersion{Version: "v1"}
	switch kind {
	case "PodExecOptions":
		return map[string]any{"stdin": true, "command": []any{"sh"}}, v1
	case "Pod":
		return withSpec(r.podSpec()), v1
	case "ConfigMap":
		return map[string]any{"metadata": metadata, "data": map[string]any{"a": "b"}}, v1
	case "Service":
		return withSpec(map[string]any{"selector": map[string]any{"app": "x"}, "ports": []any{map[string]any{"port": 80}}}), v1
	case "Namespace":
		return withSpec(map[string]any{"finalizers": []any{"kubernetes"}}), v1
	case "Event":
		return map[string]any{
			"metadata": metadata, "involvedObject": map[string]any{"kind": "Pod", "namespace": "dev", "name": "x"}, "reason": "Started", "message": "it runs",
		}, v1
	case "Deployment":
		spec := map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "x"}}, "spec": r.podSpec()},
		}
		if r.in(2) {
			spec["replicas"] = pick(r, 0, 1, 5)
		}
		if r.in(3) {
			spec["strategy"] = pick(r, map[string]any{"type": "Recreate"}, map[string]any{"rollingUpdate": map[string]any{"maxSurge": "30%"}})
		}
		return withSpec(spec), appsv1.SchemeGroupVersion
	case "Scale":
		return withSpec(map[string]any{"replicas": pick(r, 1, 3)}), schema.GroupVersion{Group: "autoscaling", Version: "v1"}
	case "HorizontalPodAutoscaler":
		return withSpec(r.autoscaling()), schema.GroupVersion{Group: "autoscaling", Version: "v2"}
	case "Ingress":
		backend := map[string]any{"service": map[string]any{"name": "x", "port": map[string]any{"number": 80}}}
		return withSpec(map[string]any{"rules": []any{map[string]any{"host": "x.test.dev", "http": map[string]any{
			"paths": []any{map[string]any{"path": "/", "pathType": "Prefix", "backend": backend}},
		}}}}), schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}
	case "PodDisruptionBudget":
		return withSpec(pick(r, map[string]any{"minAvailable": "50%"}, map[string]any{"maxUnavailable": 1, "selector": map[string]any{}},
			map[string]any{"minAvailable": 2, "selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}})), schema.GroupVersion{Group: "policy", Version: "v1"}
	case "CronJob":
		return withSpec(map[string]any{"schedule": "* * * * *", "jobTemplate": map[string]any{"spec": map[string]any{
			"template": map[string]any{"spec": r.podSpec()},
		}}}), schema.GroupVersion{Group: "batch", Version: "v1"}
	}
	return withSpec(r.widgetSpec()), schema.GroupVersion{}
}

// podSpec is the specification of a Pod, with as much left out as may be.
func (r chance) podSpec() map[string]any {
	container := map[string]any{"name": "main", "image": pick(r, "main", "main:1", "registry.test.dev/main:latest")}
	if r.in(2) {
		container["ports"] = []any{map[string]any{"containerPort": 80}}
	}
	if r.in(3) {
		container["resources"] = map[string]any{"limits": map[string]any{"memory": pick(r, "1Gi", "1024Mi"), "cpu": pick[any](r, 1, "0.5")}}
	}
	spec := map[string]any{"containers": []any{container}}
	if r.in(3) {
		spec["serviceAccountName"] = "robot"
	}
	if r.in(4) {
		spec["volumes"] = []any{map[string]any{"name": "v", "emptyDir": map[string]any{}}}
	}
	return spec
}

// autoscaling is the specification of a HorizontalPodAutoscaler, of which v1 has the CPU alone.
func (r chance) autoscaling() map[string]any {
	target := func(resource string) map[string]any {
		return map[string]any{"type": "Resource", "resource": map[string]any{
			"name": resource, "target": map[string]any{"type": "Utilization", "averageUtilization": 60},
		}}
	}
	spec := map[string]any{"maxReplicas": 4, "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}
	switch r.IntN(4) {
	case 0:
		spec["metrics"] = []any{target("cpu")}
	case 1, 2:
		spec["metrics"], spec["minReplicas"] = []any{target("cpu"), target("memory")}, 2
	}
	return spec
}

// written is content of a kind as a client writes it.
func written(content map[string]any, kind schema.GroupVersionKind) []byte {
	content["kind"], content["apiVersion"] = kind.Kind, kind.GroupVersion().String()
	return []byte(canonical(content))
}

// inVersion is content, which is in one version, as an object of another kind of the same type. If that is impossible, it returns the error text,
// which no reader decodes.
func inVersion(content map[string]any, from schema.GroupVersion, to schema.GroupVersionKind) []byte {
	content["kind"], content["apiVersion"] = to.Kind, from.String()
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(schema.GroupVersion{Group: from.Group, Version: runtime.APIVersionInternal}), []byte(canonical(content)))
	if err != nil {
		return []byte(err.Error())
	}
	raw, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(to.GroupVersion()), object)
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}
