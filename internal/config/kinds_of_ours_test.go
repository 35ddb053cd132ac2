package config

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// ofKubernetes are documents of the kinds of admissionregistration.k8s.io that our group has under other names, each with a text whose change to "wrong"
// makes the document invalid, and the field.
func ofKubernetes() map[string]struct{ document, right, field string } {
	hooks := func(kind string) string { return strings.Replace(ruledHooks, "KIND", kind, 1) }
	mutating := func(document string) string {
		return strings.Replace(document, "kind: Validating", "kind: Mutating", 1)
	}
	policy := decodedPolicy("ruled", "  failurePolicy: Fail\n")
	binding := strings.NewReplacer("policyName: p", "policyName: p, paramRef: {name: p, parameterNotFoundAction: Deny}, "+
		"matchResources: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}", "---\n", "").
		Replace(decodedBinding("ruled", "p"))
	return map[string]struct{ document, right, field string }{
		validatingKind:        {hooks(validatingKind), "timeoutSeconds: 5", "webhooks[1].timeoutSeconds"},
		mutatingKind:          {hooks(mutatingKind), "timeoutSeconds: 5", "webhooks[1].timeoutSeconds"},
		validatingPolicyKind:  {strings.Replace(policy, "---\n", "  validations: [{expression: 'true'}]\n", 1), "Fail", "spec.failurePolicy"},
		validatingBindingKind: {binding, "Action: Deny", "spec.paramRef.parameterNotFoundAction"},
		mutatingPolicyKind: {
			mutating(strings.Replace(policy, "---\n", "  reinvocationPolicy: Never\n  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/a\"}]'}}]\n", 1)),
			"Fail", "spec.failurePolicy",
		},
		mutatingBindingKind: {
			mutating(strings.Replace(binding, ", validationActions: [Deny]", "", 1)), "Action: Deny", "spec.paramRef.parameterNotFoundAction",
		},
	}
}

// TestADocumentOfOursIsTheDocumentOfKubernetesOfItsName has each kind of our group that Kubernetes has under another name.
func TestADocumentOfOursIsTheDocumentOfKubernetesOfItsName(t *testing.T) {
	tested := ofKubernetes()
	for _, r := range kinds.Resources() {
		if r.Kubernetes == "" {
			continue
		}
		of := tested[r.Kubernetes]
		delete(tested, r.Kubernetes)
		kubernetes, problems := decode("f", []byte(of.document))
		if problems.Err() != nil || len(kubernetes) != 1 || kubernetes[0].WrittenKind() != r.Kubernetes {
			t.Fatalf("%s: %v, %v", r.Kubernetes, kubernetes, problems)
		}
		bare := strings.Replace(of.document, admissionregistrationV1, kinds.APIVersion, 1)
		ours := strings.Replace(bare, "kind: "+r.Kubernetes, "kind: "+r.Kind, 1)
		objects, problems := decode("f", []byte(ours))
		if problems.Err() != nil || len(objects) != 1 {
			t.Fatalf("%s: %v", r.Kind, problems)
		}
		o := objects[0]
		cost, want := o.Cost(), kubernetes[0].Cost()
		cost[ManifestBytes], want[ManifestBytes] = 0, 0 // the name of the kind is in it
		same := o.Digest == kubernetes[0].Digest && cost == want && cost != (Cost{Documents: 1})
		if o.Key != (Key{Kind: r.Kubernetes, Name: "ruled"}) || !same || o.WrittenKind() != r.Kind {
			t.Errorf("%s is %s, written as %s, and means another thing", r.Kind, o.Key, o.WrittenKind())
		}
		if duplicates := Duplicates([]Object{kubernetes[0], o}); len(duplicates) != 1 || duplicates[0].Kind != r.Kind {
			t.Errorf("%s and %s of one name: %v", r.Kubernetes, r.Kind, duplicates)
		}
		_, problems = decode("f", []byte(strings.Replace(ours, of.right, of.right[:strings.LastIndex(of.right, " ")+1]+"50", 1)))
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), r.Kind+` "ruled": `+of.field) {
			t.Errorf("%s: error %v, want one at %s", r.Kind, err, of.field)
		}
		_, problems = decode("f", []byte(ours+"status: {}\n"))
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), `status: unknown field`) {
			t.Errorf("%s with a status: error %v", r.Kind, err)
		}
		_, problems = decode("f", []byte(bare))
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), `did you mean "`+r.Kind+`"?`) {
			t.Errorf("%s of our group: error %v", r.Kubernetes, err)
		}
	}
	for kind := range tested {
		t.Errorf("no kind of our group is a %s", kind)
	}
}

// TestAPolicyOfAnOldVersionSaysItsKind that the ExternalAdmissionHookConfiguration of the same version has not.
func TestAPolicyOfAnOldVersionSaysItsKind(t *testing.T) {
	for kind, of := range ofKubernetes() {
		if kind == validatingKind || kind == mutatingKind {
			continue
		}
		objects, problems := decode("f", []byte(strings.Replace(of.document, admissionregistrationV1, admissionregistrationV1alpha1, 1)))
		if problems.Err() != nil || len(objects) != 1 || objects[0].WrittenKind() != kind {
			t.Errorf("%s: %v, %v", kind, objects, problems)
		}
	}
}
