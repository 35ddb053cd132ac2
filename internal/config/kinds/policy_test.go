package kinds

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// policy is a valid Policy with a change.
func policy(change func(*PolicySpec)) *Policy {
	p := &Policy{
		Metadata: Metadata{Name: "p"},
		Spec: PolicySpec{
			Resources: []string{"pods"}, Operations: []admissionregistrationv1.OperationType{"CREATE", "DELETE"}, PodControllers: true,
			Clusters: []string{"dev", "prod-1"},
			Exclude: &PolicyExclusion{
				Namespaces: []string{"kube-system"}, Users: []string{"ann"}, Groups: []string{"ops"}, Labels: []string{"a", "b.example.com/c=d", "e="},
			},
			Parameters: []Parameter{
				{Name: "teams", Default: []any{"a", "b"}, ByCluster: map[string]any{"dev": []any{}}},
				{Name: "most", ByCluster: map[string]any{"dev": int64(1), "prod-1": 1.5}},
			},
			Mode: ModeWarn, ModeByCluster: map[string]PolicyMode{"dev": ModeEnforce, "prod-1": ModeShadow},
			Validations:   []PolicyValidation{{Expression: "true", Message: "m", MessageExpression: "'m'\n", Field: "spec.x", Reason: "Forbidden"}},
			FailurePolicy: "Ignore",
		},
	}
	change(&p.Spec)
	return p
}

func TestValidateAPolicy(t *testing.T) {
	long := strings.Repeat("a", MaxPolicyExpression+1)
	validation := func(change func(*PolicyValidation)) *Policy {
		return policy(func(s *PolicySpec) { change(&s.Validations[0]) })
	}
	parameter := func(p Parameter) *Policy {
		return policy(func(s *PolicySpec) { s.Parameters = []Parameter{p} })
	}
	exclude := func(e PolicyExclusion) *Policy {
		return policy(func(s *PolicySpec) { s.Exclude = &e })
	}
	for _, tc := range []struct {
		name string
		doc  *Policy
		want []string // field: kind of error
	}{
		{"A full policy is valid.", policy(func(*PolicySpec) {}), nil},
		{"Resources and validations are enough.", &Policy{
			Metadata: Metadata{Name: "p"}, Spec: PolicySpec{Resources: []string{"pods"}, Validations: []PolicyValidation{{Expression: "true", Message: "m"}}},
		}, nil},
		{"An empty policy lacks them.", &Policy{}, []string{
			"metadata.name: FieldValueRequired", "spec.resources: FieldValueRequired", "spec.validations: FieldValueRequired",
		}},

		{"Resources that are not there.", policy(func(s *PolicySpec) { s.Resources, s.PodControllers = []string{"pod", "pods", "pods", "a/b/c/d"}, false }), []string{
			"spec.resources[2]: FieldValueDuplicate", "spec.resources[0]: FieldValueInvalid", "spec.resources[3]: FieldValueInvalid",
		}},
		{"Too many resources.", policy(func(s *PolicySpec) { s.Resources = many(MaxPolicyResources + 1) }), []string{"spec.resources: FieldValueTooMany"}},
		{"Controllers of other objects than Pods.", policy(func(s *PolicySpec) { s.Resources = []string{"pods", "services"} }), []string{"spec.podControllers: FieldValueForbidden"}},
		{"Controllers of services.", policy(func(s *PolicySpec) { s.Resources = []string{"services"} }), []string{"spec.podControllers: FieldValueForbidden"}},
		{"Operations are Kubernetes'.", policy(func(s *PolicySpec) {
			s.Operations = []admissionregistrationv1.OperationType{"create", "UPDATE", "UPDATE"}
		}), []string{"spec.operations[0]: FieldValueNotSupported", "spec.operations[2]: FieldValueDuplicate"}},
		{"Too many operations.", policy(func(s *PolicySpec) { s.Operations = make([]admissionregistrationv1.OperationType, 5) }), []string{"spec.operations: FieldValueTooMany"}},

		{"Variables have names and expressions.", policy(func(s *PolicySpec) {
			s.Variables = []PolicyVariable{{"a", "1"}, {"a", " "}, {"", "1"}, {"in", "1"}, {"b-c", "1"}, {strings.Repeat("d", MaxParameterName+1), long}}
		}), []string{
			"spec.variables[1].expression: FieldValueRequired", "spec.variables[1].name: FieldValueDuplicate", "spec.variables[2].name: FieldValueRequired",
			"spec.variables[3].name: FieldValueInvalid", "spec.variables[4].name: FieldValueInvalid", "spec.variables[5].name: FieldValueTooLong",
			"spec.variables[5].expression: FieldValueTooLong",
		}},
		{"Too many variables.", policy(func(s *PolicySpec) { s.Variables = make([]PolicyVariable, MaxPolicyVariables+1) }), []string{"spec.variables: FieldValueTooMany"}},

		{"Clusters are names.", policy(func(s *PolicySpec) { s.Clusters = append(s.Clusters, "A b", "dev"); s.Parameters = nil }), []string{
			"spec.clusters[3]: FieldValueDuplicate", "spec.clusters[2]: FieldValueInvalid",
		}},
		{"A mode for a cluster where it is not in force.", policy(func(s *PolicySpec) { s.ModeByCluster = map[string]PolicyMode{"prod1": ModeWarn} }), []string{
			"spec.modeByCluster[prod1]: FieldValueInvalid",
		}},
		{"A mode for any cluster.", policy(func(s *PolicySpec) {
			s.Clusters, s.Parameters, s.ModeByCluster = nil, nil, map[string]PolicyMode{"prod1": ModeWarn}
		}), nil},
		{"Modes are three.", policy(func(s *PolicySpec) { s.Mode, s.ModeByCluster = "deny", map[string]PolicyMode{"dev": ""} }), []string{
			"spec.mode: FieldValueNotSupported", "spec.modeByCluster[dev]: FieldValueNotSupported",
		}},
		{"FailurePolicy is Kubernetes'.", policy(func(s *PolicySpec) { s.FailurePolicy = "ignore" }), []string{"spec.failurePolicy: FieldValueNotSupported"}},

		{"Exclusions are names.", exclude(PolicyExclusion{
			Namespaces: []string{"kube-*", "A"}, Users: []string{" a", "b", "b"}, Groups: []string{"system:authenticated", ""}, Labels: []string{"", "a=b c", "-"},
		}), []string{
			"spec.exclude.namespaces[0]: FieldValueInvalid", "spec.exclude.namespaces[1]: FieldValueInvalid",
			"spec.exclude.users[2]: FieldValueDuplicate", "spec.exclude.users[0]: FieldValueInvalid",
			"spec.exclude.groups[0]: FieldValueInvalid", "spec.exclude.groups[1]: FieldValueInvalid",
			"spec.exclude.labels[0]: FieldValueInvalid", "spec.exclude.labels[0]: FieldValueInvalid", "spec.exclude.labels[1]: FieldValueInvalid",
			"spec.exclude.labels[2]: FieldValueInvalid",
		}},
		{"Too many exclusions.", exclude(PolicyExclusion{Users: many(MaxPolicyExclusions + 1)}), []string{"spec.exclude.users: FieldValueTooMany"}},

		{"A parameter has a name.", parameter(Parameter{Default: "a"}), []string{"spec.parameters[0].name: FieldValueRequired"}},
		{"Its name is no word of CEL.", parameter(Parameter{Name: "in", Default: "a"}), []string{"spec.parameters[0].name: FieldValueInvalid"}},
		{"Its name is an identifier.", parameter(Parameter{Name: "max-replicas", Default: "a"}), []string{"spec.parameters[0].name: FieldValueInvalid"}},
		{"Its name is short.", parameter(Parameter{Name: long, Default: "a"}), []string{"spec.parameters[0].name: FieldValueTooLong"}},
		{"Its name stands once.", policy(func(s *PolicySpec) { s.Parameters[1].Name = "teams" }), []string{"spec.parameters[1].name: FieldValueDuplicate"}},
		{"It has a value in each cluster.", parameter(Parameter{Name: "a", ByCluster: map[string]any{"dev": "b"}}), []string{
			"spec.parameters[0].byCluster[prod-1]: FieldValueRequired",
		}},
		{"It has a value in clusters that are not named.", policy(func(s *PolicySpec) {
			s.Clusters, s.Parameters = nil, []Parameter{{Name: "a", ByCluster: map[string]any{"dev": "b"}}}
		}), []string{"spec.parameters[0].default: FieldValueRequired"}},
		{"It has no value where it is not in force.", parameter(Parameter{Name: "a", Default: "b", ByCluster: map[string]any{"x": "b"}}), []string{
			"spec.parameters[0].byCluster[x]: FieldValueInvalid",
		}},
		{"Its values are of one type.", parameter(Parameter{Name: "a", Default: "b", ByCluster: map[string]any{"dev": int64(1), "prod-1": []any{"b"}}}), []string{
			"spec.parameters[0].byCluster[dev]: FieldValueInvalid", "spec.parameters[0].byCluster[prod-1]: FieldValueInvalid",
		}},
		{"A value is no mapping.", parameter(Parameter{Name: "a", Default: map[string]any{}}), []string{"spec.parameters[0].default: FieldValueInvalid"}},
		{"A value is no null.", parameter(Parameter{Name: "a", Default: true, ByCluster: map[string]any{"dev": nil}}), []string{
			"spec.parameters[0].byCluster[dev]: FieldValueInvalid",
		}},
		{"A list has one type.", parameter(Parameter{Name: "a", Default: []any{"b", false}}), []string{"spec.parameters[0].default: FieldValueInvalid"}},
		{"A list has no list.", parameter(Parameter{Name: "a", Default: []any{[]any{}}}), []string{"spec.parameters[0].default: FieldValueInvalid"}},
		{"A list is short.", parameter(Parameter{Name: "a", Default: make([]any, MaxParameterItems+1)}), []string{"spec.parameters[0].default: FieldValueInvalid"}},
		{"A text is short.", parameter(Parameter{Name: "a", Default: []any{long}}), []string{"spec.parameters[0].default: FieldValueInvalid"}},
		{"Too many parameters.", policy(func(s *PolicySpec) { s.Parameters = make([]Parameter, MaxParameters+1) }), []string{"spec.parameters: FieldValueTooMany"}},

		{"A validation has an expression and a message.", validation(func(v *PolicyValidation) { v.Expression, v.Message, v.MessageExpression = " ", "", "\n" }), []string{
			"spec.validations[0].expression: FieldValueRequired", "spec.validations[0].message: FieldValueRequired",
			"spec.validations[0].messageExpression: FieldValueInvalid",
		}},
		{"Texts are short.", validation(func(v *PolicyValidation) {
			v.Expression, v.Message, v.MessageExpression, v.Field = long, long, long, long
		}), []string{
			"spec.validations[0].expression: FieldValueTooLong", "spec.validations[0].message: FieldValueTooLong",
			"spec.validations[0].messageExpression: FieldValueTooLong", "spec.validations[0].field: FieldValueTooLong",
		}},
		{"Messages are one line.", validation(func(v *PolicyValidation) { v.Message, v.Field = "a\nb", "a\rb" }), []string{
			"spec.validations[0].message: FieldValueInvalid", "spec.validations[0].field: FieldValueInvalid",
		}},
		{"Reasons are Kubernetes'.", validation(func(v *PolicyValidation) { v.Reason = "NotFound" }), []string{"spec.validations[0].reason: FieldValueNotSupported"}},
		{"ValidatingAdmissionPolicies have no reason Unauthorized.", validation(func(v *PolicyValidation) { v.Reason = "Unauthorized" }), []string{"spec.validations[0].reason: FieldValueNotSupported"}},
		{"Too many validations.", policy(func(s *PolicySpec) { s.Validations = make([]PolicyValidation, MaxPolicyValidations+1) }), []string{
			"spec.validations: FieldValueTooMany",
		}},
		{"Mutations beside validations.", policy(func(s *PolicySpec) {
			s.Mode, s.Operations, s.Mutations = "", nil, []PolicyMutation{{Field: "data.a", Value: "1"}}
		}), []string{
			"spec.mutations: FieldValueForbidden",
		}},
		{"Mutations.", mutations(func(*PolicySpec) {}, PolicyMutation{Field: "data.a", Value: "1", When: "true", Overwrite: true}), nil},
		{"Mutations with a mode of validations, and of requests without an object.", mutations(func(s *PolicySpec) {
			s.Mode, s.ModeByCluster, s.Operations = ModeWarn, map[string]PolicyMode{"dev": ModeWarn, "prod-1": ModeEnforce}, []admissionregistrationv1.OperationType{"DELETE"}
			s.Resources, s.PodControllers = []string{"pods/exec"}, false
		}, PolicyMutation{Field: "data.a", Value: "1"}), []string{
			"spec.mode: FieldValueNotSupported", "spec.modeByCluster[dev]: FieldValueNotSupported", "spec.operations[0]: FieldValueForbidden",
			"spec.resources[0]: FieldValueForbidden",
		}},
		{"Mutations that lack all.", mutations(func(*PolicySpec) {}, PolicyMutation{When: " "}), []string{
			"spec.mutations[0].field: FieldValueRequired", "spec.mutations[0].value: FieldValueRequired", "spec.mutations[0].when: FieldValueInvalid",
		}},
		{"Too many mutations.", mutations(func(*PolicySpec) {}, make([]PolicyMutation, MaxPolicyMutations+1)...), []string{"spec.mutations: FieldValueTooMany"}},
		{"A field that is none.", mutations(func(*PolicySpec) {}, PolicyMutation{Field: "a..b", Value: "1"}), []string{"spec.mutations[0].field: FieldValueInvalid"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, err := range tc.doc.Validate() {
				got = append(got, err.Field+": "+string(err.Type))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheResourcesOfAPolicy(t *testing.T) {
	for text, want := range map[string]PolicyResource{
		"pods":                           {"", "v1", "pods", ""},
		"pods/exec":                      {"", "v1", "pods", "exec"},
		"horizontalpodautoscalers":       {"autoscaling", "v2", "horizontalpodautoscalers", ""},
		"deployments/scale":              {"apps", "v1", "deployments", "scale"},
		"apps/deployments":               {"apps", "v1", "deployments", ""},
		"batch/v1beta1/cronjobs":         {"batch", "v1beta1", "cronjobs", ""},
		"apps/v3/inventions":             {"apps", "v3", "inventions", ""},
		"stable.example.com/widgets":     {"stable.example.com", "*", "widgets", ""},
		"3d.example.com/v1/parts/status": {"3d.example.com", "v1", "parts", "status"},
	} {
		if got, err := ParsePolicyResource(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"*": "patterns are not read", "": "no name of a resource", "Pods": "no name of a resource", "pod": `did you mean "pods"?`,
		"deployment": `did you mean "deployments"?`, "apps/deploymints": `did you mean "deployments"?`, "app/deployments": "known without its version",
		"pods/exec/x": "must be RESOURCE", "apps/v1": "must be RESOURCE", "-.example.com/widgets": "no API group", "widgets": "known without its version",
	} {
		if got, err := ParsePolicyResource(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, got, err, want)
		}
	}
}

// mutations is a valid Policy with mutations, and a change.
func mutations(change func(*PolicySpec), all ...PolicyMutation) *Policy {
	return policy(func(s *PolicySpec) {
		s.Mode, s.ModeByCluster, s.Operations, s.Validations, s.Mutations = ModeEnforce, nil, nil, nil, all
		change(s)
	})
}

func TestParsePolicyField(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
		err  string // a part
	}{
		{"metadata.labels.team", []string{"metadata", "labels", "team"}, ""},
		{"metadata.labels['example.com/team']", []string{"metadata", "labels", "example.com/team"}, ""},
		{`metadata.annotations["a'b]c"].x`, nil, "write a key in quotes"},
		{`metadata.annotations["a]c"].x_1`, []string{"metadata", "annotations", "a]c", "x_1"}, ""},
		{"spec.containers[*].ports[*].name", []string{"spec", "containers", EachItem, "ports", EachItem, "name"}, ""},
		{"allContainers[*].image", []string{AllContainers, EachItem, "image"}, ""},
		{"allContainers.image", nil, "write allContainers[*]"},
		{"spec.allContainers.image", []string{"spec", "allContainers", "image"}, ""},
		{"spec.args[*]", nil, "names all items of a list"},
		{"a[*].b[*].c[*].d[*].e", nil, "more than 3 lists"},
		{"a[*][*].b", nil, "in quotes"},
		{"[*].a", nil, "write a name"},
		{"['a'].b", nil, "write a name"},
		{"a.[*].b", nil, "write a name"},
		{"a[*]b", nil, "write a dot"},
		{"a['b']c", nil, "write a dot"},
		{"a.b-c", nil, "write a dot"},
		{"a[0].b", nil, "in quotes"},
		{"a['']", nil, "in quotes"},
		{"a['b", nil, "in quotes"},
		{".a", nil, "write a name"},
		{"a.", nil, "write a name"},
		{"kind", nil, "not set by a policy"},
		{"status.phase", nil, "not set by a policy"},
		{"metadata", nil, "of metadata"},
		{"metadata.name", nil, "of metadata"},
		{strings.Repeat("a.", MaxPolicyFieldSteps) + "a", nil, "more than 12 steps"},
	} {
		got, err := ParsePolicyField(tc.text)
		switch {
		case (err == nil) != (tc.err == ""), err != nil && !strings.Contains(err.Error(), tc.err):
			t.Errorf("%s: %v, want %q", tc.text, err, tc.err)
		case err == nil:
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.text, diff)
			}
		}
	}
}
