package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestConditionsThatAlwaysFail(t *testing.T) {
	for name, test := range map[string]struct {
		rules      string
		conditions []string
		want       string // "it fails for every %s:" of the first condition; empty for no finding
	}{
		"the namespace of policies":           {`rules: [{operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"namespaceObject.metadata.labels['a'] == 'b'"}, "request"},
		"that it is not there":                {`rules: [{operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"namespaceObject == null"}, ""},
		"the object of a deletion":            {`rules: [{operations: ["CREATE","DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"object.metadata.name != 'x'"}, "DELETE of pods"},
		"of deletions alone":                  {`rules: [{operations: ["DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"object.metadata.name != 'x'"}, "request"},
		"of any operation":                    {`rules: [{operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: ["*"]}]`, []string{"object.metadata.name != 'x'"}, "DELETE"},
		"the old object of a creation":        {`rules: [{operations: ["CREATE","UPDATE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"oldObject.metadata.name != 'x'"}, "CREATE of pods"},
		"of what connects":                    {`rules: [{operations: ["CONNECT"], apiGroups: [""], apiVersions: ["*"], resources: ["pods/exec"]}]`, []string{"oldObject.metadata.name != 'x'"}, "request"},
		"either object":                       {`rules: [{operations: ["CREATE","UPDATE","DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"object.metadata.name == oldObject.metadata.name"}, "CREATE of pods, and every DELETE of pods"},
		"the old object or the object":        {`rules: [{operations: ["CREATE","UPDATE","DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"(object != null ? object : oldObject).metadata.name == 'x'"}, ""},
		"the object, guarded":                 {`rules: [{operations: ["CREATE","DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"request.operation == 'DELETE' || object.metadata.name != 'x'"}, ""},
		"guarded behind":                      {`rules: [{operations: ["CREATE","DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"object.metadata.name != 'x' || request.operation == 'DELETE'"}, ""},
		"guarded by another condition":        {`rules: [{operations: ["CREATE","DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"object.metadata.name != 'x'", "request.operation != 'DELETE'"}, ""},
		"by one that may be false":            {`rules: [{operations: ["CREATE","DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"object.metadata.name != 'x'", "request.userInfo.username != 'x'"}, "DELETE of pods"},
		"by one about the resource":           {`rules: [{operations: ["DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}, {operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["nodes"]}]`, []string{"object.metadata.name != 'x'", "request.resource.resource != 'pods'"}, ""},
		"the namespace of nodes":              {`rules: [{operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["nodes"]}]`, []string{"request.namespace != 'kube-system'"}, "request"},
		"of nodes among others":               {`rules: [{operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["nodes"]}, {operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"request.namespace != 'kube-system'"}, "CREATE of nodes"},
		"of Namespaces":                       {`rules: [{operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["namespaces"]}]`, []string{"request.namespace != 'kube-system'"}, ""},
		"of custom resources":                 {`rules: [{operations: ["CREATE"], apiGroups: ["example.com"], apiVersions: ["*"], resources: ["widgets"]}]`, []string{"request.namespace != 'kube-system'"}, ""},
		"of any resource":                     {`rules: [{operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["*"]}]`, []string{"request.namespace != 'kube-system'"}, ""},
		"the namespace, if there is one":      {`rules: [{operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["nodes"]}]`, []string{"!has(request.namespace) || request.namespace != 'kube-system'"}, ""},
		"the subresource of none":             {`rules: [{operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"request.subResource != 'status'"}, "request"},
		"a subresource":                       {`rules: [{operations: ["UPDATE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods/status"]}]`, []string{"request.subResource == 'status'"}, ""},
		"labels that an object may lack":      {`rules: [{operations: ["CREATE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"object.metadata.labels['a'] == 'b'"}, ""},
		"operations that there are not":       {`rules: [{operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: ["pods/exec"]}]`, []string{"request.operation == 'CONNECT' || object.a == oldObject.b"}, ""},
		"the permission to read a deletion's": {`rules: [{operations: ["DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["pods"]}]`, []string{"authorizer.group('').resource('pods').check('get').allowed() || object.metadata.name == 'x'"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := make([]string, 0, len(test.conditions))
			for i, text := range test.conditions {
				conditions = append(conditions, fmt.Sprintf("{name: c%d, expression: %q}", i, text))
			}
			got := found(t, configuration("Validating", "p", hook("p", "failurePolicy: Ignore", test.rules, "matchConditions: ["+strings.Join(conditions, ", ")+"]")))
			got = slices.DeleteFunc(got, func(text string) bool { return !strings.HasPrefix(text, "condition-fails") })
			if test.want == "" {
				expect(t, got)
				return
			}
			expect(t, got, `condition-fails: *webhooks[0].matchConditions[0].expression: it fails for every `+test.want+": ")
		})
	}
}

func TestConditionsThatAreFalseForEachOperation(t *testing.T) {
	for _, test := range []struct{ rules, condition, want string }{
		{rule("CREATE", "", "pods", ""), "request.operation == 'UPDATE'", "never-matches: *webhooks[0].matchConditions: for each operation of the rules one of them is false"},
		{rule("CREATE, UPDATE", "", "pods", ""), "request.resource.resource == 'nodes'", "never-matches: *"},
		{rule("CREATE", "", "nodes", ""), "has(request.namespace) && request.namespace == 'x'", "never-matches: *"},
		{rule("*", "", "pods", ""), "has(namespaceObject.metadata)", "never-matches: *"},
		{rule("CREATE, UPDATE", "", "pods", ""), "request.operation == 'UPDATE'", ""},
		{rule("CREATE", "", "namespaces", ""), "has(request.namespace) && request.namespace == 'x'", ""},
		{rule("*", "*", "*", ""), "request.operation == 'CONNECT'", ""},
	} {
		conditions := fmt.Sprintf("matchConditions: [{name: a, expression: %q}]", test.condition)
		got := found(t, configuration("Validating", "p", hook("p", "failurePolicy: Ignore", test.rules, conditions)))
		got = slices.DeleteFunc(got, func(text string) bool { return !strings.HasPrefix(text, "never-matches") })
		if test.want == "" {
			expect(t, got)
			continue
		}
		expect(t, got, test.want)
	}
}
