package policy_test

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// boundMutating is a mutating policy and the bindings that put it into force.
type boundMutating struct {
	*admissionregistrationv1.MutatingAdmissionPolicy

	bindings   []*admissionregistrationv1.MutatingAdmissionPolicyBinding
	configured bool // its params are in the configuration
}

func (r random) mutatingPolicies() (all []boundMutating) {
	for i := range 1 + r.IntN(4) {
		p := boundMutating{MutatingAdmissionPolicy: r.mutatingPolicy(fmt.Sprintf("p%d.example.com", i)), configured: r.configured}
		for j := range 1 + r.IntN(3) {
			b := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d-%d", i, j)}}
			b.Spec.PolicyName = p.Name
			if b.Spec.ParamRef, b.Spec.MatchResources = r.binding(p.Spec.ParamKind); b.Spec.MatchResources != nil && r.in(10) {
				b.Spec.MatchResources.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no label": ""}}
			}
			p.bindings = append(p.bindings, b)
		}
		all = append(all, p)
	}
	return all
}

func (r random) mutatingPolicy(name string) *admissionregistrationv1.MutatingAdmissionPolicy {
	p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.ReinvocationPolicy = pick(r, admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)
	p.Spec.MatchConstraints = r.criteria(2)
	for i := range p.Spec.MatchConstraints.ResourceRules { // validation lets no rule name DELETE
		rule := &p.Spec.MatchConstraints.ResourceRules[i]
		if rule.Operations = slices.DeleteFunc(rule.Operations, func(o admissionregistrationv1.OperationType) bool { return o == "DELETE" }); rule.Operations == nil {
			rule.Operations = []admissionregistrationv1.OperationType{"*"}
		}
	}
	if !r.in(3) {
		failure := pick(r, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
		p.Spec.FailurePolicy = &failure
	}
	x := expressions{random: r, variables: r.in(3)}
	if x.params = r.in(3); x.params {
		p.Spec.ParamKind = r.paramKind()
	}
	if x.variables {
		p.Spec.Variables = x.declarations()
	}
	if r.in(3) {
		for i, text := range some(r, x.conditions()...) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: text})
		}
	}
	for range 1 + r.IntN(3) {
		m := admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch}
		if r.in(2) {
			m.JSONPatch = &admissionregistrationv1.JSONPatch{Expression: pick(r, x.jsonPatches()...)}
		} else {
			m.PatchType = admissionregistrationv1.PatchTypeApplyConfiguration
			m.ApplyConfiguration = &admissionregistrationv1.ApplyConfiguration{Expression: pick(r, x.applied()...)}
		}
		p.Spec.Mutations = append(p.Spec.Mutations, m)
	}
	return p
}

// jsonPatches and applied are expressions of mutations; each fits some of the objects.
func (x expressions) jsonPatches() []string {
	all := []string{
		`[JSONPatch{op: "add", path: "/metadata/labels", value: {"env": "dev"}}]`,
		`[JSONPatch{op: "add", path: "/metadata/labels/` + pick(x.random, "env", "skip") + `", value: "prod"}]`,
		`[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/x~y"), value: "1"}]`,
		`[JSONPatch{op: "test", path: "/metadata/labels/env", value: "dev"}, JSONPatch{op: "replace", path: "/metadata/labels/env", value: "c"}]`,
		`[JSONPatch{op: "remove", path: "/metadata/labels/` + pick(x.random, "env", "skip") + `"}]`, `[JSONPatch{op: "remove", path: "/metadata/labels"}]`,
		`[JSONPatch{op: "copy", from: "/metadata/name", path: "/metadata/annotations"}]`,
		`[JSONPatch{op: "copy", from: "/metadata/labels", path: "/metadata/annotations"}]`,
		`[JSONPatch{op: "move", from: "/metadata/labels", path: "/metadata/annotations"}]`,
		`[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "added", image: "b:1"}}]`,
		`[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.wrong{name: "added"}}]`,
		`[JSONPatch{op: "add", path: "/spec/replicas", value: 3}]`, `[JSONPatch{op: "add", path: "/spec/replicas", value: object.spec.replicas + 1}]`,
		`[JSONPatch{op: "replace", path: "/spec/replicas", value: "many"}]`, `[JSONPatch{op: "remove", path: "/spec/replicas"}]`,
		`[JSONPatch{op: "add", path: "/spec/nothing", value: 3}]`, `[JSONPatch{op: "add", path: "/spec/size", value: 7}]`,
		`[JSONPatch{op: "add", path: "/spec/sizes", value: [1, 2]}, JSONPatch{op: "add", path: "/spec/sizes/0", value: 0}]`,
		`[JSONPatch{op: "add", path: "/stdin", value: false}]`, `[JSONPatch{op: "add", path: "/command/-", value: "-x"}]`,
		`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"policy": string(object.metadata.name)}}]`,
		`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"image": string(object.spec.containers[0].image)}}]`,
		`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"from": string(oldObject.metadata.name), "op": request.operation}}]`,
		`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"version": request.kind.version + request.requestKind.version + object.apiVersion}}]`,
		`request.dryRun ? [JSONPatch{op: "add", path: "/metadata/annotations", value: {"dry": "run"}}] : []`,
		`authorizer.requestResource.check("update").allowed() ? [JSONPatch{op: "add", path: "/metadata/annotations", value: {"may": "update"}}] : []`,
		`has(object.metadata.labels) ? [JSONPatch{op: "add", path: "/metadata/labels/seen", value: "s" + string(size(object.metadata.labels))}] : []`,
		`[JSONPatch{op: "add", path: "/metadata/generateName", value: "x" + string(object.metadata.generateName)}]`,
		`[JSONPatch{op: "remove", path: "/metadata"}]`, `[JSONPatch{op: "replace", path: "/kind", value: "Other"}]`,
		`[JSONPatch{op: "replace", path: "", value: {"a": "b"}}]`, `[JSONPatch{op: "merge", path: "/spec", value: {"a": "b"}}]`,
		`[JSONPatch{op: "add", path: "/spec", value: null}]`, `[JSONPatch{op: "test", path: "/spec/none", value: null}]`,
		`[JSONPatch{op: "add", path: "/spec/rollbackTo", value: {"revision": 1}}]`,
	}
	switch {
	case x.variables:
		all = append(all, `[JSONPatch{op: "add", path: "/metadata/labels", value: {"env": string(variables.text)}}]`,
			`[JSONPatch{op: "add", path: "/spec/replicas", value: int(variables.size)}]`,
			`variables.flag ? [JSONPatch{op: "add", path: "/metadata/annotations", value: {"flag": "true"}}] : []`)
	case x.params:
		all = append(all, `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"param": string(params.metadata.name)}}]`,
			`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"kind": string(dyn(params).kind)}}]`,
			`[JSONPatch{op: "add", path: "/metadata/labels", value: {"env": string(params.metadata.labels.tier)}}]`,
			`[JSONPatch{op: "add", path: "/metadata/labels", value: {"most": string(params.data.most)}}]`,
			`[JSONPatch{op: "add", path: "/spec/replicas", value: params == null ? 1 : int(params.spec.most)}]`)
	case x.in(4):
		all = []string{`[]`, `syntax error`, `["not a patch"]`, `1 > 2`, `nobody.knows`}
	}
	return all
}

func (x expressions) applied() []string {
	all := []string{
		`Object{metadata: Object.metadata{labels: {"env": "` + pick(x.random, "dev", "prod") + `"}}}`,
		`Object{metadata: Object.metadata{annotations: {"a": "1", "seen": string(has(object.metadata.labels))}}}`,
		`Object{metadata: Object.metadata{labels: has(object.metadata.labels) ? {"seen": "s" + string(size(object.metadata.labels))} : {"seen": "0"}}}`,
		`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, image: c.image + "x"})}}`,
		`Object{spec: Object.spec{containers: [Object.spec.containers{name: "sidecar", image: "c:1"}]}}`,
		`Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", args: ["atomic"]}]}}`,
		`Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", ports: [Object.spec.containers.ports{containerPort: 80}]}]}}`,
		`Object{spec: Object.spec{containers: [Object.spec.containers{image: "nameless"}]}}`,
		`Object{spec: Object.spec{containers: [Object.spec.containers{name: "c"}, Object.spec.containers{name: "c"}]}}`,
		`Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", resources: Object.spec.containers.resources{limits: {"cpu": "1"}}}]}}`,
		`Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: "a"}]}}`,
		`Object{spec: Object.spec{nodeSelector: {"a": "b"}}}`,
		`Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsNonRoot: true}}}`,
		`Object{spec: Object.spec{replicas: 5}}`, `Object{spec: Object.spec{replicas: object.spec.replicas + 1}}`, `Object{spec: Object.spec{replicas: "many"}}`,
		`Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{serviceAccountName: "a"}}}}`,
		`Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {"a": "b"}}}}`,
		`Object{spec: Object.spec{size: 5}}`, `Object{spec: Object.spec{size: "small"}}`, `Object{spec: Object.spec{parts: [Object.spec.parts{name: "a", size: 1}]}}`,
		`Object{spec: Object.spec{parts: object.spec.parts.map(p, Object.spec.parts{name: p.name, size: 9})}}`,
		`Object{spec: Object.spec{tags: ["a", "z"]}}`, `Object{spec: Object.spec{sizes: [1]}}`, `Object{spec: Object.spec{fixed: Object.spec.fixed{a: "2"}}}`,
		`Object{spec: Object.spec{free: Object.spec.free{b: Object.spec.free.b{c: 1}}}}`, `Object{spec: Object.spec{extra: {"b": "2"}}}`,
		`Object{spec: Object.spec{free: Object.spec.free{list: [1]}}}`, `Object{spec: Object.spec{port: "http"}}`,
		`Object{status: Object.status{phase: "Ready"}}`, `Object{stdin: false}`, `Object{spec: Object.spec{unknown: 5}}`, `Object{spec: Object.wrong{}}`,
		`Object{metadata: Object.metadata{finalizers: ["example.com/a"]}}`, `Object{apiVersion: "v1", kind: "Other"}`, `Object{}`,
	}
	switch {
	case x.variables:
		all = append(all, `Object{metadata: Object.metadata{labels: {"env": string(variables.text)}}}`, `Object{spec: Object.spec{replicas: int(variables.size)}}`)
	case x.params:
		all = append(all, `Object{metadata: Object.metadata{annotations: {"param": string(params.metadata.name)}}}`,
			`Object{metadata: Object.metadata{labels: {"p-" + string(params.metadata.name): string(params.apiVersion)}}}`,
			`Object{metadata: Object.metadata{labels: {"env": params == null ? "none" : string(params.metadata.labels.tier)}}}`,
			`Object{spec: Object.spec{replicas: int(params.data.most)}}`)
	case x.in(4):
		all = []string{`syntax error`, `Object.spec{replicas: 1}`, `{"spec": {}}`, `nobody.knows`}
	}
	return all
}

// mutableRequest is a request whose object has more that can be changed.
func (r random) mutableRequest() *admissionv1.AdmissionRequest {
	e := pick(r, endpoints()...)
	req := r.requestOf(e)
	if req.GetObject() == nil || e.kind == "PodExecOptions" {
		return req
	}
	content := r.content(e)
	spec, _ := content["spec"].(map[string]any)
	switch e.kind {
	case "Pod":
		c := spec["containers"].([]any)[0].(map[string]any)
		if c["args"] = []any{"x"}; r.in(2) {
			c["ports"] = []any{map[string]any{"containerPort": 80, "name": "http"}, map[string]any{"containerPort": 53, "protocol": "UDP"}}
		}
		if r.in(2) {
			spec["tolerations"], spec["nodeSelector"] = []any{map[string]any{"key": "b"}}, map[string]any{"c": "d"}
		}
	case "Deployment":
		if spec["template"] = map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}; r.in(3) {
			delete(spec, "replicas")
		}
	case "Widget", "Gadget":
		if r.in(2) {
			spec["parts"], spec["tags"] = []any{map[string]any{"name": "a", "size": 3, "kept": true}, map[string]any{"name": "b"}}, []any{"a", "b"}
		}
		if r.in(2) {
			spec["fixed"], spec["free"] = map[string]any{"a": "1", "b": "1"}, map[string]any{"a": 1, "list": []any{"x"}}
			spec["extra"], spec["sizes"] = map[string]any{"a": "1"}, []any{1, 2}
		}
		if r.in(20) {
			spec["parts"] = []any{map[string]any{"name": "a"}, map[string]any{"name": "a", "size": 2}}
		}
	}
	if r.in(3) {
		content["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "0"}
	}
	req.Object = written(content, e)
	return req
}
