package config

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// betaHooks are two hooks that v1 would refuse for four reasons and v1beta1 does not.
const betaHooks = `apiVersion: admissionregistration.k8s.io/v1beta1
kind: ValidatingWebhookConfiguration
metadata:
  name: old
webhooks:
- name: a.example.com
  clientConfig: {url: "https://example.com/a"}
  rules:
  - {apiGroups: ["apps"], apiVersions: ["v1"], operations: [CREATE], resources: [deployments]}
- name: a.example.com
  sideEffects: Some
  failurePolicy: Fail
  clientConfig: {service: {namespace: ns, name: svc}}
`

const betaMutating = `apiVersion: admissionregistration.k8s.io/v1beta1
kind: MutatingWebhookConfiguration
metadata: {name: old}
webhooks:
- name: m.example.com
`

const alphaHooks = `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata:
  name: older
externalAdmissionHooks:
- name: image.example.com
  clientConfig:
    service: {namespace: ns, name: svc}
    urlPath: /apis/check
    caBundle: Cg==
  rules:
  - operations: [CREATE]
    apiGroups: [""]
    apiVersions: [v1]
    resources: [pods]
`

// decodeOne decodes a document that must have nothing wrong with it.
func decodeOne(t testing.TB, data string) Object {
	t.Helper()
	objects, problems := decode("f.yaml", []byte(data))
	if err := problems.Err(); err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	return objects[0]
}

func TestHooksOfOlderVersionsAreMatchedByTheDefaultsOfTheirVersion(t *testing.T) {
	beta, mutating, alpha := decodeOne(t, betaHooks), decodeOne(t, betaMutating), decodeOne(t, alphaHooks)
	snapshot, problems := Compile("r", []Object{beta, mutating, alpha})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	type said struct {
		Name           string
		Failure        admissionregistrationv1.FailurePolicyType
		Match          admissionregistrationv1.MatchPolicyType
		SideEffects    admissionregistrationv1.SideEffectClass
		Reinvocation   admissionregistrationv1.ReinvocationPolicyType
		Timeout        time.Duration
		ReviewVersions string
		Stream         bool
	}
	got := map[string]said{}
	for _, h := range snapshot.Hooks() {
		got[h.ID.Configuration+string(rune('0'+h.ID.Index))+h.ID.Name] = said{
			h.ID.Name, h.FailurePolicy, h.MatchPolicy, h.SideEffects, h.Reinvocation, h.Timeout,
			strings.Join(h.ReviewVersions, ","), h.Route.Stream,
		}
	}
	want := map[string]said{
		"old0a.example.com":       {"a.example.com", "Ignore", "Exact", "Unknown", "Never", 30 * time.Second, "v1beta1", false},
		"old1a.example.com":       {"a.example.com", "Fail", "Exact", "Some", "Never", 30 * time.Second, "v1beta1", false},
		"old0m.example.com":       {"m.example.com", "Ignore", "Exact", "Unknown", "Never", 30 * time.Second, "v1beta1", true},
		"older0image.example.com": {"image.example.com", "Ignore", "Exact", "Unknown", "Never", 30 * time.Second, "v1alpha1", false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("hooks (-want +got):\n" + diff)
	}
}

func TestADocumentSaysTheSameInEveryVersion(t *testing.T) {
	const v1 = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: older}
webhooks:
- name: image.example.com
  matchPolicy: Exact
  failurePolicy: Ignore
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1beta1]
  clientConfig:
    service: {namespace: ns, name: svc, path: /apis/check}
    caBundle: Cg==
  rules:
  - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}
`
	v1beta1 := strings.NewReplacer("io/v1\n", "io/v1beta1\n", "  matchPolicy: Exact\n", "", "  failurePolicy: Ignore\n", "",
		"  timeoutSeconds: 30\n", "", "  admissionReviewVersions: [v1beta1]\n", "").Replace(v1)
	now, before, long := decodeOne(t, v1), decodeOne(t, v1beta1), decodeOne(t, alphaHooks)
	if now.Digest != before.Digest || now.Key != before.Key {
		t.Error("v1 and v1beta1 differ:\n" + cmp.Diff(now.Validating, before.Validating))
	}
	if before.APIVersion != admissionregistrationV1beta1 || long.APIVersion != admissionregistrationV1alpha1 {
		t.Errorf("written in %q and %q", before.APIVersion, long.APIVersion)
	}
	none := admissionregistrationv1.SideEffectClassNone
	like := long.Validating.DeepCopy()
	like.Webhooks[0].SideEffects, like.Webhooks[0].AdmissionReviewVersions = &none, []string{"v1beta1"}
	if diff := cmp.Diff(now.Validating, like); diff != "" || long.Key != now.Key {
		t.Error("v1 and v1alpha1 differ:\n" + diff)
	}
}

func TestWhatOlderVersionsRefuse(t *testing.T) {
	const validating = `ValidatingWebhookConfiguration "old": webhooks`
	const external = `ExternalAdmissionHookConfiguration "older": externalAdmissionHooks[0]`
	for _, tc := range []struct {
		name     string
		data     string
		old, new string
		problems []string
	}{
		{
			name: "A field that v1beta1 does not have.", data: betaHooks, old: "  failurePolicy", new: "  reinvocationPolicy: Never\n  failurePolicy",
			problems: []string{`f.yaml:12: ` + validating + `[1].reinvocationPolicy: unknown field`},
		},
		{
			name: "A timeout past 30 seconds.", data: betaHooks, old: "  sideEffects", new: "  timeoutSeconds: 31\n  sideEffects",
			problems: []string{`f.yaml:11: ` + validating + `[1].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds`},
		},
		{
			name: "Review versions that no API server knows.", data: betaHooks, old: "  sideEffects", new: "  admissionReviewVersions: [v1alpha1]\n  sideEffects",
			problems: []string{`f.yaml:11: ` + validating + `[1].admissionReviewVersions: Invalid value: ["v1alpha1"]: must include at least one of v1, v1beta1`},
		},
		{
			name: "Side effects that are none of the classes.", data: betaHooks, old: "Some", new: "Few",
			problems: []string{`f.yaml:11: ` + validating + `[1].sideEffects: Unsupported value: "Few": supported values: "None", "NoneOnDryRun", "Some", "Unknown"`},
		},
		{
			name: "A match condition that is no CEL.", data: betaHooks, old: "  sideEffects", new: "  matchConditions: [{name: x, expression: 1 +}]\n  sideEffects",
			problems: []string{`f.yaml:11: ` + validating + `[1].matchConditions[0].expression: Invalid value: "1 +": ` +
				"compilation failed: ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}  | 1 +  | ...^"},
		},
		{
			name: "A label value of a selector that no object can have.", data: betaHooks, old: "  sideEffects", new: "  objectSelector: {matchLabels: {a: 'b c'}}\n  sideEffects",
			problems: []string{`f.yaml:11: ` + validating + `[1].objectSelector.matchLabels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		},
		{
			name: "A service without a name, which is what is named.", data: betaHooks, old: ", name: svc", new: "",
			problems: []string{`f.yaml:13: ` + validating + `[1].clientConfig.service.name: Required value`},
		},
		{
			name: "A service without a namespace.", data: betaHooks, old: "namespace: ns, ", new: "",
			problems: []string{`f.yaml:13: ` + validating + `[1].clientConfig.service.namespace: Required value`},
		},
		{
			name: "A scope that there is not.", data: betaHooks, old: "operations: [CREATE]", new: "scope: All, operations: [CREATE]",
			problems: []string{`f.yaml:9: ` + validating + `[0].rules[0].scope: Unsupported value: "All": supported values: "*", "Cluster", "Namespaced"`},
		},
		{
			name: "A reinvocation policy that there is not.", data: betaMutating, old: "m.example.com\n", new: "m.example.com\n  reinvocationPolicy: Always\n",
			problems: []string{`f.yaml:6: MutatingWebhookConfiguration "old": webhooks[0].reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`},
		},
		{
			name: "A hook of v1alpha1 whose name is not fully qualified.", data: alphaHooks, old: "image.example.com", new: "image",
			problems: []string{`f.yaml:6: ` + external + `.name: Invalid value: "image": should be a domain with at least three segments separated by dots`},
		},
		{
			name: "What only later versions have.", data: alphaHooks, old: "  rules:", new: "  timeoutSeconds: 5\n  rules:",
			problems: []string{`f.yaml:11: ` + external + `.timeoutSeconds: unknown field`},
		},
		{
			name: "A scope of a rule of v1alpha1.", data: alphaHooks, old: "  - operations", new: "  - scope: Cluster\n    operations",
			problems: []string{`f.yaml:12: ` + external + `.rules[0].scope: unknown field`},
		},
		{
			name: "Rules without operations, groups or versions.", data: alphaHooks,
			old: "operations: [CREATE]\n    apiGroups: [\"\"]\n    apiVersions: [v1]\n    ", new: "",
			problems: []string{
				`f.yaml:12: ` + external + `.rules[0].operations: Required value`,
				`f.yaml:12: ` + external + `.rules[0].apiGroups: Required value`,
				`f.yaml:12: ` + external + `.rules[0].apiVersions: Required value`,
			},
		},
		{
			name: "A wildcard beside others, and a resource that one covers.", data: alphaHooks,
			old: "[CREATE]", new: "[CREATE, '*']",
			problems: []string{`f.yaml:12: ` + external + `.rules[0].operations: Invalid value: ["CREATE","*"]: if '*' is present, must not specify other operations`},
		},
		{
			name: "A failure policy that there is not.", data: alphaHooks, old: "  rules:", new: "  failurePolicy: Retry\n  rules:",
			problems: []string{`f.yaml:11: ` + external + `.failurePolicy: Unsupported value: "Retry": supported values: "Fail", "Ignore"`},
		},
		{
			name: "A path that is none, by the name it has in v1alpha1.", data: alphaHooks, old: "/apis/check", new: "/apis//check",
			problems: []string{`f.yaml:9: ` + external + `.clientConfig.urlPath: Invalid value: "/apis//check": segment[1] may not be empty`},
		},
		{
			name: "A clientConfig without a service.", data: alphaHooks, old: "    service: {namespace: ns, name: svc}\n", new: "",
			problems: []string{
				`f.yaml:7: ` + external + `.clientConfig.service.namespace: Required value`,
				`f.yaml:7: ` + external + `.clientConfig.service.name: Required value`,
			},
		},
		{
			name: "A placeholder for a caBundle of v1alpha1.", data: alphaHooks, old: "Cg==", new: "KUBE_CA",
			problems: []string{`f.yaml:10: ` + external + `.clientConfig.caBundle: not base64: illegal base64 data at input byte 4: put the CA certificates here as PEM in base64`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := strings.Replace(tc.data, tc.old, tc.new, 1)
			objects, problems := decode("f.yaml", []byte(data))
			if len(objects) > 0 {
				t.Errorf("accepted %q", names(objects))
			}
			if diff := cmp.Diff(tc.problems, lines(problems)); diff != "" {
				t.Error("problems (-want +got):\n" + diff)
			}
		})
	}
}

func TestAHookOfV1alpha1ThatFailsClosedIsReadWithAWarning(t *testing.T) {
	objects, problems := decode("f.yaml", []byte(strings.Replace(alphaHooks, "  rules:", "  failurePolicy: Fail\n  rules:", 1)))
	if len(objects) != 1 || *objects[0].Validating.Webhooks[0].FailurePolicy != admissionregistrationv1.Fail {
		t.Fatalf("objects %+v", objects)
	}
	if len(problems) != 1 || problems[0].Severity != match.SeverityWarning || problems[0].Code != CodeFailClosed ||
		problems[0].Line != 11 || problems[0].Field != "externalAdmissionHooks[0].failurePolicy" {
		t.Errorf("problems %q", lines(problems))
	}
}

func TestAnEmptyClientConfigIsAStreamInEveryVersion(t *testing.T) {
	object := decodeOne(t, strings.NewReplacer("    service: {namespace: ns, name: svc}\n", "", "    urlPath: /apis/check\n", "",
		"    caBundle: Cg==\n", "").Replace(alphaHooks))
	snapshot, problems := Compile("r", []Object{object})
	if h := snapshot.Hooks()[0]; !h.Route.Stream || h.ClientConfig.Service != nil || h.ClientConfig.URL != nil {
		t.Errorf("hook %+v", h)
	}
	if len(problems) != 1 || problems[0].Code != match.CodeNoHost || problems[0].Field != "externalAdmissionHooks[0]" || problems[0].Line != 6 || problems[0].File != "f.yaml" {
		t.Errorf("problems %q", lines(problems))
	}
}

// betaDocuments are the v1beta1 files of the corpus.
func betaDocuments(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(corpus(t), "*.v1beta1.*"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files:", err)
	}
	docs := map[string][]byte{}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs[filepath.Base(file)] = body
	}
	return docs
}

// betaBodies are betaDocuments in order.
func betaBodies(t testing.TB) [][]byte {
	t.Helper()
	docs := betaDocuments(t)
	var bodies [][]byte
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		bodies = append(bodies, docs[name])
	}
	return bodies
}

func TestRealV1beta1ConfigurationsComeBackFromV1AsTheyWere(t *testing.T) {
	docs := betaDocuments(t)
	docs["two hooks of one name"], docs["mutating"] = []byte(betaHooks), []byte(betaMutating)
	for name, body := range docs {
		t.Run(name, func(t *testing.T) {
			object := decodeOne(t, string(body))
			// The other way: Kubernetes' own decoder and scheme, without the internal version and v1 between.
			serializer := kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, legacyscheme.Scheme, legacyscheme.Scheme,
				kubejson.SerializerOptions{Strict: true, Yaml: true})
			want, _, err := serializer.Decode(body, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			legacyscheme.Scheme.Default(want)
			got := converted(t, webhooksOf(object), admissionregistrationv1beta1.SchemeGroupVersion)
			if diff := cmp.Diff(withoutServerFields(t, want), withoutServerFields(t, got)); diff != "" {
				t.Error("(-want +got):\n" + diff)
			}
			again := decodeOne(t, string(asJSON(t, got)))
			if again.Digest != object.Digest {
				t.Error("read again it says something else")
			}
		})
	}
}

func TestRealV1ConfigurationsComeBackFromV1beta1AsTheyWere(t *testing.T) {
	for _, doc := range realDocuments(t) {
		object := decodeOne(t, string(asJSON(t, doc)))
		beta := converted(t, webhooksOf(object), admissionregistrationv1beta1.SchemeGroupVersion)
		again := decodeOne(t, string(asJSON(t, beta)))
		if again.Digest != object.Digest || again.APIVersion != admissionregistrationV1beta1 {
			t.Errorf("%s (-want +got):\n%s", object.Key, cmp.Diff(object.Content(), again.Content()))
		}
	}
}

func webhooksOf(o Object) runtime.Object {
	if o.Validating != nil {
		return o.Validating
	}
	return o.Mutating
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// withoutServerFields is the object as JSON has it, without the fields that the server sets and createMeta wipes.
func withoutServerFields(t testing.TB, obj runtime.Object) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(asJSON(t, obj), &fields); err != nil {
		t.Fatal(err)
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		for _, field := range []string{"creationTimestamp", "generation", "namespace"} {
			delete(meta, field)
		}
	}
	return fields
}
