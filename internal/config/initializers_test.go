package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// podImage is the example of the user guide of Kubernetes 1.7, as printed.
const podImage = `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata:
  name: example-config
initializers:
  # the name needs to be fully qualified, i.e., containing at least two "."
  - name: podimage.example.com
    rules:
      # apiGroups, apiVersion, resources all support wildcard "*".
      # "*" cannot be mixed with non-wildcard.
      - apiGroups:
          - ""
        apiVersions:
          - v1
        resources:
          - pods
`

const podImageRoute = `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: podimage}
spec:
  configuration: example-config
  stage: initialize
  hosts: [podimage]
`

func TestTheInitializerOfTheUserGuideIsRead(t *testing.T) {
	o := decodeOne(t, podImage)
	if want := (Key{Kind: "InitializerConfiguration", Name: "example-config"}); o.Key != want || o.WrittenKind() != want.Kind || !o.Initializes() {
		t.Errorf("it is %s, written as %s", o.Key, o.WrittenKind())
	}
	want := admissionregistrationv1.MutatingWebhook{
		Name: "podimage.example.com", FailurePolicy: ptr.To(admissionregistrationv1.Ignore), MatchPolicy: ptr.To(admissionregistrationv1.Exact),
		SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](5), AdmissionReviewVersions: []string{"v1"},
		ReinvocationPolicy: ptr.To(admissionregistrationv1.NeverReinvocationPolicy),
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: ptr.To(admissionregistrationv1.AllScopes),
			},
		}},
	}
	got := o.Mutating.Webhooks[0]
	got.NamespaceSelector, got.ObjectSelector = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	snapshot, problems := Compile("r", append(decoded(t, podImageRoute), o))
	if len(problems) > 0 || len(snapshot.Hooks()) != 1 {
		t.Fatalf("hooks %v, problems %q", snapshot.Hooks(), lines(problems))
	}
	h := snapshot.Hooks()[0]
	if h.ID.Stage != admissionv1.Stage_STAGE_INITIALIZE || h.Route.Stream || h.Route.Hosts[0] != "podimage" || KeyOf(h) != o.Key {
		t.Errorf("hook %+v of %s", h, KeyOf(h))
	}
}

func TestAnInitializerConfigurationOfOurGroupIsTheSameObject(t *testing.T) {
	theirs := decodeOne(t, podImage)
	ours := decodeOne(t, strings.Replace(podImage, admissionregistrationV1alpha1, kinds.APIVersion, 1))
	if ours.Key != theirs.Key || ours.Digest != theirs.Digest {
		t.Errorf("%s has digest %s, want %s with %s", ours.Key, ours.Digest, theirs.Key, theirs.Digest)
	}
	if _, problems := Compile("r", append(decoded(t, podImageRoute), theirs, ours)); len(problems) != 1 || problems[0].Code != CodeDuplicate {
		t.Errorf("problems %q of both", lines(problems))
	}
}

func TestInitializersThatAreRefused(t *testing.T) {
	const second = "initializers:\n  - {name: second.example.com}\n"
	const at = `InitializerConfiguration "example-config": initializers[0]`
	for name, tc := range map[string]struct {
		old, new string
		problems []string
	}{
		"A name that is not fully qualified.": {"podimage.example.com", "podimage", []string{
			`f.yaml:7: ` + at + `.name: Invalid value: "podimage": should be a domain with at least three segments separated by dots`}},
		"Two initializers of one name.": {"initializers:\n", "initializers:\n  - {name: podimage.example.com}\n", []string{
			`f.yaml:8: InitializerConfiguration "example-config": initializers[1].name: Duplicate value: "podimage.example.com"`}},
		"A wildcard beside a group.": {`          - ""`, `          - ""` + "\n          - '*'", []string{
			`f.yaml:11: ` + at + `.rules[0].apiGroups: Invalid value: ["","*"]: if '*' is present, must not specify other API groups`}},
		"A wildcard beside a version.": {`          - v1`, `          - v1` + "\n          - '*'", []string{
			`f.yaml:13: ` + at + `.rules[0].apiVersions: Invalid value: ["v1","*"]: if '*' is present, must not specify other API versions`}},
		"A wildcard beside a resource.": {`          - pods`, `          - pods` + "\n          - '*'", []string{
			`f.yaml:15: ` + at + `.rules[0].resources: Invalid value: ["pods","*"]: if '*' is present, must not specify other resources`}},
		"A resource beside a wildcard.": {`          - pods`, "          - '*'\n          - pods", []string{
			`f.yaml:15: ` + at + `.rules[0].resources: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources`}},
		"A subresource.": {`          - pods`, `          - pods/status`, []string{
			`f.yaml:16: ` + at + `.rules[0].resources[0]: Invalid value: "pods/status": an initializer has no subresources: name the resource alone`}},
		"All subresources.": {`          - pods`, `          - '*/*'`, []string{
			`f.yaml:16: ` + at + `.rules[0].resources[0]: Invalid value: "*/*": an initializer has no subresources: name the resource alone`}},
		"A rule without resources.": {"        resources:\n          - pods\n", "", []string{
			`f.yaml:11: ` + at + `.rules[0].resources: Required value`}},
		"A rule without groups and versions.": {"apiGroups:\n          - \"\"\n        apiVersions:\n          - v1\n        ", "", []string{
			`f.yaml:11: ` + at + `.rules[0].apiGroups: Required value`, `f.yaml:11: ` + at + `.rules[0].apiVersions: Required value`}},
		"Operations, which are CREATE always.": {"      - apiGroups", "      - operations: [CREATE]\n        apiGroups", []string{
			`f.yaml:11: ` + at + `.rules[0].operations: unknown field`}},
		"A failure policy that there is not.": {"    rules", "    failurePolicy: Retry\n    rules", []string{
			`f.yaml:8: ` + at + `.failurePolicy: Unsupported value: "Retry": supported values: "Fail", "Ignore"`}},
		"A timeout, which is a field of HookRoutes.": {"    rules", "    timeoutSeconds: 3\n    rules", []string{
			`f.yaml:8: ` + at + `.timeoutSeconds: unknown field`}},
		"A name that is generated.": {"name: example-config", "generateName: x", []string{
			`f.yaml:3: InitializerConfiguration: metadata.name: Required value: generateName alone is not enough: a document keeps its name`,
			`f.yaml:3: InitializerConfiguration: metadata.name: Required value: name or generateName is required`}},
		"An initializer without rules is valid.": {"initializers:\n", second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range []string{admissionregistrationV1alpha1, kinds.APIVersion} {
				objects, problems := decode("f.yaml", []byte(strings.Replace(strings.Replace(podImage, tc.old, tc.new, 1), admissionregistrationV1alpha1, version, 1)))
				if diff := cmp.Diff(append([]string{}, tc.problems...), lines(problems)); diff != "" || (len(objects) == 1) != (tc.problems == nil) {
					t.Errorf("%s: %d objects, problems (-want +got):\n%s", version, len(objects), diff)
				}
			}
		})
	}
}

func TestAnInitializerThatFailsClosedIsReadWithAWarning(t *testing.T) {
	objects, problems := decode("f.yaml", []byte(strings.Replace(podImage, "    rules", "    failurePolicy: Fail\n    rules", 1)))
	if len(objects) != 1 || *objects[0].Mutating.Webhooks[0].FailurePolicy != admissionregistrationv1.Fail {
		t.Fatalf("objects %+v", objects)
	}
	if len(problems) != 1 || problems[0].Severity != match.SeverityWarning || problems[0].Code != CodeFailClosed ||
		problems[0].Line != 8 || problems[0].Field != "initializers[0].failurePolicy" {
		t.Errorf("problems %q", lines(problems))
	}
}

func TestInitializersNeedAStore(t *testing.T) {
	objects, problems := newDecoder().WithoutStaging().Decode("f.yaml", []byte(podImage+"---\n"+goodHook))
	want := []string{
		`f.yaml:2: InitializerConfiguration "example-config": kind: objects are staged for initializers in etcd, and this dispatcher has none: ` +
			`start it with --data-dir or --etcd, or remove the document`,
	}
	if diff := cmp.Diff(want, lines(problems)); diff != "" || problems[0].Code != CodeNoStore {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if got := names(objects); len(got) != 1 || objects[0].Kind != validatingKind {
		t.Errorf("objects %q, want those that need no store", got)
	}
}

func TestProblemsOfInitializersNameTheirFields(t *testing.T) {
	_, problems := Compile("r", decoded(t, podImage))
	if len(problems) != 1 || problems[0].Code != match.CodeNoHost || problems[0].Line != 7 || problems[0].Field != "initializers[0]" {
		t.Errorf("problems %q", lines(problems))
	}
	cyclic := podImageRoute + "  after: [podimage.example.com]\n"
	_, problems = Compile("r", decoded(t, podImage+"---\n"+cyclic))
	if len(problems) != 1 || problems[0].Code != match.CodeInitializerOrder || problems[0].Severity != match.SeverityError ||
		problems[0].Line != 25 || problems[0].Field != "spec.after" {
		t.Errorf("problems %q", lines(problems))
	}
}

func TestNamesOfInitializersInRoutesAreChecked(t *testing.T) {
	_, problems := decode("f.yaml", []byte(podImageRoute+"  after: [short, a.example.com, a.example.com]\n  before: [b.example.com]\n"))
	want := []string{
		`f.yaml:8: HookRoute "podimage": spec.after[2]: Duplicate value: "a.example.com"`,
		`f.yaml:8: HookRoute "podimage": spec.after[0]: Invalid value: "short": should be a domain with at least three segments separated by dots`,
	}
	if diff := cmp.Diff(want, lines(problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
