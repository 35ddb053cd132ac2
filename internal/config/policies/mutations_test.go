package policies_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"sigs.k8s.io/yaml"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/policies"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// laboratory has kube-apiserver's plugin of MutatingAdmissionPolicies.
type laboratory struct {
	oracle *oracle.Oracle
	plugin *oracle.MutatingPolicies
}

func newLaboratory(t *testing.T) laboratory {
	t.Helper()
	namespaces := map[string]map[string]string{}
	for _, name := range []string{"default", "shop", "kube-system"} {
		namespaces[name] = map[string]string{corev1.LabelMetadataName: name}
	}
	o := oracle.New(t, oracle.Options{Namespaces: namespaces})
	return laboratory{o, o.MutatingPolicies(nil)}
}

// requestOf is the request that writes an object of YAML. An update has the object before.
func requestOf(t *testing.T, object, old string) *admissionv1.AdmissionRequest {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	kind := o.GroupVersionKind()
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	r := &admissionv1.AdmissionRequest{
		Kind:     &admissionv1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
		Resource: &admissionv1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource},
		Name:     o.GetName(), Namespace: o.GetNamespace(), Operation: "CREATE", Object: &admissionv1.Object{Raw: raw},
	}
	if old != "" {
		r.Operation = "UPDATE"
		if raw, err = yaml.YAMLToJSON([]byte(old)); err != nil {
			t.Fatal(err)
		}
		r.OldObject = &admissionv1.Object{Raw: raw}
	}
	return r
}

// mutate has kube-apiserver change the object of a request by an expansion, in shadow too; nil for no policy.
func (l laboratory) mutate(t *testing.T, e *policies.Expansion, r *admissionv1.AdmissionRequest) oracle.Outcome {
	t.Helper()
	var hooks []mutating.PolicyHook
	if e != nil {
		binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: e.MutatingPolicy.ObjectMeta}
		binding.Spec.PolicyName = e.MutatingPolicy.Name
		hooks = append(hooks, oracle.CompileMutatingPolicy(e.MutatingPolicy, cmp.Or(e.MutatingBinding, binding)))
	}
	outcome, err := l.plugin.Judge(t.Context(), hooks, r)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

// fields returns the fields of an object by a path each: a.b, with indexes for items.
func fields(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var object any
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				walk(strings.TrimPrefix(path+"."+key, "."), value)
			}
		case []any:
			for i, value := range v {
				walk(path+"["+string(rune('0'+i))+"]", value)
			}
		default:
			all[path] = v
		}
	}
	walk("", object)
	return all
}

// changes are the fields that a policy has changed, beside those that defaults change.
func (l laboratory) changes(t *testing.T, e *policies.Expansion, r *admissionv1.AdmissionRequest) map[string]any {
	t.Helper()
	after := l.mutate(t, e, r)
	if !after.Allowed {
		return map[string]any{"refused": after.Message}
	}
	before, changed := fields(t, l.mutate(t, nil, r).FinalObject), map[string]any{}
	for path, value := range fields(t, after.FinalObject) {
		if was, ok := before[path]; !ok || was != value {
			changed[path] = value
		}
	}
	return changed
}

func TestMutationsSetFields(t *testing.T) {
	l := newLaboratory(t)
	const onPods, onObjects = "resources: [pods]\npodControllers: true\nmode: enforce\n", "resources: [configmaps]\nmode: enforce\n"
	const two = "containers: [{name: a, image: x}, {name: b, image: w, imagePullPolicy: Never}], initContainers: [{name: i, image: z}]"
	configMap := func(metadata string) string { return "apiVersion: v1\nkind: ConfigMap\nmetadata: " + metadata }
	for _, tc := range []struct {
		name, spec, object, old string
		want                    map[string]any
	}{
		{
			"a label beside others", onObjects + "mutations: [{field: metadata.labels.team, value: \"'web'\"}]", configMap("{name: x, namespace: shop, labels: {a: b}}"), "",
			map[string]any{"metadata.labels.team": "web"},
		},
		{
			"the first label", onObjects + "mutations: [{field: metadata.labels.team, value: request.namespace}]", configMap("{name: x, namespace: shop}"), "",
			map[string]any{"metadata.labels.team": "shop"},
		},
		{
			"a label that is there", onObjects + "mutations: [{field: metadata.labels.team, value: \"'web'\"}]", configMap("{name: x, namespace: shop, labels: {team: db}}"),
			"", map[string]any{},
		},
		{
			"a label that is overwritten", onObjects + "mutations: [{field: metadata.labels.team, value: current + '2', overwrite: true}]",
			configMap("{name: x, namespace: shop, labels: {team: db}}"), "", map[string]any{"metadata.labels.team": "db2"},
		},
		{
			"a label with a slash", onObjects + "mutations: [{field: \"metadata.labels['a.example.com/b']\", value: \"'v'\"}]",
			configMap("{name: x, namespace: shop}"), "", map[string]any{"metadata.labels.a.example.com/b": "v"},
		},
		{
			"a condition that is false", onObjects + "mutations: [{field: data.x, value: \"'1'\", when: \"request.namespace == 'other'\"}]",
			configMap("{name: x, namespace: shop}"), "", map[string]any{},
		},
		{
			"a condition that is true, with a comment", onObjects + "mutations: [{field: data.x, value: \"'1' // one\", when: \"current == null // absent\"}]",
			configMap("{name: x, namespace: shop}"), "", map[string]any{"data.x": "1"},
		},
		{
			"one mutation after the other", onObjects + "mutations: [{field: data.x, value: \"'1'\"}, {field: data.y, value: object.data.x}]",
			configMap("{name: x, namespace: shop}"), "", map[string]any{"data.x": "1", "data.y": "1"},
		},
		{
			"a failing value", onObjects + "mutations: [{field: data.x, value: object.data.z}]", configMap("{name: x, namespace: shop}"), "",
			map[string]any{"refused": "policy 'p' with binding 'p' denied request: expression '"},
		},
		{
			"each container of a Pod", onPods + "mutations: [{field: 'spec.containers[*].imagePullPolicy', value: \"'Always'\", overwrite: true}]",
			object("Pod", "shop", "a: b", two), "",
			map[string]any{"spec.containers[1].imagePullPolicy": "Always"}, // of the other it is the default
		},
		{
			"all containers of a Deployment",
			onPods + "mutations: [{field: 'allContainers[*].securityContext.privileged', value: \"false\", when: \"item.name != 'b' && index < 5\"}]",
			object("Deployment", "shop", "a: b", two), "", map[string]any{
				"spec.template.spec.containers[0].securityContext.privileged": false, "spec.template.spec.initContainers[0].securityContext.privileged": false,
			},
		},
		{
			"a label of the Pods of a CronJob", onPods + "mutations: [{field: metadata.labels.team, value: parameters.team}]\nparameters: [{name: team, default: web}]",
			object("CronJob", "shop", "a: b", two), "", map[string]any{"spec.jobTemplate.spec.template.metadata.labels.team": "web"},
		},
		{
			"a ReplicaSet", onPods + "mutations: [{field: metadata.labels.team, value: \"'web'\"}]", object("ReplicaSet", "shop", "a: b", two), "", map[string]any{},
		},
		{
			"a list in a list",
			"resources: [pods]\nmode: enforce\nmutations: [{field: 'spec.containers[*].ports[*].name', value: \"item1.name + string(index1) + string(index)\"}]",
			object("Pod", "shop", "a: b", "containers: [{name: a, image: x}, {name: b, image: w, ports: [{containerPort: 80}, {containerPort: 81, name: z}, {containerPort: 82}]}]"),
			"", map[string]any{"spec.containers[1].ports[0].name": "b10", "spec.containers[1].ports[2].name": "b12"},
		},
		{
			"an item that is added to a list",
			onPods + "mutations: [{field: spec.tolerations, overwrite: true, value: \"(current == null ? [] : current) + [{'key': 'spot', 'operator': 'Exists'}]\"}]",
			object("Pod", "shop", "a: b", two), "", map[string]any{"spec.tolerations[0].key": "spot", "spec.tolerations[0].operator": "Exists"},
		},
		{
			"the spec of a Pod that is updated", onPods + "mutations: [{field: spec.priorityClassName, value: \"'low'\"}, {field: metadata.labels.team, value: \"'web'\"}]",
			object("Pod", "shop", "a: b", two), object("Pod", "shop", "", two), map[string]any{"metadata.labels.team": "web"},
		},
		{
			"the Pod template of a Job that is updated", onPods + "mutations: [{field: metadata.labels.team, value: \"'web'\"}]",
			object("Job", "shop", "a: b", two), object("Job", "shop", "", two), map[string]any{},
		},
		{
			"a Deployment that is updated", onPods + "mutations: [{field: spec.priorityClassName, value: \"'low'\"}]",
			object("Deployment", "shop", "a: b", two), object("Deployment", "shop", "", two), map[string]any{"spec.template.spec.priorityClassName": "low"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := l.changes(t, expand(t, tc.spec, ""), requestOf(t, tc.object, tc.old))
			if text, ok := tc.want["refused"].(string); ok {
				if got, _ := got["refused"].(string); !strings.HasPrefix(got, text) {
					t.Errorf("refused with %q, want %q", got, text)
				}
				return
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpansionsOfMutations(t *testing.T) {
	const spec = "resources: [configmaps]\nmutations: [{field: metadata.labels.team, value: \"'web'\"}]\nmode: enforce\nmodeByCluster: {trial: shadow}\n"
	e := expand(t, spec, "prod")
	if e.Policy != nil || e.MutatingBinding.Spec.PolicyName != "p" || e.MutatingPolicy.Spec.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy {
		t.Errorf("%+v", e)
	}
	if e := expand(t, strings.Replace(spec, "team,", "team, overwrite: true,", 1), "prod"); e.MutatingPolicy.Spec.ReinvocationPolicy != admissionregistrationv1.NeverReinvocationPolicy {
		t.Error("a policy that overwrites is invoked again")
	}
	if e := expand(t, spec, "trial"); e.MutatingPolicy == nil || e.MutatingBinding != nil {
		t.Errorf("in shadow: %+v", e)
	}
}

// TestExpansionsOfMutationsAreBounded has a field with a long way to it, which an expansion has for each time that the present value is named.
func TestExpansionsOfMutationsAreBounded(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 19)+".", 11) + strings.Repeat("b", 19)
	for _, tc := range []struct {
		field string
		names int
		want  string // empty for a valid Policy
	}{
		{"data.a", policies.MaxCurrent, ""},
		{"data.a", policies.MaxCurrent + 1, "spec.mutations[0]: Invalid value: names current 17 times, and may at most 16 times"},
		{long, policies.MaxCurrent, "bytes, and at most 16384 are read"},
	} {
		_, problems := decodePolicy("resources: [services]\nmutations: [{field: " + tc.field + ", value: \"[" +
			strings.TrimSuffix(strings.Repeat("current,", tc.names), ",") + "]\"}]")
		if got := fmt.Sprint(problems); len(problems) > 0 != (tc.want != "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s, %d times: %.300s, want %q", tc.field, tc.names, got, tc.want)
		}
	}
}

func TestMutationsThatCannotBe(t *testing.T) {
	for _, tc := range []struct{ mutation, want string }{
		{`field: metadata.labels.x, value: item.name`, `there is no "item"; there are object`},
		{`field: 'spec.containers[*].x', value: item1.name`, `there is no "item1"; there are object`},
		{`field: metadata.labels.x, value: "object.?spec"`, `is of type optional_type(dyn): end it with orValue(...)`},
		{`field: metadata.labels.x, value: "1 +"`, `Syntax error`},
		{`field: metadata.labels.x, value: "[1].map(current, current)[0]"`, `current has a meaning in mutations`},
		{`field: metadata.labels.x, value: "'a'", when: "'a'"`, `must be of type bool, and is of type string`},
		{`field: metadata.labels.x, value: parameters.team`, `there is no parameter "team"`},
		{`field: 'allContainers[*].x', value: "'a'"`, `allContainers is about Pods, and services of spec.resources has none`},
	} {
		_, problems := decodePolicy("resources: [services]\nmutations: [{" + tc.mutation + "}]")
		if len(problems) == 0 || !strings.Contains(problems[0].String(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.mutation, problems, tc.want)
		}
	}
}
