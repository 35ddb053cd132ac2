package lint_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// typed is a policy on Deployments of the kind, with more fields of its spec.
func typed(kind, spec string) string {
	return `apiVersion: admissionregistration.k8s.io/v1
kind: ` + kind + `
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
` + spec
}

func TestExpressionsAreCheckedAgainstTheKindsOfTheirPolicies(t *testing.T) {
	for name, test := range map[string]struct {
		policy string
		want   []string
	}{
		"a validation": {
			typed("ValidatingAdmissionPolicy", `  validations: [{expression: 'object.spec.replicsa < 5'}]`),
			[]string{`"p": spec.validations[0].expression: *for Deployment (apps/v1): line 1, column 12: undefined field 'replicsa'*`},
		},
		"a good one": {typed("ValidatingAdmissionPolicy", `  validations: [{expression: 'object.spec.replicas < 5'}]`), nil},
		"any type":   {typed("ValidatingAdmissionPolicy", `  validations: [{expression: 'dyn(object).spec.replicsa < 5'}]`), nil},
		"the old object": {
			typed("ValidatingAdmissionPolicy", `  validations: [{expression: 'oldObject == null || oldObject.specs.x'}]`),
			[]string{`"p": spec.validations[0].expression: *undefined field 'specs'*`},
		},
		"a condition, a message and an annotation": {
			typed("ValidatingAdmissionPolicy", `  matchConditions: [{name: a, expression: 'object.a == 1'}]
  validations: [{expression: 'true', messageExpression: 'object.b'}]
  auditAnnotations: [{key: k, valueExpression: 'object.c'}]`),
			[]string{`"p": spec.matchConditions[0].expression: *'a'*`, `"p": spec.validations[0].messageExpression: *'b'*`, `"p": spec.auditAnnotations[0].valueExpression: *'c'*`},
		},
		"a variable": {
			typed("ValidatingAdmissionPolicy", `  variables: [{name: t, expression: object.spec.template}, {name: s, expression: variables.t.spek}]
  validations: [{expression: 'variables.t.spec.hostNetwork == 1 && variables.s.x'}]`),
			[]string{`"p": spec.variables[1].expression: *'spek'*`, `"p": spec.validations[0].expression: *found no matching overload for '_==_' applied to '(bool, int)'*`},
		},
		"params": {
			typed("ValidatingAdmissionPolicy", `  paramKind: {apiVersion: v1, kind: ConfigMap}
  validations: [{expression: 'params.data.most == 5 || params.dat.x'}]`),
			[]string{`"p": spec.validations[0].expression: *'(string, int)'*; *undefined field 'dat'*`},
		},
		"mutations of a Policy": {
			`apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: p}
spec:
  resources: [pods]
  podControllers: true
  mutations:
  - {field: 'spec.containers[*].imagePulPolicy', value: "'Always'"}
  - {field: 'spec.containers[*].imagePullPolicy', value: '[item.nam == current]'}
  - {field: 'allContainers[*].securityContext.privileged', value: pod.spec.hostNetwork}
  - {field: spec.hostNetwork, value: "'x'", when: bool(pod.spec.hostNetwrk)}
  - {field: "metadata.labels['a/b']", value: parameters.most}
  - {field: 'spec.nodeName[*].x', value: '1'}
  parameters: [{name: most, default: 1}]
`,
			[]string{
				`"p": spec.mutations[0].field: *for Pod (v1), DaemonSet (apps/v1), *: there is no field imagePulPolicy; did you mean "imagePullPolicy"?*`,
				`"p": spec.mutations[1].value: *: imagePullPolicy is of type string, and the value of type list(bool)*`,
				`"p": spec.mutations[3].value: *: hostNetwork is of type bool, and the value of type string*`,
				`"p": spec.mutations[3].when: *undefined field 'hostNetwrk'*`,
				`"p": spec.mutations[5].field: *: nodeName is no list*`,
			},
		},
		"a JSON patch": {
			typed("MutatingAdmissionPolicy", `  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/spec/replicas", value: object.spec.replicsa}]'}}]`),
			[]string{`"p": spec.mutations[0].jsonPatch.expression: *undefined field 'replicsa'*`},
		},
		"an apply configuration": {
			typed("MutatingAdmissionPolicy", `  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{spec: Object.spec{replicsa: 3, replicas: "3"}}'}`),
			[]string{`"p": spec.mutations[0].applyConfiguration.expression: *undefined field 'replicsa'*expected type of field 'replicas' is 'int' but provided type is 'string'*`},
		},
		"a good apply configuration": {
			typed("MutatingAdmissionPolicy", `  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >
        Object{
          metadata: Object.metadata{labels: Object.metadata.labels{a: "b"}, annotations: {"c": "d"}, namespace: "x"},
          spec: Object.spec{
            selector: object.spec.selector,
            strategy: Object.spec.strategy{rollingUpdate: Object.spec.strategy.rollingUpdate{maxSurge: 1, maxUnavailable: "10%"}},
            template: Object.spec.template{spec: Object.spec.template.spec{
              containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{name: c.name, args: ["-v"],
                resources: Object.spec.template.spec.containers.resources{limits: {"cpu": "1"}}}),
              initContainers: [Object.spec.template.spec.initContainers{name: "i", image: object.metadata.?name.orValue("x")}],
              nodeSelector: object.metadata.labels
            }}
          }
        }`), nil,
		},
		"a part of an apply configuration": {
			typed("MutatingAdmissionPolicy", `  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{spec: Object.spec{template: Object.spec.templates{}}}'}`),
			[]string{`"p": spec.mutations[0].applyConfiguration.expression: *undeclared reference to 'Object.spec.templates'*`},
		},
		"a Policy": {
			`apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: p}
spec:
  resources: [pods]
  podControllers: true
  validations:
  - expression: bool(pod.spec.hostNetwrok)
    message: m
  - expression: allContainers.all(c, c.image != '' && c.imag == '') && images.all(i, i.tag != '') && labels.x == 'y'
    message: m
    messageExpression: string(object.metadata.nam)`,
			[]string{
				`"p": spec.validations[0].expression: *for Pod (v1), DaemonSet (apps/v1), Deployment (apps/v1), ReplicaSet (apps/v1), StatefulSet (apps/v1), CronJob (batch/v1), Job (batch/v1): line 1, column 14: undefined field 'hostNetwrok'*`,
				`"p": spec.validations[1].expression: *for Pod (v1), *line 1, column 40: undefined field 'imag'*`,
				`"p": spec.validations[1].messageExpression: *undefined field 'nam'*`,
			},
		},
		"resources by wildcard and by a name that is not known": {
			`apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: p}
spec: {resources: [example.com/widgets, apps/v1/deployments], validations: [{expression: object.spec.replicsa == 1, message: m}]}`,
			[]string{`"p": spec.validations[0].expression: *for Deployment (apps/v1): *`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, one := range found(t, test.policy) {
				if strings.HasPrefix(one, lint.CodeTypeCheck+": ") {
					got = append(got, one)
				}
			}
			expect(t, got, test.want...)
		})
	}
}

// TestWhatIsFoundAboutAPolicyIsKept has no time for a policy that is not known.
func TestWhatIsFoundAboutAPolicyIsKept(t *testing.T) {
	options := lint.Options{TypeChecks: &lint.TypeChecks{}}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for _, step := range []struct {
		ctx   context.Context
		field string
		want  int
	}{{late, "x", 0}, {t.Context(), "x", 1}, {late, "x", 1}, {late, "y", 0}, {t.Context(), "y", 1}} {
		document := typed("ValidatingAdmissionPolicy", `  validations: [{expression: 'object.spec.`+step.field+` == 1'}]`)
		objects, problems := configtest.Decode("", []byte(document))
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		snapshot, _ := config.Compile("1", objects)
		n := 0
		for _, p := range options.Inspect(step.ctx, snapshot, objects) {
			if p.Code == lint.CodeTypeCheck {
				n++
			}
		}
		if n != step.want {
			t.Errorf("%+v: found %d", step, n)
		}
	}
}

// TestLintNamesPoliciesThatAreNotChecked has more expressions than are checked at a time.
func TestLintNamesPoliciesThatAreNotChecked(t *testing.T) {
	citest.Sequential(t)
	var documents []string
	for i := range 9 {
		validations := strings.Repeat(`{expression: "object.spec.replicas != `+strings.Repeat("1", 10)+` || '`+strings.Repeat("x", 8_000)+`' != ''"},`, 28)
		documents = append(documents, strings.Replace(typed("ValidatingAdmissionPolicy", "  validations: ["+validations+"]"), "name: p", fmt.Sprintf("name: p%d", i), 1))
	}
	var unchecked []string
	for _, one := range found(t, documents...) {
		if strings.HasPrefix(one, lint.CodeTypeCheck+": ") {
			unchecked = append(unchecked, one)
		}
	}
	expect(t, unchecked, `"p8": *not checked*`)
}

// widgets is a Cluster document with a CustomResourceDefinition, whose schema has a field.
func widgets(cluster, field string) string {
	return `apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: ` + cluster + `}
spec:
  identities: [api]
  customResourceDefinitions:
  - apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {name: widgets.example.com}
    spec:
      group: example.com
      scope: Namespaced
      names: {plural: widgets, kind: Widget}
      versions:
      - name: v1
        served: true
        storage: true
        schema:
          openAPIV3Schema:
            type: object
            properties:
              spec: {type: object, properties: {` + field + `: {type: integer}}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}`
}

func TestCustomResourcesAreCheckedByTheirDefinitions(t *testing.T) {
	policy := strings.NewReplacer("[apps]", "[example.com]", "deployments", "widgets").Replace(typed("ValidatingAdmissionPolicy",
		`  validations: [{expression: 'object.metadata.labels.x == "y" && object.free.any && object.spec.size == 1'}, {expression: 'object.spec.siez == 1'}]`))
	want := `"p": spec.validations[1].expression: *for Widget (example.com/v1): line 1, column 12: undefined field 'siez'*`
	for name, test := range map[string]struct {
		clusters []string
		want     []string
	}{
		"no definition":           {[]string{clusterNamed("a")}, nil},
		"a definition":            {[]string{widgets("a", "size")}, []string{want}},
		"the same of two":         {[]string{widgets("a", "size"), widgets("b", "size")}, []string{want}},
		"definitions that differ": {[]string{widgets("a", "size"), widgets("b", "siez")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, one := range found(t, append(test.clusters, policy)...) {
				if strings.HasPrefix(one, lint.CodeTypeCheck+": ") {
					got = append(got, one)
				}
			}
			expect(t, got, test.want...)
		})
	}
}
