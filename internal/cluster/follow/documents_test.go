package follow

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// original is a webhook configuration as an API server returns it.
const original = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: cert-manager-webhook
  uid: 8a7d
  resourceVersion: "41"
  generation: 3
  labels: {app.kubernetes.io/managed-by: Helm, argocd.argoproj.io/instance: cert-manager}
  annotations: {cert-manager.io/inject-ca-from-secret: cert-manager/cert-manager-webhook-ca, portcullis.dev/cluster-like: x}
  managedFields: [{manager: helm, operation: Update}]
webhooks:
- name: webhook.cert-manager.io
  clientConfig: {caBundle: Q0E=, service: {name: cert-manager-webhook, namespace: cert-manager, path: /validate, port: 443}}
  rules: [{apiGroups: [cert-manager.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ["*/*"], scope: "*"}]
  matchConditions: [{name: own, expression: "true"}, {name: portcullis.dev-followed, expression: "false"}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  timeoutSeconds: 30
- name: second.cert-manager.io
  clientConfig: {url: "https://hooks.example.com/"}
  matchConditions: [{name: portcullis.dev-followed, expression: "false"}]
  sideEffects: None
  admissionReviewVersions: [v1]
`

// head is the original before its webhooks.
func head() string {
	before, _, _ := strings.Cut(original, "webhooks:")
	return before
}

func read(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(data); err != nil { // with numbers as client-go reads them
		t.Fatal(err)
	}
	return o
}

func mustCopy(t *testing.T, cluster string, o *unstructured.Unstructured) *pair {
	t.Helper()
	p, err := copyOf(cluster, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestACopyIsTheWebhooksAloneAndOfOneCluster(t *testing.T) {
	p := mustCopy(t, "prod-1", read(t, original))
	want := `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: followed.prod-1.cert-manager-webhook, annotations: {portcullis.dev/followed: prod-1/cert-manager-webhook}}
` + strings.TrimPrefix(original, head())
	want = strings.ReplaceAll(want, `[{name: own, expression: "true"}, {name: portcullis.dev-followed, expression: "false"}]`, `[{name: own, expression: "true"}]`)
	want = strings.ReplaceAll(want, `  matchConditions: [{name: portcullis.dev-followed, expression: "false"}]`+"\n", "")
	for _, d := range []struct{ want, got string }{
		{want, string(p.hooks.Manifest)},
		{`
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: followed.prod-1.cert-manager-webhook.validate, annotations: {portcullis.dev/followed: prod-1/cert-manager-webhook}}
spec: {configuration: followed.prod-1.cert-manager-webhook, stage: validate, clusters: [prod-1]}`, string(p.route.Manifest)},
	} {
		var a, b any
		if err := yaml.Unmarshal([]byte(d.want), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(d.got), &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Error("(-want +got):\n" + diff)
		}
	}
	for _, d := range []Document{p.hooks, p.route} {
		objects, problems := configtest.Decode("copy.json", d.Manifest)
		if problems.Err() != nil || len(objects) != 1 || objects[0].Key != d.Key {
			t.Errorf("%s is read as %v: %v", d.Key, objects, problems)
		}
	}
}

func TestACopyDoesNotChangeWithTheCondition(t *testing.T) {
	off := read(t, original)
	on := read(t, strings.ReplaceAll(strings.ReplaceAll(original,
		`, {name: portcullis.dev-followed, expression: "false"}`, ""), `  matchConditions: [{name: portcullis.dev-followed, expression: "false"}]`+"\n", ""))
	before, err := off.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if !same(mustCopy(t, "c", off).hooks.Manifest, mustCopy(t, "c", on).hooks.Manifest) {
		t.Error("the condition is in the copy")
	}
	if after, err := off.MarshalJSON(); err != nil || string(after) != string(before) {
		t.Errorf("the original was changed: %s, %v", after, err)
	}
}

func TestOnlyFieldsThatSelectRequestsReshape(t *testing.T) {
	base := mustCopy(t, "c", read(t, original)).hooks.Manifest
	for old, next := range map[string]struct {
		text     string
		reshaped bool
	}{
		"caBundle: Q0E=":             {"caBundle: Q0Ey", false},
		"path: /validate":            {"path: /v2", false},
		"hooks.example.com":          {"other.example.com", false},
		"operations: [CREATE, ":      {"operations: [CREATE, DELETE, ", true},
		"failurePolicy: Fail":        {"failurePolicy: Ignore", true},
		"name: own,":                 {"name: other,", true},
		"- name: second.":            {"- name: third.", true},
		"timeoutSeconds: 30":         {"timeoutSeconds: 10", false},
		"name: cert-manager-webhook": {"name: cert-manager-webhook", false},
	} {
		changed := strings.Replace(original, old, next.text, 1)
		c := mustCopy(t, "c", read(t, changed)).hooks.Manifest
		if got := reshaped(base, c); got != next.reshaped {
			t.Errorf("%s to %s: reshaped %t", old, next.text, got)
		}
		if same(base, c) != (old == next.text) {
			t.Errorf("%s to %s: the same %t", old, next.text, same(base, c))
		}
	}
}

func TestConditionsAreCounted(t *testing.T) {
	for manifest, want := range map[string]Conditions{
		original: Off,
		strings.Replace(original, `, {name: portcullis.dev-followed, expression: "false"}`, "", 1):                                    PartlyOff,
		strings.ReplaceAll(original, `portcullis.dev-followed, expression: "false"`, `portcullis.dev-followed, expression: "1 == 2"`): On,
		strings.ReplaceAll(original, "portcullis.dev-followed", "other"):                                                              On,
		head(): On,
	} {
		webhooks, err := webhooksOf(read(t, manifest))
		if err != nil {
			t.Fatal(err)
		}
		if got := conditionsOf(webhooks); got != want {
			t.Errorf("%s, want %s:\n%s", got, want, manifest)
		}
	}
}

func TestNamesAreThoseOfClusterAndOriginal(t *testing.T) {
	long := strings.Repeat("a", 253-len("followed.c.")-len(".validate"))
	for name, fits := range map[string]bool{long: true, long + "a": false} {
		o := read(t, original)
		o.SetName(name)
		_, err := copyOf("c", o)
		if fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "name") {
			t.Errorf("a name of %d bytes: %v", len(name), err)
		}
	}
	seen := map[config.Key]string{}
	for _, cluster := range []string{"a", "b"} {
		for _, kind := range []string{validatingKind, mutatingKind} {
			hooks, route := copyKeys(cluster, kind, "x")
			for _, k := range []config.Key{hooks, route} {
				if other := seen[k]; other != "" {
					t.Errorf("%s is of %s and of %s/%s", k, other, cluster, kind)
				}
				seen[k] = cluster + "/" + kind
			}
		}
	}
}

func TestPatchesTouchOurConditionAndAnnotationAlone(t *testing.T) {
	o := read(t, original)
	webhooks, err := webhooksOf(o)
	if err != nil {
		t.Fatal(err)
	}
	off, err := offPatch(o, webhooks)
	if err != nil {
		t.Fatal(err)
	}
	const condition = `"matchConditions":[{"expression":"false","name":"portcullis.dev-followed"}]`
	want := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",` +
		`"metadata":{"name":"cert-manager-webhook","resourceVersion":"41","uid":"8a7d"},` +
		`"webhooks":[{` + condition + `,"name":"webhook.cert-manager.io"},{` + condition + `,"name":"second.cert-manager.io"}]}`
	if string(off) != want {
		t.Errorf("off:\n%s, want\n%s", off, want)
	}
	on, err := onPatch(o, webhooks)
	if err != nil {
		t.Fatal(err)
	}
	want = `[{"op":"test","path":"/metadata/resourceVersion","value":"41"},` +
		`{"op":"add","path":"/metadata/annotations/portcullis.dev~1written-again","value":"8a7d/3"},` +
		`{"op":"remove","path":"/webhooks/0/matchConditions/1"},{"op":"remove","path":"/webhooks/1/matchConditions/0"}]`
	if string(on) != want {
		t.Errorf("on:\n%s, want\n%s", on, want)
	}
}
