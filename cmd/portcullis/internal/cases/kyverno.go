package cases

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// kyvernoFile is the name of case files of Kyverno.
const kyvernoFile = "kyverno-test"

// kyvernoTest is a case file of Kyverno (cli.kyverno.io/v1alpha1), as far as it is about policies of Kubernetes.
type kyvernoTest struct {
	Policies  []string        `json:"policies"`
	Resources []string        `json:"resources"`
	Results   []kyvernoResult `json:"results"`
	// ParamResources are files with params.
	ParamResources []json.RawMessage `json:"paramResources"`

	// Fields that change verdicts, and are not read.
	Variables       json.RawMessage `json:"variables"`
	Values          json.RawMessage `json:"values"`
	UserInfo        json.RawMessage `json:"userinfo"`
	Exceptions      json.RawMessage `json:"exceptions"`
	Context         json.RawMessage `json:"context"`
	TargetResources json.RawMessage `json:"targetResources"`
	Checks          json.RawMessage `json:"checks"`
}

// kyvernoResult is an expected result for some of the resources.
type kyvernoResult struct {
	Policy           string   `json:"policy"`
	Kind             string   `json:"kind"`
	Resources        []string `json:"resources"`
	PatchedResources string   `json:"patchedResources"`
	Result           string   `json:"result"`
}

// kyverno returns the cases of a case file of Kyverno: one for each result and each of its resources.
func (r *reader) kyverno(raw []byte) (*Suite, error) {
	var t kyvernoTest
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, &FaultError{r.path, 0, err.Error()}
	}
	for _, field := range []struct {
		name  string
		value json.RawMessage
	}{
		{"variables", t.Variables}, {"values", t.Values}, {"userinfo", t.UserInfo}, {"exceptions", t.Exceptions}, {"context", t.Context},
		{"targetResources", t.TargetResources}, {"checks", t.Checks},
	} {
		if field.value != nil {
			r.faultf(r.lineOf(field.name), "%s: it is not read: write the cases as docs/policy-tests.md describes them", field.name)
		}
	}
	s := &Suite{File: r.path}
	for _, p := range t.Policies {
		s.Policies = append(s.Policies, beside(r.path, p))
	}
	for i := range t.Results {
		r.kyvernoResult(s, &t, i)
	}
	if len(t.Policies) == 0 || len(s.Cases) == 0 && len(r.faults) == 0 {
		r.faultf(0, "there are no policies or no results")
	}
	return s, errors.Join(r.faults...)
}

// kyvernoResult adds the cases of one result.
func (r *reader) kyvernoResult(s *Suite, t *kyvernoTest, i int) {
	of, line := &t.Results[i], r.lineOf("results", i)
	verdict := map[string]Verdict{"pass": Allowed, "fail": Denied, "skip": Unmatched}[of.Result]
	if verdict == "" {
		r.faultf(line, "result: %q is none of pass, fail and skip", of.Result)
		return
	}
	for _, name := range of.Resources {
		c := &Case{Name: fmt.Sprintf("%s: %s %s: %s", of.Policy, of.Kind, name, of.Result), Policy: of.Policy, Verdict: verdict, line: line}
		c.Params.objects = t.ParamResources
		var err error
		if c.Object, err = r.resource(t.Resources, of.Kind, name); err == nil && of.PatchedResources != "" && verdict == Allowed {
			c.Patched, err = r.resource([]string{of.PatchedResources}, of.Kind, name)
		}
		if err != nil {
			r.faultf(line, "%v", err)
			continue
		}
		s.Cases = append(s.Cases, c)
	}
}

// resource finds an object in files, by its kind and NAME or NAMESPACE/NAME.
func (r *reader) resource(files []string, kind, name string) (json.RawMessage, error) {
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		namespace, name = "", namespace
	}
	for _, file := range files {
		data, err := readFile(beside(r.path, file))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all, err := documentsOf(file, data)
		if err != nil {
			return nil, err
		}
		for _, raw := range all {
			o := &unstructured.Unstructured{}
			if err := json.Unmarshal(raw, &o.Object); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if o.GetKind() == kind && o.GetName() == name && (namespace == "" || o.GetNamespace() == namespace) {
				return raw, nil
			}
		}
	}
	return nil, fmt.Errorf("there is no %s %s in %s", kind, name, strings.Join(files, ", "))
}
