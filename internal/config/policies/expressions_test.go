package policies_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/policies"
)

// onPods is a Policy on resources with an expression, a message expression, and the parameters team and most.
func onPods(resource, expression, message string) *kinds.Policy {
	return &kinds.Policy{Metadata: kinds.Metadata{Name: "p"}, Spec: kinds.PolicySpec{
		Resources:   []string{resource},
		Parameters:  []kinds.Parameter{{Name: "team", Default: "a"}, {Name: "most", Default: int64(1)}},
		Validations: []kinds.PolicyValidation{{Expression: expression, Message: "m", MessageExpression: message}},
	}}
}

func TestNamesOfTheLibraryBecomeVariables(t *testing.T) {
	c, err := policies.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		"pod.spec.nodeName == parameters.team":                   "variables.pod.spec.nodeName == variables.parameters.team",
		" images.all(i, i.tag != '') // images of pods ":         "variables.images.all(i, i.tag != '') // images of pods",
		"has(labels.team) && has(pod.spec.a)":                    "has(variables.labels.team) && has(variables.pod.spec.a)",
		"'ü€𝄞 pod' == pod.spec.x && pod.y":                       "'ü€𝄞 pod' == variables.pod.spec.x && variables.pod.y",
		"[1].exists(pod, pod == 1)":                              "[1].exists(pod, pod == 1)",
		"pod.spec.x.exists(pod, pod == labels.a) && pod.b":       "variables.pod.spec.x.exists(pod, pod == variables.labels.a) && variables.pod.b",
		"object.pod.labels == 'pod' && object.images":            "object.pod.labels == 'pod' && object.images",
		"{'pod': labels}['pod'] == annotations":                  "{'pod': variables.labels}['pod'] == variables.annotations",
		"{parameters.team: 1}.size() == 1":                       "{variables.parameters.team: 1}.size() == 1",
		"!pod.?spec.?x.orValue(true)":                            "!variables.pod.?spec.?x.orValue(true)",
		"allContainers.map(c, c.name).all(labels, labels != '')": "variables.allContainers.map(c, c.name).all(labels, labels != '')",
		"labels.all(k, v, k != v)":                               "variables.labels.all(k, v, k != v)",
		"parameters.most < 2 &&\n  !(parameters.team in labels)": "variables.parameters.most < 2 &&\n  !(variables.parameters.team in variables.labels)",
		"parameters[request.namespace] == true":                  "variables.parameters[request.namespace] == true",
		"request.namespace == oldObject.x":                       "request.namespace == oldObject.x",
	} {
		p, errs := c.Compile(onPods("pods", expression, ""))
		if len(errs) > 0 {
			t.Errorf("%s: %v", expression, errs)
			continue
		}
		e := p.Expand("")
		checkAccepted(t, e)
		if diff := cmp.Diff(want, e.Policy.Spec.Validations[0].Expression); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}

// TestOnlyVariablesInUseAreWritten, in an order in which each reads those before it.
func TestOnlyVariablesInUseAreWritten(t *testing.T) {
	c, err := policies.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		"true":                           "",
		"labels == annotations":          "labels annotations",
		"images == []":                   "pod allContainers images",
		"parameters.most == 1 && pod.a":  "parameters pod",
		"allContainers == [labels.team]": "pod allContainers labels",
	} {
		p, errs := c.Compile(onPods("pods", expression, ""))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		var names []string
		for _, v := range p.Expand("").Policy.Spec.Variables {
			names = append(names, v.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}

func TestExpressionsThatAreRefused(t *testing.T) {
	c, err := policies.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	const (
		expression = `spec.validations[0].expression: Invalid value: `
		message    = `spec.validations[0].messageExpression: Invalid value: `
		names      = `there are object, oldObject, request, parameters, pod, allContainers, images, labels and annotations`
	)
	for _, tc := range []struct{ resource, expression, message, want string }{
		{"pods", "pod.spec ==", "", expression + "line 1, column 12: Syntax error: mismatched input '<EOF>'"},
		{"pods", "object.kind = 'Pod'", "", ": CEL has == for equality"},
		{"pods", "not(labels == {})", "", `there is no "not"; ` + names + ": CEL has ! for not"},
		{"pods", "true &&\n imags == []", "", expression + `line 2, column 2: there is no "imags"; ` + names + `; did you mean "images"?`},
		{"pods", "variables.images == []", "", expression + "write images without variables. before it"},
		{"pods", "authorizer.requestResource.check('x').allowed()", "", expression + `line 1, column 1: there is no "authorizer"; ` + names},
		{"pods", "namespaceObject.metadata.name == ''", "", expression + `line 1, column 1: there is no "namespaceObject"; ` + names},
		{"pods", "images.all(i, i.tags != '')", "", expression + "line 1, column 16: undefined field 'tags'"},
		{"pods", "images.size()", "", expression + "must be of type bool, and is of type int"},
		{"pods", "true", "images", message + "must be of type string, and is of type list(portcullis.Image)"},
		{"pods", "parameters.tem == 'a'", "", expression + `there is no parameter "tem" in spec.parameters; did you mean "team"?`},
		{"pods", "true", "has(parameters.x) ? 'a' : ''", message + `there is no parameter "x" in spec.parameters`},
		{"pods", ".pod.a", "", expression + "write pod without the dot before it"},
		{"services", "images == []", "", expression + "images is about Pods, and services of spec.resources has none that is known: write a Policy of its own for services"},
		{"pods/exec", "pod.a", "", expression + "pod is about Pods, and pods/exec of spec.resources has none that is known"},
		{"services", "labels == {}", "", ""},
		{"pods", "a || b || c || d || e || f", "", expression + `line 1, column 21: there is no "e"`},
		{"pods", "object.spec.x", "", expression + "must be of type bool, and its type is not known before it is evaluated: write bool(...) around it"},
		{"pods", "true", "pod.x", message + "must be of type string, and its type is not known before it is evaluated: write string(...) around it"},
	} {
		_, errs := c.Compile(onPods(tc.resource, tc.expression, tc.message))
		got := ""
		for _, err := range errs {
			got += err.Error() + "\n"
		}
		if !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s %s: %s, want %s", tc.expression, tc.message, got, tc.want)
		}
		if len(errs) > 5 {
			t.Errorf("%s: %d errors", tc.expression, len(errs))
		}
	}
}

// TestVariablesOfAPolicy are typed, and named after they are declared.
func TestVariablesOfAPolicy(t *testing.T) {
	c, err := policies.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		variables  []kinds.PolicyVariable
		expression string
		want       string // the expansion, or the error
	}{
		{
			[]kinds.PolicyVariable{{Name: "tags", Expression: "images.map(i, i.tag)"}, {Name: "isOld", Expression: " 'old' in variables.tags "}}, "!variables.isOld",
			"pod; allContainers; images; tags=variables.images.map(i, i.tag); isOld='old' in variables.tags; !variables.isOld",
		},
		{[]kinds.PolicyVariable{{Name: "unused", Expression: "labels.a"}}, "true", "labels; unused=variables.labels.a; true"},
		{[]kinds.PolicyVariable{{Name: "a", Expression: "1"}}, "[{'a': true}].all(variables, variables.a)",
			"spec.validations[0].expression: Invalid value: the name is taken by spec.variables: take another name for the variable"},
		{[]kinds.PolicyVariable{{Name: "a", Expression: "variables.b"}, {Name: "b", Expression: "1"}}, "true",
			`spec.variables[0].expression: Invalid value: there is no variable "b" in spec.variables before it`},
		{[]kinds.PolicyVariable{{Name: "team", Expression: "1"}}, "variables.tema == 1",
			`spec.validations[0].expression: Invalid value: there is no variable "tema" in spec.variables before it; did you mean "team"?`},
		{[]kinds.PolicyVariable{{Name: "images", Expression: "1"}}, "true", `spec.variables[0].name: Invalid value: "images": is a name of the library: take another one`},
		{[]kinds.PolicyVariable{{Name: "podPath", Expression: "1"}}, "true", `spec.variables[0].name: Invalid value: "podPath": is a name of the library: take another one`},
		{[]kinds.PolicyVariable{{Name: "n", Expression: "labels.size()"}}, "variables.n", `spec.validations[0].expression: Invalid value: must be of type bool, and is of type int`},
		{[]kinds.PolicyVariable{{Name: "n", Expression: "object.?n"}}, "true", `spec.variables[0].expression: Invalid value: must be a value, and is of type optional_type(dyn): end it with orValue(...)`},
		{[]kinds.PolicyVariable{{Name: "n", Expression: "current"}}, "true", `spec.variables[0].expression: Invalid value: line 1, column 1: there is no "current"`},
	} {
		document := onPods("pods", tc.expression, "")
		document.Spec.Variables = tc.variables
		p, errs := c.Compile(document)
		if len(errs) > 0 {
			if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tc.want) {
				t.Errorf("%v: %v, want %s", tc.variables, errs, tc.want)
			}
			continue
		}
		e := p.Expand("")
		checkAccepted(t, e)
		var got []string
		for _, v := range e.Policy.Spec.Variables {
			one := v.Name
			for _, own := range tc.variables {
				if own.Name == v.Name {
					one += "=" + v.Expression
				}
			}
			got = append(got, one)
		}
		if diff := cmp.Diff(tc.want, strings.Join(append(got, e.Policy.Spec.Validations[0].Expression), "; ")); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.variables, diff)
		}
	}
}

func TestExpansionsAreBounded(t *testing.T) {
	c, err := policies.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	long := make([]any, kinds.MaxParameterItems)
	for i := range long {
		long[i] = strings.Repeat("x", 60)
	}
	p := onPods("pods", "true", "")
	p.Spec.Parameters = []kinds.Parameter{{Name: "a", Default: []any{}, ByCluster: map[string]any{"prod-1": long}}}
	if _, errs := c.Compile(p); len(errs) != 1 || !strings.Contains(errs[0].Error(), "bytes together in cluster prod-1, and at most 16384 are read") {
		t.Error(errs)
	}
	p = onPods("pods", "true", "")
	p.Spec.Exclude = &kinds.PolicyExclusion{}
	for i := range kinds.MaxPolicyExclusions {
		p.Spec.Exclude.Groups = append(p.Spec.Exclude.Groups, strings.Repeat(string(rune('0'+i)), 200)+"\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01")
	}
	if _, errs := c.Compile(p); len(errs) != 1 || errs[0].Field != "spec.exclude.groups" {
		t.Error(errs)
	}
}
