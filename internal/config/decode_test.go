package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// goodHook is a configuration that streams serve.
const goodHook = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: imagepolicy
webhooks:
- name: imagepolicy.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  rules:
  - {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [pods]}
`

const goodRoute = `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: imagepolicy}
spec:
  configuration: imagepolicy
  hook: imagepolicy.example.com
  stage: validate
  stream: {}
  hosts: ["spiffe://mesh/imagepolicy"]
  clusters: [prod-1]
  timeout: 250ms
`

const goodCluster = `apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-1}
spec:
  identities: [kube-apiserver]
  namespaces:
    static: {default: {env: dev}}
`

// names are the objects as kind/name@line.
func names(objects []Object) []string {
	all := []string{}
	for _, o := range objects {
		all = append(all, fmt.Sprintf("%s@%d", o.Key, o.Line))
	}
	return all
}

func lines(problems Problems) []string {
	all := []string{}
	for _, p := range problems {
		all = append(all, p.String())
	}
	return all
}

func TestDecode(t *testing.T) {
	const inReference = "docs/configuration-reference.md has the kinds that are read"
	for _, tc := range []struct {
		name     string
		data     string
		objects  []string
		problems []string
	}{
		{
			name:    "Documents between --- lines are read one by one.",
			data:    "# a comment\n---\n" + goodHook + "--- # and another\n" + goodRoute + "...\n" + goodCluster + "---\n",
			objects: []string{"ValidatingWebhookConfiguration/imagepolicy@3", "HookRoute/imagepolicy@14", "Cluster/prod-1@26"},
		},
		{
			name: "JSON values may follow each other, in YAML files too.",
			data: `{"apiVersion": "portcullis.dev/v1", "kind": "Cluster",
	"metadata": {"name": "a"}, "spec": {}}
{"apiVersion": "portcullis.dev/v1", "kind": "Cluster", "metadata": {"name": "b"}, "spec": {}}
---
` + goodCluster,
			objects: []string{"Cluster/a@1", "Cluster/b@3", "Cluster/prod-1@5"},
		},
		{
			name: "YAML in flow style is no JSON and is read.",
			data: "{apiVersion: portcullis.dev/v1, kind: Cluster,\n metadata: {name: a}, spec: {}}\n", objects: []string{"Cluster/a@1"},
		},
		{
			name: "A byte order mark and CRLF do not matter.",
			data: "\xef\xbb\xbf---\r\n" + strings.ReplaceAll(goodCluster, "\n", "\r\n"), objects: []string{"Cluster/prod-1@2"},
		},
		{name: "An empty file holds nothing.", data: "%YAML 1.1\n---\n\n# nothing\n---\nnull\n", objects: []string{}},
		{
			name: "The items of a List are documents of their own.",
			data: `apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: portcullis.dev/v1
  kind: Cluster
  metadata: {name: a}
  spec: {}
- apiVersion: portcullis.dev/v1
  kind: Cluster
  metadata: {name: b}
  spec:
    identity: [x]
- apiVersion: portcullis.dev/v1
  kind: Cluster
  metadata: {name: c}
  metadata: {name: d}
  spec: {}
- {apiVersion: v1, kind: List, items: []}
- 5
`,
			objects: []string{"Cluster/a@5"},
			problems: []string{
				`f.yaml:13: Cluster "b": items[1].spec.identity: unknown field; did you mean "identities"?`,
				`f.yaml:17: Cluster "d": items[2].metadata: duplicate field: it stands on line 16 already`,
				`f.yaml:19: List: items[3].kind: a List in a List is not read: put its items into the outer one`,
				`f.yaml:20: items[4]: wrong type: it is a number, and must be a mapping`,
			},
		},
		{
			name: "How calls are hedged is checked line by line.",
			data: "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: a}\nspec:\n  configuration: a\n" +
				"  stream: {}\n  hedge:\n    after: 20ms\n    percents: 51\n" +
				"---\n" + strings.Replace(goodRoute, "stream: {}\n  hosts: [\"spiffe://mesh/imagepolicy\"]", "hedge:\n    after: 31s\n    percent: 0", 1),
			objects: []string{},
			problems: []string{
				`f.yaml:9: HookRoute "a": spec.hedge.percents: unknown field; did you mean "percent"?`,
				`f.yaml:18: HookRoute "imagepolicy": spec.hedge: Forbidden: only hosts have other replicas to ask: add ` + "`stream: {}`" + `, or remove the hedge`,
				`f.yaml:19: HookRoute "imagepolicy": spec.hedge.after: Invalid value: "31s": must be between 1ms and 30s`,
				`f.yaml:20: HookRoute "imagepolicy": spec.hedge.percent: Invalid value: 0: must be between 1 and 50; remove the hedge to have none`,
			},
		},
		{
			name: "Items of a list of one kind need not say it, and may.",
			data: `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfigurationList
metadata: {resourceVersion: "7", continue: ""}
items:
- metadata: {name: a}
- metadata: {name: b}
  webhooks:
  - {name: short}
- apiVersion: admissionregistration.k8s.io/v1
  kind: MutatingWebhookConfiguration
  metadata: {name: c}
- {apiVersion: v1, metadata: {name: d}}
---
apiVersion: admissionregistration.k8s.io/v1beta1
kind: MutatingWebhookConfigurationList
items:
- {metadata: {name: e}}
---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfigurationList
items:
- {metadata: {name: f}, externalAdmissionHooks: [{name: g}]}
---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfigurationList
items:
- {metadata: {name: h}}
- {metadata: {name: i}, initializers: [{name: j}]}
`,
			objects: []string{
				"ValidatingWebhookConfiguration/a@5", "MutatingWebhookConfiguration/c@9", "MutatingWebhookConfiguration/e@17", "InitializerConfiguration/h@27",
			},
			problems: []string{
				`f.yaml:8: ValidatingWebhookConfiguration "b": items[1].webhooks[0].name: Invalid value: "short": should be a domain with at least three segments separated by dots`,
				`f.yaml:8: ValidatingWebhookConfiguration "b": items[1].webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun`,
				`f.yaml:8: ValidatingWebhookConfiguration "b": items[1].webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1`,
				`f.yaml:12: ValidatingWebhookConfiguration "d": items[3].apiVersion: ValidatingWebhookConfiguration of v1 is not read: it is a manifest, and no policy or other configuration: ` +
					"`portcullis review -f PATH` judges manifests",
				`f.yaml:22: ExternalAdmissionHookConfiguration "f": items[0].externalAdmissionHooks[0].name: Invalid value: "g": should be a domain with at least three segments separated by dots`,
				`f.yaml:28: InitializerConfiguration "i": items[1].initializers[0].name: Invalid value: "j": should be a domain with at least three segments separated by dots`,
			},
		},
		{
			name:     "An unknown field of a List is refused with the whole List.",
			data:     "apiVersion: v1\nkind: List\nitem: []\n",
			objects:  []string{},
			problems: []string{`f.yaml:3: List: item: unknown field; did you mean "items"?`},
		},
		{
			name: "An unknown field is named with its line; case matters.",
			data: strings.Replace(strings.Replace(goodHook, "sideEffects", "SideEffects", 1), "apiGroups", "apiGroup", 1), objects: []string{},
			problems: []string{
				`f.yaml:8: ValidatingWebhookConfiguration "imagepolicy": webhooks[0].SideEffects: unknown field; did you mean "sideEffects"?`,
				`f.yaml:10: ValidatingWebhookConfiguration "imagepolicy": webhooks[0].rules[0].apiGroup: unknown field; did you mean "apiGroups"?`,
			},
		},
		{
			name: "A field that stands twice is refused, in YAML and in JSON.",
			data: goodHook + "  sideEffects: None\n---\n" +
				"{\"apiVersion\": \"portcullis.dev/v1\", \"kind\": \"Cluster\",\n\"metadata\": {\"name\": \"a\",\n\"name\": \"a\"}, \"spec\": {}}\n",
			objects: []string{},
			problems: []string{
				`f.yaml:11: ValidatingWebhookConfiguration "imagepolicy": webhooks[0].sideEffects: duplicate field: it stands on line 8 already`,
				`f.yaml:15: Cluster "a": metadata.name: duplicate field`,
			},
		},
		{
			name: "A wrong type is named with its place in lists.",
			data: goodHook + "- name: b.example.com\n  timeoutSeconds: soon\n", objects: []string{},
			problems: []string{
				`f.yaml:12: ValidatingWebhookConfiguration "imagepolicy": webhooks[1].timeoutSeconds: wrong type: it is a string, and must be a whole number (int32)`,
			},
		},
		{
			name: "A mapping where a list belongs is a wrong type.",
			data: strings.Replace(goodHook, "[CREATE]", "{a: b}", 1), objects: []string{},
			problems: []string{
				`f.yaml:10: ValidatingWebhookConfiguration "imagepolicy": webhooks[0].rules[0].operations: wrong type: it is a mapping, and must be a list`,
			},
		},
		{
			name: "A null in a list of our group is a fault, and in one of Kubernetes an empty text.",
			data: `{apiVersion: portcullis.dev/v1, kind: Role, metadata: {name: a}, spec: {role: viewer, identities: [ann, null]}}
---
apiVersion: portcullis.dev/v1
kind: ValidatingHookPolicyBinding
metadata: {name: b}
spec:
  policyName: b
  validationActions: [Deny]
  matchResources:
    resourceRules:
    - {apiGroups: [null, null], apiVersions: [v1], operations: [CREATE], resources: [pods]}
`,
			objects: []string{}, problems: []string{
				`f.yaml:1: Role "a": spec.identities[1]: null is no item of a list: remove it, or write a value`,
				`f.yaml:11: ValidatingHookPolicyBinding "b": spec.matchResources.resourceRules[0].apiGroups[0]: null is no item of a list: remove it, or write a value`,
			},
		},
		{
			name: "A placeholder for a caBundle is not base64.",
			data: goodHook + "- name: b.example.com\n  clientConfig:\n    url: https://example.com/\n    caBundle: <omitted>\n", objects: []string{},
			problems: []string{
				`f.yaml:14: ValidatingWebhookConfiguration "imagepolicy": webhooks[1].clientConfig.caBundle: not base64: ` +
					`illegal base64 data at input byte 0: put the CA certificates here as PEM in base64`,
			},
		},
		{
			name: "Every rule that Kubernetes' validation finds broken is on its line.",
			data: goodHook + "- name: short\n  admissionReviewVersions: [v1]\n  sideEffects: Some\n  timeoutSeconds: 31\n", objects: []string{},
			problems: []string{
				`f.yaml:11: ValidatingWebhookConfiguration "imagepolicy": webhooks[1].name: Invalid value: "short": should be a domain with at least three segments separated by dots`,
				`f.yaml:13: ValidatingWebhookConfiguration "imagepolicy": webhooks[1].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`,
				`f.yaml:14: ValidatingWebhookConfiguration "imagepolicy": webhooks[1].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds`,
			},
		},
		{
			name: "A clientConfig with a caBundle alone is not empty.",
			data: goodHook + "  clientConfig: {caBundle: Cg==}\n", objects: []string{},
			problems: []string{
				`f.yaml:11: ValidatingWebhookConfiguration "imagepolicy": webhooks[0].clientConfig: Required value: exactly one of url or service is required`,
			},
		},
		{
			name: "A name cannot be generated, and what the API server sets is not for others.",
			data: strings.Replace(goodHook, "  name: imagepolicy\n", "  generateName: x\n  resourceVersion: \"1\"\n", 1), objects: []string{},
			problems: []string{
				`f.yaml:3: ValidatingWebhookConfiguration: metadata.name: Required value: generateName alone is not enough: a document keeps its name`,
				`f.yaml:3: ValidatingWebhookConfiguration: metadata.name: Required value: name or generateName is required`,
				`f.yaml:5: ValidatingWebhookConfiguration: metadata.resourceVersion: Forbidden: must not be set on an object to be created: remove it`,
			},
		},
		{
			name: "Bad syntax costs its document alone and is named with its line.",
			data: goodCluster + "---\na: b\n c: d\n---\n" + goodRoute, objects: []string{"Cluster/prod-1@1", "HookRoute/imagepolicy@12"},
			problems: []string{`f.yaml:10: not valid YAML: mapping values are not allowed in this context`},
		},
		{
			name: "What is no mapping is no document.",
			data: "- a\n---\njust text\n", objects: []string{},
			problems: []string{
				"f.yaml:1: wrong type: it is a list, and must be a mapping",
				"f.yaml:3: wrong type: it is a string, and must be a mapping",
			},
		},
		{
			name: "A document must say what it is.",
			data: "metadata: {name: a}\n---\nkind: Cluster\n---\napiVersion: [v1]\nkind: Cluster\n", objects: []string{},
			problems: []string{
				`f.yaml:1: "a": kind: Required value: ` + inReference,
				"f.yaml:3: Cluster: apiVersion: Required value: " + inReference,
				"f.yaml:5: Cluster: apiVersion: wrong type: it is a list, and must be a string",
			},
		},
		{
			name: "Kinds that are not read are refused.",
			data: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\napiVersion: admissionregistration.k8s.io/v1beta2\nkind: ValidatingWebhookConfiguration\n" +
				"---\napiVersion: admissionregistration.k8s.io/v2\nkind: ValidatingWebhookConfigurationList\n",
			objects: []string{},
			problems: []string{
				`f.yaml:1: Pod "p": apiVersion: Pod of v1 is not read: it is a manifest, and no policy or other configuration: ` +
					"`portcullis review -f PATH` judges manifests",
				"f.yaml:5: ValidatingWebhookConfiguration: apiVersion: ValidatingWebhookConfiguration of admissionregistration.k8s.io/v1beta2 is not read" +
					`; did you mean "ValidatingWebhookConfiguration of admissionregistration.k8s.io/v1"?`,
				"f.yaml:8: ValidatingWebhookConfigurationList: apiVersion: ValidatingWebhookConfigurationList of admissionregistration.k8s.io/v2 is not read: " + inReference,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects, problems := decode("f.yaml", []byte(tc.data))
			if diff := cmp.Diff(tc.objects, names(objects)); diff != "" {
				t.Error("objects (-want +got):\n" + diff)
			}
			if tc.problems == nil {
				tc.problems = []string{}
			}
			if diff := cmp.Diff(tc.problems, lines(problems)); diff != "" {
				t.Error("problems (-want +got):\n" + diff)
			}
		})
	}
}

func TestMisspeltFieldsAndKindsAreSuggested(t *testing.T) {
	const head = "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: a}\n"
	for data, want := range map[string]string{
		head + "spec: {configuration: a, steam: {}}": `spec.steam: unknown field; did you mean "stream"?`,
		head + "spce: {}":                                                           `spce: unknown field; did you mean "spec"?`,
		strings.Replace(head, "name", "naem", 1):                                    `metadata.naem: unknown field; did you mean "name"?`,
		head + "spec: {configuration: a, hedge: {aftr: 1s}}":                        `spec.hedge.aftr: unknown field; did you mean "after"?`,
		head + "spec: {configuration: a, qqqqqqqq: 1}":                              "spec.qqqqqqqq: unknown field",
		strings.Replace(head, "HookRoute", "HookRoutes", 1):                         `did you mean "HookRoute"?`,
		strings.Replace(head, "HookRoute", "hookroute", 1):                          `did you mean "HookRoute"?`,
		strings.Replace(head, "dev/v1", "dev/v1beta1", 1):                           `did you mean "HookRoute of portcullis.dev/v1"?`,
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a}": "`portcullis review -f PATH` judges manifests",
	} {
		_, problems := decode("f.yaml", []byte(data))
		if all := strings.Join(lines(problems), "\n") + "\n"; !strings.Contains(all, want+"\n") {
			t.Errorf("%s:\n%s\nwant %q", data, all, want)
		}
	}
}

func TestDefaultsAreThoseOfTheVersion(t *testing.T) {
	objects, problems := decode("f.yaml", []byte(goodHook))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	hook := objects[0].Validating.Webhooks[0]
	if *hook.FailurePolicy != admissionregistrationv1.Fail || *hook.MatchPolicy != admissionregistrationv1.Equivalent ||
		*hook.TimeoutSeconds != 10 || hook.NamespaceSelector == nil || hook.ObjectSelector == nil ||
		*hook.Rules[0].Scope != admissionregistrationv1.AllScopes {
		t.Errorf("not defaulted: %+v", hook)
	}
	if hook.ClientConfig.URL != nil {
		t.Errorf("the empty clientConfig was filled: %s", *hook.ClientConfig.URL)
	}
}

func TestOurKindsAreRead(t *testing.T) {
	objects, problems := decode("f.yaml", []byte(goodRoute+"---\n"+goodCluster))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	route := objects[0].Route.Spec
	if route.Stream == nil || route.Deadline() != 250*time.Millisecond || route.Hosts[0] != "spiffe://mesh/imagepolicy" {
		t.Errorf("route %+v", route)
	}
	if got := objects[1].Cluster.Spec.Namespaces.Static["default"]["env"]; got != "dev" {
		t.Errorf("label %q", got)
	}
}

func TestTheDigestOfAnObjectIsThatOfItsMeaning(t *testing.T) {
	digest := func(data string) string {
		objects, problems := decode("f.yaml", []byte(data))
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return objects[0].Digest
	}
	if digest(goodHook) != digest("# comment\n"+strings.Replace(goodHook, "sideEffects: None", "failurePolicy: Fail\n  sideEffects: 'None'", 1)) {
		t.Error("a comment, quotes and a default that is written out change the digest")
	}
	if digest(goodHook) == digest(strings.Replace(goodHook, "pods", "services", 1)) {
		t.Error("another rule does not change the digest")
	}
}

func TestAnItemOfAListOfOneKindMeansWhatADocumentOfItsOwnDoes(t *testing.T) {
	const kind, body = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration", "{metadata: {name: a}}"
	alone := decodeOne(t, kind+"\nmetadata: {name: a}\n")
	item := decodeOne(t, kind+"List\nitems: ["+body+"]\n")
	if alone.Digest != item.Digest || alone.APIVersion != item.APIVersion || alone.Key != item.Key {
		t.Errorf("%+v and %+v", alone, item)
	}
}

func TestLimitsOfFiles(t *testing.T) {
	citest.Sequential(t)
	const small = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {}\n---\n"
	pad := func(n int) string { return "# " + strings.Repeat("x", n-3) + "\n" }
	for _, tc := range []struct {
		name    string
		data    string
		objects int
		problem string
	}{
		{name: "A file of MaxFileBytes is read.", data: small + strings.Repeat(pad(1<<20), 15) + pad(1<<20-len(small)), objects: 1},
		{
			name: "A larger file is not.", data: small + strings.Repeat(pad(1<<20), 16),
			problem: fmt.Sprintf("f.yaml: the file has %d bytes, and at most 16777216 are read: split it", 16<<20+len(small)),
		},
		{name: "A document of MaxDocumentBytes is read.", data: small[:len(small)-4] + pad(MaxDocumentBytes-len(small)+4), objects: 1},
		{
			name: "A larger document is not.", data: small[:len(small)-4] + pad(MaxDocumentBytes-len(small)+5),
			problem: "f.yaml:1: the document has 3145729 bytes, and at most 3145728 are read",
		},
		{name: "MaxDocuments documents are read.", data: strings.Repeat(small, MaxDocuments), objects: MaxDocuments},
		{
			name: "One more is not.", data: strings.Repeat(small, MaxDocuments+2), objects: MaxDocuments,
			problem: "f.yaml: the file has more than 5000 documents: split it",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects, problems := decode("f.yaml", []byte(tc.data))
			if len(objects) != tc.objects {
				t.Errorf("%d objects, want %d", len(objects), tc.objects)
			}
			if got := strings.Join(lines(problems), "\n"); got != tc.problem {
				t.Errorf("problems %q, want %q", got, tc.problem)
			}
		})
	}
}

func TestAliasesAndMergesAreFollowed(t *testing.T) {
	const data = `apiVersion: portcullis.dev/v1
kind: Cluster
metadata:
  name: a
  labels: &labels {app: x}
  annotations:
    <<: *labels
    bad key!: z
spec: {}
`
	_, problems := decode("f.yaml", []byte(data))
	if len(problems) != 1 || problems[0].Line != 6 || problems[0].Field != "metadata.annotations" {
		t.Errorf("problems %q", lines(problems))
	}
}

// TestTheExamplesOfTheManualsAreValid reads the examples that the manuals mark as yaml; they mark documents of others as
// yml.
func TestTheExamplesOfTheManualsAreValid(t *testing.T) {
	for _, page := range []string{
		"README.md", "docs/configuration.md", "docs/configuration-reference.md", "docs/hosts.md", "docs/migrating.md", "examples/python/README.md",
	} {
		manual, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page)))
		if err != nil {
			t.Fatal(err)
		}
		examples := strings.Split(string(manual), "```yaml\n")[1:]
		if len(examples) == 0 {
			t.Errorf("%s has no examples", page)
		}
		for _, example := range examples {
			example, _, _ = strings.Cut(example, "```\n")
			objects, problems := decode("example.yaml", []byte(example))
			if len(objects) == 0 || len(problems) > 0 {
				t.Errorf("%s: %d objects, %q:\n%s", page, len(objects), lines(problems), example)
			}
			if _, problems = Compile("r", objects); problems.Err() != nil {
				t.Errorf("%s: %v", page, problems.Err())
			}
		}
	}
}

// TestTheExamplesAreValid by the validation of Kubernetes, which their own tests do without.
func TestTheExamplesAreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "*", "mesh.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, problems := decode(file, data)
		if len(objects) == 0 || problems.Err() != nil {
			t.Errorf("%d objects, %v", len(objects), problems)
		}
	}
}

// Two names that are no UTF-8 would be read as one.
func TestADocumentIsUTF8(t *testing.T) {
	for name, text := range map[string]string{
		"JSON, bytes in no character":  `{"kind":"Role","metadata":{"name":"a` + "\xff" + `"}}`,
		"JSON, half a surrogate pair":  `{"kind":"Role","metadata":{"name":"a\ud800"}}`,
		"JSON, the name of a field":    `{"kind":"Role","metadata":{"labels":{"` + "\xc3" + `":""}}}`,
		"YAML, bytes in no character":  "kind: Role\nmetadata:\n  name: a\xff\n",
		"YAML, half a surrogate pair":  "kind: Role\nmetadata:\n  name: \"a\\ud800\"\n",
		"YAML, in a comment":           "kind: Role # \xff\n",
		"YAML, JSON below a directive": "%YAML 1.1\n---\n{\"kind\":\"Role\",\"a\":\"\xff\"}",
	} {
		objects, problems := decode("a.yaml", []byte(text))
		if len(objects) > 0 || len(problems) != 1 || problems[0].Code != CodeSyntax || !utf8.ValidString(problems[0].Message) {
			t.Errorf("%s: objects %v, problems %q", name, objects, lines(problems))
		}
	}
}
