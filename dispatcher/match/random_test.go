package match_test

import (
	"encoding/json"
	"math/rand/v2"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// random makes configurations and requests out of few names, so that they meet often. The same seed makes the same.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 0))} }

func pick[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

// some picks one to three.
func some[T any](r random, from ...T) []T {
	var out []T
	for range 1 + r.IntN(3) {
		out = append(out, pick(r, from...))
	}
	return out
}

// maybe is true once in n cases.
func (r random) maybe(n int) bool { return r.IntN(n) == 0 }

func (r random) rules() []admissionregistrationv1.RuleWithOperations {
	if r.maybe(4) { // by another version, where a conversion may fail
		return rule("*", "example.com", pick(r, "v1", "v1beta1"), "widgets")
	}
	var rules []admissionregistrationv1.RuleWithOperations
	for range 1 + r.IntN(3) {
		rules = append(rules, admissionregistrationv1.RuleWithOperations{
			Operations: some[admissionregistrationv1.OperationType](r, "*", "CREATE", "UPDATE", "DELETE", "CONNECT", "FUTURE"),
			Rule: admissionregistrationv1.Rule{
				APIGroups:   some(r, "*", "", "apps", "extensions", "autoscaling", "example.com"),
				APIVersions: some(r, "*", "v1", "v1", "v1beta1", "v1beta2", "v2"),
				Resources: some(r, "*", "*/*", "pods", "pods/*", "pods/exec", "*/status", "*/exec", "namespaces",
					"namespaces/*", "nodes", "deployments", "deployments/scale", "deployments/*", "*/scale",
					"horizontalpodautoscalers", "widgets", "widgets/status", "gadgets"),
				Scope: r.scope(),
			},
		})
	}
	return rules
}

func (r random) scope() *admissionregistrationv1.ScopeType {
	if r.maybe(2) {
		return nil
	}
	s := pick(r, admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope, "Bogus")
	return &s
}

func (r random) labels() map[string]string {
	if r.maybe(3) {
		return nil
	}
	out := map[string]string{}
	for range r.IntN(3) {
		out[pick(r, "env", "tier", "skip")] = pick(r, "dev", "prod", "")
	}
	return out
}

// selector is empty, or a selector, or now and then none that can be parsed.
func (r random) selector() *metav1.LabelSelector {
	if !r.maybe(3) {
		return &metav1.LabelSelector{}
	}
	s := &metav1.LabelSelector{}
	if r.maybe(2) {
		s.MatchLabels = map[string]string{pick(r, "env", "tier"): pick(r, "dev", "prod")}
	}
	if r.maybe(2) {
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{
			Key: pick(r, "env", "tier", "skip"), Operator: pick(r, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist),
		}}
	}
	if r.maybe(4) {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "env", Operator: pick(r, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: some(r, "dev", "prod", ""),
		})
	}
	if r.maybe(20) {
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Near"}}
	}
	return s
}

func (r random) conditions() []admissionregistrationv1.MatchCondition {
	if r.maybe(2) {
		return nil
	}
	var out []admissionregistrationv1.MatchCondition
	for _, e := range some(r, `true`, `true`, `1 > 2`, `request.operation != "DELETE"`, `object.metadata.labels.env == "dev"`,
		`has(object.metadata.labels) && object.metadata.labels.size() > 0`, `oldObject == null`, `request.userInfo.username == "jane"`,
		`request.dryRun`, `request.resource.version == "v1"`, `request.requestKind.kind in ["Pod", "Widget"]`,
		`"ops" in request.userInfo.groups`, `request.userInfo.extra["team"][0] == "a"`, `object.spec.size < 2`,
		`object.spec.containers.all(c, c.image.startsWith("main"))`, `has(request.options) && request.options.kind == "CreateOptions"`,
		`namespaceObject == null`, `authorizer.group("").resource("pods").check("get").allowed()`, `request.name == ""`,
		`authorizer.path("/open").check("get").allowed()`, `authorizer.path("/closed").check("get").allowed()`,
		`authorizer.path("/broken").check("get").allowed()`, `authorizer.requestResource.check("update").allowed()`,
		`object.apiVersion in ["v1", "apps/v1", "autoscaling/v1", "example.com/v1"]`, `request.kind.version == "v1"`,
		`request.requestKind.version == request.kind.version`, `request.resource == request.requestResource`,
		`request.kind.group == "extensions"`, `request.requestResource.version.startsWith("v1beta")`,
		`has(object.spec.rollbackTo)`, `has(object.spec.targetCPUUtilizationPercentage) && !has(object.spec.metrics)`,
		`!has(oldObject.status) || oldObject.status.selector == "a=b"`,
		`request.namespace == "dev"`, `"not a bool"`, `object.missing.missing`, `object.missing.missing == 1`, `syntax error`,
	) {
		out = append(out, admissionregistrationv1.MatchCondition{Name: pick(r, "one", "two"), Expression: e})
	}
	return out
}

// webhook is a webhook as the API server stores it.
func (r random) webhook(name string) admissionregistrationv1.MutatingWebhook {
	w := admissionregistrationv1.MutatingWebhook{
		Name: name, Rules: r.rules(), NamespaceSelector: r.selector(), ObjectSelector: r.selector(),
	}
	if !r.maybe(3) {
		p := pick(r, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
		w.FailurePolicy = &p
	}
	w.MatchPolicy = r.matchPolicy()
	return w
}

func (r random) matchPolicy() *admissionregistrationv1.MatchPolicyType {
	exact, equivalent := admissionregistrationv1.Exact, admissionregistrationv1.Equivalent
	return pick(r, nil, &exact, &equivalent, &equivalent)
}

// endpoint is something that can be asked for.
type endpoint struct {
	group, version, kind, resource, sub string
	cluster                             bool
	apiVersion                          string // of the kind, if it differs from the resource's
}

func endpoints() []endpoint {
	return []endpoint{
		{"", "v1", "Pod", "pods", "", false, ""}, {"", "v1", "Pod", "pods", "status", false, ""},
		{"", "v1", "PodExecOptions", "pods", "exec", false, ""}, {"", "v1", "Namespace", "namespaces", "", true, ""},
		{"", "v1", "Namespace", "namespaces", "status", true, ""}, {"", "v1", "Node", "nodes", "", true, ""},
		{"apps", "v1", "Deployment", "deployments", "", false, ""}, {"apps", "v1beta1", "Deployment", "deployments", "", false, ""},
		{"apps", "v1beta2", "Deployment", "deployments", "", false, ""}, {"extensions", "v1beta1", "Deployment", "deployments", "", false, ""},
		{"apps", "v1", "Scale", "deployments", "scale", false, "autoscaling/v1"}, {"apps", "v1beta1", "Scale", "deployments", "scale", false, ""},
		{"apps", "v1beta2", "Scale", "deployments", "scale", false, ""}, {"extensions", "v1beta1", "Scale", "deployments", "scale", false, ""},
		{"autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "", false, ""},
		{"autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "", false, ""},
		{"example.com", "v1", "Widget", "widgets", "", false, ""}, {"example.com", "v1beta1", "Widget", "widgets", "", false, ""},
		{"example.com", "v1", "Widget", "widgets", "status", false, ""}, {"example.com", "v1beta1", "Widget", "widgets", "status", false, ""},
		{"example.com", "v1", "Gadget", "gadgets", "", true, ""}, {"example.com", "v1", "Namespace", "namespaces", "", true, ""},
	}
}

func (e endpoint) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: e.group, Version: e.version, Resource: e.resource}
}

func (e endpoint) gvk() schema.GroupVersionKind {
	if e.apiVersion != "" {
		return schema.FromAPIVersionAndKind(e.apiVersion, e.kind)
	}
	return e.gvr().GroupVersion().WithKind(e.kind)
}

// request is a request as a client makes it: its objects are not defaulted yet.
func (r random) request() *admissionv1.AdmissionRequest {
	e := pick(r, endpoints()...)
	if r.maybe(3) {
		e = pick(r, endpoint{"example.com", "v1", "Widget", "widgets", "", false, ""}, endpoint{"apps", "v1beta1", "Deployment", "deployments", "", false, ""})
	}
	req := &admissionv1.AdmissionRequest{
		Kind:        &admissionv1.GroupVersionKind{Group: e.gvk().Group, Version: e.gvk().Version, Kind: e.kind},
		Resource:    &admissionv1.GroupVersionResource{Group: e.group, Version: e.version, Resource: e.resource},
		SubResource: e.sub,
		Name:        pick(r, "", "dev", "x"),
		Operation:   pick(r, "CREATE", "UPDATE", "DELETE"),
		UserInfo:    &admissionv1.UserInfo{Username: pick(r, "jane", "joe"), Groups: some(r, "ops", "dev"), Extra: map[string]*admissionv1.ExtraValue{"team": {Items: some(r, "a", "b")}}},
	}
	if dryRun := r.maybe(2); dryRun || r.maybe(2) {
		req.DryRun = &dryRun
	}
	if !e.cluster || (e.resource == "namespaces" && !r.maybe(4)) {
		req.Namespace = pick(r, "dev", "dev", "prod", "bare", "missing", "broken")
	}
	if e.kind == "PodExecOptions" {
		req.Operation, req.Object = "CONNECT", object(map[string]any{"stdin": true}, e)
		return req
	}
	if req.Operation != "DELETE" {
		req.Object = object(r.content(e), e)
	}
	if req.Operation != "CREATE" {
		req.OldObject = object(r.content(e), e)
	}
	kind := map[string]string{"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}[req.Operation]
	req.Options = &admissionv1.Object{Raw: []byte(`{"kind":"` + kind + `","apiVersion":"meta.k8s.io/v1"}`)}
	return req
}

func (r random) content(e endpoint) map[string]any {
	content := map[string]any{"metadata": map[string]any{"name": "x", "labels": r.labels()}}
	switch e.kind {
	case "Pod":
		content["spec"] = map[string]any{"containers": []any{map[string]any{"name": "c", "image": pick(r, "main:1", "other:1")}}}
	case "Deployment":
		spec := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}
		if r.maybe(2) && e.version == "v1beta1" {
			spec["rollbackTo"] = map[string]any{"revision": 2}
		}
		content["spec"] = spec
	case "Scale":
		content["spec"] = map[string]any{"replicas": r.IntN(3)}
		if e.apiVersion != "" {
			content["status"] = map[string]any{"replicas": 1, "selector": pick(r, "a=b", "a in (b, c)")}
		} else {
			content["status"] = map[string]any{"replicas": 1, "selector": map[string]any{"a": "b"}}
		}
	case "HorizontalPodAutoscaler":
		spec := map[string]any{"maxReplicas": 3, "scaleTargetRef": map[string]any{"kind": "Deployment", "name": "d"}}
		if r.maybe(2) && e.version == "v1" {
			spec["targetCPUUtilizationPercentage"] = 70
		}
		content["spec"] = spec
	case "Widget":
		if r.maybe(4) {
			delete(content, "metadata")
		}
		content["spec"] = map[string]any{"size": pick[any](r, 1, 3, 1.5, "large", "large")}
	}
	return content
}

func object(content map[string]any, e endpoint) *admissionv1.Object {
	content["apiVersion"], content["kind"] = e.gvk().ToAPIVersionAndKind()
	raw, err := json.Marshal(content)
	if err != nil {
		panic(err) // maps of strings can be marshalled
	}
	return &admissionv1.Object{Raw: raw}
}
