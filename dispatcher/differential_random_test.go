package dispatcher_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// chance makes worlds and experiments out of few names, so that they meet often. The same seed makes the same.
type chance struct{ *rand.Rand }

func newChance(seed uint64) chance { return chance{rand.New(rand.NewPCG(seed, 0))} }

func pick[T any](r chance, from ...T) T { return from[r.IntN(len(from))] }

// some picks one to three.
func some[T any](r chance, from ...T) []T {
	var out []T
	for range 1 + r.IntN(3) {
		out = append(out, pick(r, from...))
	}
	return out
}

// in is true once in n cases.
func (r chance) in(n int) bool { return r.IntN(n) == 0 }

// oneSecond is the shortest timeout of a hook: scripts let it pass.
const oneSecond = 1

// world is a cluster with up to four configurations of each kind. Names collide: of configurations of both kinds, of
// hooks in several, and, for all but hosts, which could not tell them apart, of hooks within one.
func (r chance) world() *world {
	w := &world{
		Namespaces: map[string]map[string]string{"dev": {"env": "dev"}, "prod": {"env": "prod", "tier": "dev"}, "bare": nil},
		Custom:     r.in(2), Focus: "widgets", Versions: r.versions(), Definition: r.definition(), Authorizer: !r.in(4), Streams: r.in(8),
	}
	if !w.Custom {
		w.Focus = pick(r, "deployments", "deployments", "deployments", "horizontalpodautoscalers", "horizontalpodautoscalers", "ingresses", "poddisruptionbudgets", "cronjobs", "cronjobs",
			"events", "widgets", "pods", "services")
	}
	for _, stage := range []admissionv1.Stage{mutate, validate} {
		names := []string{"a", "b", "ab", "a.b", "B"}
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names[:1+r.IntN(4)] {
			c := configuration{Name: name, Stage: stage, HTTPS: r.in(3)}
			for range 1 + r.IntN(3) {
				h := r.webhook(stage)
				if r.in(3) {
					h.Rules = r.precise(w)
				}
				if c.HTTPS {
					url := "https://webhook.test.dev"
					h.ClientConfig.URL, h.AdmissionReviewVersions = &url, r.reviewVersions()
					if name == "B" && len(c.Webhooks) == 0 && r.in(8) { // one at most, since nobody sees whether it was selected
						h.AdmissionReviewVersions = pick(r, []string{"v2"}, []string{"v1alpha1"}, nil)
					}
				}
				if !w.Streams || c.HTTPS || !c.has(h.Name) {
					c.Webhooks = append(c.Webhooks, h)
				}
			}
			w.Configurations = append(w.Configurations, c)
		}
	}
	return w
}

// webhook leaves out optional fields, and now and then a required field: old objects in a cluster's storage have not seen today's validation.
func (r chance) webhook(stage admissionv1.Stage) admissionregistrationv1.MutatingWebhook {
	h := admissionregistrationv1.MutatingWebhook{
		Name: pick(r, "one.test.dev", "two.test.dev", "three.test.dev"), AdmissionReviewVersions: []string{"v1"},
		Rules: r.rules(), NamespaceSelector: r.selector(), ObjectSelector: r.selector(), MatchConditions: r.conditions(),
		FailurePolicy:  maybe(r, admissionregistrationv1.Ignore, admissionregistrationv1.Ignore, admissionregistrationv1.Fail),
		MatchPolicy:    maybe(r, admissionregistrationv1.Exact, admissionregistrationv1.Equivalent),
		TimeoutSeconds: maybe[int32](r, 10, 30),
	}
	if stage == mutate {
		h.ReinvocationPolicy = maybe(r, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
	effects := pick(r, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)
	switch {
	case r.in(16):
		effects = pick(r, admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown)
	case r.in(30):
		return h
	}
	h.SideEffects = &effects
	if r.in(100) {
		h.TimeoutSeconds = new(int32)
		*h.TimeoutSeconds = oneSecond
	}
	return h
}

// reviewVersions are those that a webhook takes, best first. Hosts are only ever asked in v1.
func (r chance) reviewVersions() []string {
	return pick(r, []string{"v1"}, []string{"v1", "v1beta1"}, []string{"v1beta1"}, []string{"v1beta1", "v1"}, []string{"v2", "v1beta1"})
}

// maybe picks one, or nil.
func maybe[T any](r chance, from ...T) *T {
	if r.in(4) {
		return nil
	}
	picked := pick(r, from...)
	return &picked
}

func (r chance) rules() []admissionregistrationv1.RuleWithOperations {
	if !r.in(3) {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		}}
	}
	var rules []admissionregistrationv1.RuleWithOperations
	for range 1 + r.IntN(3) {
		rules = append(rules, admissionregistrationv1.RuleWithOperations{
			Operations: some[admissionregistrationv1.OperationType](r, "*", "*", "CREATE", "UPDATE", "DELETE", "CONNECT"),
			Rule: admissionregistrationv1.Rule{
				APIGroups:   some(r, "*", "", "test.dev", "apps", "apps", "extensions", "autoscaling", "networking.k8s.io", "policy", "batch", "events.k8s.io"),
				APIVersions: some(r, "*", "v1", "v1", "v1beta1", "v1beta1", "v1beta2", "v2"),
				Resources: some(r, "*", "*", "*/*", "*/*", "widgets", "widgets/*", "*/status", "*/scale", "pods", "pods/*", "pods/exec", "*/exec", "namespaces", "gadgets",
					"deployments", "deployments/*", "horizontalpodautoscalers", "ingresses", "poddisruptionbudgets", "cronjobs", "events"),
				Scope: maybe(r, admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope),
			},
		})
	}
	return rules
}

// precise is a rule for one way to one resource, which there may be others to.
func (r chance) precise(w *world) []admissionregistrationv1.RuleWithOperations {
	e := r.endpoint(w)
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{e.Resource.Group}, APIVersions: []string{e.Resource.Version},
			Resources: []string{pick(r, e.Resource.Resource, e.Resource.Resource+"/*", strings.TrimSuffix(e.Resource.Resource+"/"+e.Subresource, "/"))},
		},
	}}
}

func (r chance) selector() *metav1.LabelSelector {
	switch {
	case !r.in(3):
		return nil
	case r.in(60): // cannot be parsed
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Near"}}}
	case r.in(3):
		return &metav1.LabelSelector{MatchLabels: map[string]string{"env": pick(r, "dev", "prod")}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{pick(r,
		metav1.LabelSelectorRequirement{Key: pick(r, "env", "tier", "skip"), Operator: pick(r, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)},
		metav1.LabelSelectorRequirement{Key: "env", Operator: pick(r, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: some(r, "dev", "prod", "")},
	)}}
}

// conditions do not look at dryRun: a deviation is explained by asking about the same request in earnest.
func (r chance) conditions() []admissionregistrationv1.MatchCondition {
	if !r.in(5) {
		return nil
	}
	expressions := []string{
		`true`, `1 > 2`, `request.operation != "DELETE"`, `object != null && has(object.metadata.labels) && object.metadata.labels.size() > 0`,
		`oldObject == null`, `request.userInfo.username == "jane"`, `"ops" in request.userInfo.groups`, `request.namespace != "prod"`,
		`!has(object.spec.flag)`, `object == null || !has(object.spec) || !has(object.spec.flag)`,
		`object.spec.size < 3`, // an error for objects without one, and for some that have one
		`object == null || object.apiVersion.endsWith("v1")`, `request.kind.version == request.requestKind.version`, `request.resource.group != "extensions"`,
		`authorizer.requestResource.check("get").allowed()`, `authorizer.group("apps").resource("deployments").namespace(request.namespace).check("delete").allowed()`,
		`!authorizer.path("/healthz").check("get").errored()`, `authorizer.serviceAccount("dev", "robot").group("").resource("pods").check("list").reason() != "not here"`,
		`has(oldObject.spec) && has(oldObject.spec.replicas) && oldObject.spec.replicas > 1`,
	}
	if r.in(10) {
		expressions = []string{`object.missing.missing == 1`, `"not a bool"`, `syntax error`}
	}
	var out []admissionregistrationv1.MatchCondition
	for i, e := range some(r, expressions...) {
		out = append(out, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: e})
	}
	return out
}

// endpoint picks an endpoint of a world, mostly of the resource that the world is about.
func (r chance) endpoint(w *world) endpoint {
	all := w.endpoints()
	if !r.in(4) {
		all = slices.DeleteFunc(all, func(e endpoint) bool { return e.Resource.Resource != w.Focus })
	}
	return pick(r, all...)
}

// experiment is a request, and the scripts of the hooks for it.
func (r chance) experiment(w *world) *experiment {
	e := &experiment{
		world: w, Stage: pick(r, mutate, mutate, mutate, validate, validate), Request: r.request(w), Scripts: map[string]script{}, Explain: r.in(4),
	}
	// Deadlines are the wall clock's, and the original cannot be given another: on a busy machine a call that it gave up reaches a hook late, in the
	// next review. Short runs, which decide about changes, have none; stories of the chain do.
	if r.in(60) && (*differentialDeadlines || differentialCases() >= manyCases) {
		e.Deadline = 200 * time.Millisecond
	}
	for _, h := range w.hooks(e.Stage) {
		s := scripting{chance: r, experiment: e, hook: h}
		if script := s.script(); script != nil {
			e.Scripts[h.key] = script
		}
	}
	return e
}

// request is a request as a client makes it.
func (r chance) request(w *world) *admissionv1.AdmissionRequest {
	e := r.endpoint(w)
	req := &admissionv1.AdmissionRequest{
		Kind:        &admissionv1.GroupVersionKind{Group: e.Kind.Group, Version: e.Kind.Version, Kind: e.Kind.Kind},
		Resource:    &admissionv1.GroupVersionResource{Group: e.Resource.Group, Version: e.Resource.Version, Resource: e.Resource.Resource},
		SubResource: e.Subresource, Name: pick(r, "", "dev", "x"), Operation: pick(r, "CREATE", "CREATE", "UPDATE", "UPDATE", "DELETE"),
		UserInfo: &admissionv1.UserInfo{
			Username: pick(r, "jane", "joe"), Uid: pick(r, "", "u1"), Groups: some(r, "ops", "dev"),
			Extra: map[string]*admissionv1.ExtraValue{"team": {Items: some(r, "a", "b")}},
		},
	}
	if !e.cluster || (e.Resource.Resource == "namespaces" && !r.in(4)) {
		req.Namespace = pick(r, "dev", "dev", "dev", "dev", "dev", "prod", "prod", "bare", "missing")
	}
	if e.Kind.Kind == "PodExecOptions" {
		req.Operation, req.Object = "CONNECT", r.object(w, e)
		return req
	}
	if r.in(4) {
		dryRun := true
		req.DryRun = &dryRun
	}
	if req.Operation != "DELETE" {
		req.Object = r.object(w, e)
	}
	if req.Operation != "CREATE" {
		req.OldObject = r.object(w, e)
	}
	kind := map[string]string{"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}[req.Operation]
	req.Options = &admissionv1.Object{Raw: []byte(`{"kind":"` + kind + `","apiVersion":"meta.k8s.io/v1"}`)}
	return req
}

// metadata has the fields of every object that hooks test and change.
func (r chance) metadata() map[string]any {
	metadata := map[string]any{"name": "x", "annotations": map[string]any{"note": "<é & \u2028>"}}
	if !r.in(5) {
		metadata["labels"] = pick[any](r, map[string]any{"env": "dev"}, map[string]any{"env": "prod", "skip": ""}, map[string]any{}, nil)
	}
	if r.in(4) {
		delete(metadata, "name")
		metadata["generateName"] = "x-"
	}
	return metadata
}

// widgetSpec has fields for hooks to change: a list, numbers of every kind.
func (r chance) widgetSpec() map[string]any {
	spec := map[string]any{"list": []any{"start"}, "size": pick[any](r, 1, 3, 1.5, "large"), "big": 9007199254740993}
	if r.in(4) {
		spec["flag"] = true
	}
	if r.in(3) {
		spec["nothing"], spec["empty"] = nil, map[string]any{}
	}
	return spec
}

// object is an object of an endpoint. Custom resources are the same in every version.
func (r chance) object(w *world, e endpoint) *admissionv1.Object {
	if !w.typed(e.Kind.GroupKind()) {
		content := map[string]any{"metadata": r.metadata(), "spec": r.widgetSpec()}
		return &admissionv1.Object{Raw: written(content, e.Kind)}
	}
	content, version := r.content(e.Kind.Kind)
	if version == e.Kind.GroupVersion() {
		return &admissionv1.Object{Raw: written(content, e.Kind)}
	}
	return &admissionv1.Object{Raw: inVersion(content, version, e.Kind)}
}
