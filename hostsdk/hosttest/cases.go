package hosttest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// testCase is a case of a table: a request to a hook, and the verdict that is expected.
type testCase struct {
	Name      string `json:"name"`
	Hook      string `json:"hook"`
	Operation string `json:"operation"`
	Namespace string `json:"namespace"`
	User      struct {
		Name   string   `json:"name"`
		Groups []string `json:"groups"`
	} `json:"user"`
	Object    json.RawMessage `json:"object"`
	OldObject json.RawMessage `json:"oldObject"`
	Expect    expectation     `json:"expect"`
}

// expectation has the fields of a verdict that are compared: those that are there.
type expectation struct {
	Allowed  *bool             `json:"allowed"`
	Code     int32             `json:"code"`
	Reason   string            `json:"reason"`
	Message  string            `json:"message"`
	Causes   []cause           `json:"causes"`
	Warnings []string          `json:"warnings"`
	Audit    map[string]string `json:"audit"`
	Object   json.RawMessage   `json:"object"`
	Patch    json.RawMessage   `json:"patch"`
}

// cause is a field at fault.
type cause struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Cases runs a table of cases in YAML or JSON against a host, each as a test:
//
//   - name: host network is denied
//     hook: host-network.example.com     # may be left out where the host has one hook
//     operation: CREATE                  # the default; UPDATE has oldObject too, and DELETE has that alone
//     user: {name: jane, groups: [dev]}
//     namespace: shop                    # of the object, if it is left out
//     object: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {hostNetwork: true}}
//     expect: {allowed: false, code: 403, message: hostNetwork is not allowed here}
//
// A verdict is compared with the fields that expect has: allowed, code, reason, message (a part of the message), causes (each with field
// and message), warnings, audit, object (the whole object with the patch applied) and patch ([] for none). toJSON turns the file into JSON,
// and is nil if it is JSON already: YAMLToJSON of sigs.k8s.io/yaml, which the modules of Kubernetes require, reads YAML.
func Cases(t *testing.T, host Host, file string, toJSON func([]byte) ([]byte, error)) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if toJSON != nil {
		if text, err = toJSON(text); err != nil {
			t.Fatalf("hosttest: %s: %v", file, err)
		}
	}
	var cases []testCase
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&cases); err != nil {
		t.Fatalf("hosttest: %s: %v", file, err)
	}
	if len(cases) == 0 {
		t.Fatalf("hosttest: %s has no cases", file)
	}
	d := Start(t, host)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			v, err := d.Session.Review(t.Context(), c.hook(d.Session), c.request())
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range c.Expect.compare(v) {
				t.Error(fault)
			}
		})
	}
}

// hook is the hook of a case, or the only hook of the host.
func (c *testCase) hook(s *Session) string {
	if offers := s.Hello().GetHooks(); c.Hook == "" && len(offers) == 1 {
		return offers[0].GetName()
	}
	return c.Hook
}

func (c *testCase) request() *admissionv1.AdmissionRequest {
	r := Create(string(c.Object))
	switch c.Operation {
	case "UPDATE":
		r = Update(string(c.OldObject), string(c.Object))
	case "DELETE":
		r = Delete(string(c.OldObject))
	}
	r.Operation = cmp.Or(c.Operation, "CREATE")
	r.Namespace = cmp.Or(c.Namespace, r.GetNamespace())
	r.UserInfo.Username = cmp.Or(c.User.Name, r.GetUserInfo().GetUsername())
	if c.User.Groups != nil {
		r.UserInfo.Groups = c.User.Groups
	}
	return r
}

// compare returns the differences of a verdict.
func (e *expectation) compare(v *Verdict) (faults []string) {
	differs := func(field string, differs bool, got, want any) {
		if differs {
			faults = append(faults, fmt.Sprintf("%s: got %v, want %v", field, got, want))
		}
	}
	if e.Allowed == nil {
		return []string{"expect lacks allowed"}
	}
	differs("allowed", v.Allowed != *e.Allowed, fmt.Sprintf("%t %s", v.Allowed, v.Message), *e.Allowed)
	differs("code", e.Code != 0 && v.Code != e.Code, v.Code, e.Code)
	differs("reason", e.Reason != "" && v.Reason != e.Reason, v.Reason, e.Reason)
	causes := make([]cause, 0, len(v.Causes))
	for _, c := range v.Causes {
		causes = append(causes, cause{c.Field, c.Message})
	}
	differs("causes", e.Causes != nil && !slices.Equal(causes, e.Causes), causes, e.Causes)
	differs("message", !strings.Contains(v.Message, e.Message), v.Message, e.Message)
	differs("warnings", e.Warnings != nil && strings.Join(v.Warnings, "\n") != strings.Join(e.Warnings, "\n"), v.Warnings, e.Warnings)
	differs("audit", e.Audit != nil && fmt.Sprint(v.Audit) != fmt.Sprint(e.Audit), v.Audit, e.Audit)
	differs("object", e.Object != nil && !equalJSON(v.Object, e.Object), string(v.Object), string(e.Object))
	patch := v.Patch
	if len(patch) == 0 {
		patch = []byte("[]")
	}
	differs("patch", e.Patch != nil && !equalJSON(patch, e.Patch), string(patch), string(e.Patch))
	return faults
}

// equalJSON compares two documents.
func equalJSON(a, b []byte) bool {
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}
