package builtin_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

// The equivalent kinds of deployments and of their scale, as the proposal lists them, and today's kinds with several
// versions.
func families() [][]string {
	return [][]string{
		{"apps/v1 Deployment", "apps/v1beta2 Deployment", "apps/v1beta1 Deployment", "extensions/v1beta1 Deployment"},
		{"autoscaling/v1 Scale", "apps/v1beta2 Scale", "apps/v1beta1 Scale", "extensions/v1beta1 Scale"},
		{"apps/v1beta1 DeploymentRollback", "extensions/v1beta1 DeploymentRollback"},
		{"policy/v1 Eviction", "policy/v1beta1 Eviction"},
		{"apps/v1 StatefulSet", "apps/v1beta2 StatefulSet", "apps/v1beta1 StatefulSet"},
		{"apps/v1 DaemonSet", "apps/v1beta2 DaemonSet", "extensions/v1beta1 DaemonSet"},
		{"apps/v1 ReplicaSet", "apps/v1beta2 ReplicaSet", "extensions/v1beta1 ReplicaSet"},
		{"autoscaling/v2 HorizontalPodAutoscaler", "autoscaling/v1 HorizontalPodAutoscaler"},
		{"policy/v1 PodDisruptionBudget", "policy/v1beta1 PodDisruptionBudget"},
		{"networking.k8s.io/v1 Ingress", "networking.k8s.io/v1beta1 Ingress", "extensions/v1beta1 Ingress"},
		{"networking.k8s.io/v1 NetworkPolicy", "extensions/v1beta1 NetworkPolicy"},
		{"batch/v1 CronJob", "batch/v1beta1 CronJob"},
		{"v1 Event", "events.k8s.io/v1 Event", "events.k8s.io/v1beta1 Event"},
		{"flowcontrol.apiserver.k8s.io/v1 FlowSchema", "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema", "flowcontrol.apiserver.k8s.io/v1beta1 FlowSchema"},
		{"resource.k8s.io/v1 ResourceClaim", "resource.k8s.io/v1beta2 ResourceClaim", "resource.k8s.io/v1beta1 ResourceClaim"},
		{"apiextensions.k8s.io/v1 CustomResourceDefinition", "apiextensions.k8s.io/v1beta1 CustomResourceDefinition"},
	}
}

// samples are objects in the first version of their family.
func samples() map[string]string {
	return map[string]string{
		"Deployment":              `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		"Scale":                   `{"metadata":{"name":"d"},"spec":{"replicas":3},"status":{"replicas":2,"selector":"a=b,c=d"}}`,
		"DeploymentRollback":      `{"name":"d","updatedAnnotations":{"a":"b"},"rollbackTo":{"revision":2}}`,
		"Eviction":                `{"metadata":{"name":"p","namespace":"n"},"deleteOptions":{"gracePeriodSeconds":5,"dryRun":["All"],"preconditions":{"uid":"u"}}}`,
		"StatefulSet":             `{"metadata":{"name":"s"},"spec":{"serviceName":"s","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		"DaemonSet":               `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		"ReplicaSet":              `{"metadata":{"name":"r"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		"HorizontalPodAutoscaler": `{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d"},"metrics":[{"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"1Gi"}}},{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}],"behavior":{"scaleDown":{"stabilizationWindowSeconds":60}}}}`,
		"PodDisruptionBudget":     `{"metadata":{"name":"p"},"spec":{"maxUnavailable":"10%","selector":{"matchLabels":{"a":"b"}}}}`,
		"Ingress":                 `{"metadata":{"name":"i"},"spec":{"rules":[{"host":"h","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"s","port":{"name":"http"}}}}]}}]}}`,
		"NetworkPolicy":           `{"metadata":{"name":"n"},"spec":{"podSelector":{},"policyTypes":["Ingress"],"ingress":[{"from":[{"namespaceSelector":{}}],"ports":[{"port":80}]}]}}`,
		"CronJob":                 `{"metadata":{"name":"c"},"spec":{"schedule":"* * * * *","timeZone":"Etc/UTC","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`,
		"Event":                   `{"metadata":{"name":"e","namespace":"n"},"involvedObject":{"kind":"Pod","namespace":"n","name":"p"},"reason":"r","message":"m","type":"Normal","firstTimestamp":"2024-01-02T03:04:05Z","lastTimestamp":"2024-01-02T03:04:05Z","count":2,"source":{"component":"c"},"eventTime":null,"reportingComponent":"","reportingInstance":""}`,
		"FlowSchema":              `{"metadata":{"name":"f"},"spec":{"priorityLevelConfiguration":{"name":"p"},"matchingPrecedence":5}}`,
		"ResourceClaim":           `{"metadata":{"name":"r","namespace":"n"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","count":2}}]}}}`,
		"CustomResourceDefinition": `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},` +
			`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object"}}}},"subresources":{"status":{}}}]}}`,
	}
}

// inVersion is a sample of a kind as an API server writes it.
func inVersion(t testing.TB, kind schema.GroupVersionKind) []byte {
	t.Helper()
	apiVersion, name := kind.ToAPIVersionAndKind()
	return asServed(t, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, apiVersion, name)+samples()[kind.Kind][1:])
}

func convert(t testing.TB, raw []byte, to schema.GroupVersionKind) []byte {
	t.Helper()
	got, err := builtin.New(builtin.Options{}).Convert(raw, to)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAnObjectIsTheSameInEveryEquivalentVersion(t *testing.T) {
	for _, family := range families() {
		first := at(t, family[0])
		object := inVersion(t, first)
		for _, kind := range family {
			t.Run(strings.ReplaceAll(kind, "/", "."), func(t *testing.T) {
				there := convert(t, object, at(t, kind))
				if !bytes.Contains(there, fmt.Appendf(nil, `"apiVersion":%q`, at(t, kind).GroupVersion())) {
					t.Errorf("not in %s: %s", kind, there)
				}
				equalJSON(t, object, convert(t, there, first))
				for _, other := range family[1:] { // not only by way of the first
					equalJSON(t, convert(t, object, at(t, other)), convert(t, there, at(t, other)))
				}
			})
		}
	}
}

func TestVersionsDifferWhereTheyShould(t *testing.T) {
	cases := map[string]struct{ from, to, has string }{
		"metrics of an HPA are an annotation in v1":       {"autoscaling/v2 HorizontalPodAutoscaler", "autoscaling/v1 HorizontalPodAutoscaler", `"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\"`},
		"cpu of an HPA has a field of its own in v1":      {"autoscaling/v2 HorizontalPodAutoscaler", "autoscaling/v1 HorizontalPodAutoscaler", `"targetCPUUtilizationPercentage":80`},
		"behavior of an HPA is an annotation in v1":       {"autoscaling/v2 HorizontalPodAutoscaler", "autoscaling/v1 HorizontalPodAutoscaler", `"autoscaling.alpha.kubernetes.io/behavior"`},
		"the backend of an Ingress is flat in v1beta1":    {"networking.k8s.io/v1 Ingress", "networking.k8s.io/v1beta1 Ingress", `"backend":{"serviceName":"s","servicePort":"http"}`},
		"the backend of an Ingress is flat in extensions": {"networking.k8s.io/v1 Ingress", "extensions/v1beta1 Ingress", `"backend":{"serviceName":"s","servicePort":"http"}`},
		"the selector of a Scale is a map in old apps":    {"autoscaling/v1 Scale", "apps/v1beta1 Scale", `"selector":{"a":"b","c":"d"}`},
		"an involved object is regarded in events.k8s.io": {"v1 Event", "events.k8s.io/v1 Event", `"regarding":{"kind":"Pod","namespace":"n","name":"p"}`},
		"CRD v1beta1 has the schema at the top":           {"apiextensions.k8s.io/v1 CustomResourceDefinition", "apiextensions.k8s.io/v1beta1 CustomResourceDefinition", `"validation":{"openAPIV3Schema":`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := convert(t, inVersion(t, at(t, tc.from)), at(t, tc.to))
			if !bytes.Contains(got, []byte(tc.has)) {
				t.Errorf("no %s in %s", tc.has, got)
			}
		})
	}
}

func TestAnObjectInTheVersionAlreadyIsReturnedItself(t *testing.T) {
	raw := []byte(`{"apiVersion":"example.com/v1","kind":"Widget","unknown":1.50}`)
	if got := convert(t, raw, at(t, "example.com/v1 Widget")); &got[0] != &raw[0] {
		t.Errorf("got %s", got)
	}
}

func TestObjectsOfSubresourcesWithOneVersionAreChangedAsTheirTypes(t *testing.T) {
	for object, patch := range map[string]string{
		`{"kind":"Binding","apiVersion":"v1","metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`:                               `[{"op":"replace","path":"/target/name","value":"m"}]`,
		`{"kind":"PodExecOptions","apiVersion":"v1","stdin":true,"command":["sh"]}`:                                                      `[{"op":"replace","path":"/command","value":["true"]}]`,
		`{"kind":"PodProxyOptions","apiVersion":"v1","path":"/a"}`:                                                                       `[{"op":"replace","path":"/path","value":"/b"}]`,
		`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"audiences":["a"],"boundObjectRef":null}}`: `[{"op":"replace","path":"/spec/audiences/0","value":"b"}]`,
	} {
		c, reasons := counted()
		served := asServed(t, object)
		got, changed, err := c.Apply(served, []byte(patch))
		if err != nil || !changed || len(*reasons) > 0 {
			t.Fatalf("%s: changed %v, error %v, not known %v", object, changed, err, *reasons)
		}
		equalJSON(t, asServed(t, string(apply(t, served, []byte(patch)))), got)
		equalJSON(t, served, convert(t, served, kindIn(t, served)))
	}
}

func TestTheCPUMetricOfAnHPAComesLastWhenItComesFromV1(t *testing.T) {
	v1, v2 := at(t, "autoscaling/v1 HorizontalPodAutoscaler"), at(t, "autoscaling/v2 HorizontalPodAutoscaler")
	object := inVersion(t, v2)
	turned := apply(t, object, []byte(`[{"op":"move","from":"/spec/metrics/1","path":"/spec/metrics/0"}]`))
	equalJSON(t, object, convert(t, convert(t, turned, v1), v2))
}

func TestWhatOurTypesDoNotHoldIsNotConverted(t *testing.T) {
	cases := map[string]struct {
		object, to string
		want       string
	}{
		"a version that is gone": {
			`{"apiVersion":"autoscaling/v2beta2","kind":"HorizontalPodAutoscaler"}`, "autoscaling/v2 HorizontalPodAutoscaler",
			"convert to autoscaling/v2 HorizontalPodAutoscaler: builtin: unknown kind autoscaling/v2beta2 HorizontalPodAutoscaler: it is not among the built-in types of Kubernetes v1.36",
		},
		"into a version that is gone": {
			`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler"}`, "autoscaling/v2beta2 HorizontalPodAutoscaler",
			"convert autoscaling/v2 HorizontalPodAutoscaler to autoscaling/v2beta2 HorizontalPodAutoscaler: builtin: unknown kind autoscaling/v2beta2 HorizontalPodAutoscaler: it is not among the built-in types of Kubernetes v1.36",
		},
		"into an internal version": {
			`{"apiVersion":"apps/v1","kind":"Deployment"}`, "apps/__internal Deployment",
			"convert apps/v1 Deployment to apps/__internal Deployment: builtin: unknown kind apps/__internal Deployment: it is not among the built-in types of Kubernetes v1.36",
		},
		"a custom resource": {
			`{"apiVersion":"example.com/v1","kind":"Widget"}`, "example.com/v2 Widget",
			"convert to example.com/v2 Widget: builtin: unknown kind example.com/v1 Widget: it is not among the built-in types of Kubernetes v1.36",
		},
		"nobody knows what": {
			`{"metadata":{}}`, "apps/v1 Deployment",
			"convert to apps/v1 Deployment: builtin: unknown kind: the object lacks apiVersion or kind",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := builtin.New(builtin.Options{}).Convert([]byte(tc.object), at(t, tc.to))
			if !errors.Is(err, builtin.ErrUnknownKind) || got != nil {
				t.Fatalf("got %s, error %v", got, err)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatCannotBeConvertedIsAnError(t *testing.T) {
	for name, object := range map[string]string{
		"another kind": pod,
		"no object":    `[]`,
		"no JSON":      `{"kind":"Deployment","apiVersion":"apps/v1beta1"`,
		"undecodable":  `{"kind":"Deployment","apiVersion":"apps/v1beta1","spec":[]}`,
	} {
		got, err := builtin.New(builtin.Options{}).Convert([]byte(object), at(t, "apps/v1 Deployment"))
		if err == nil || got != nil || errors.Is(err, builtin.ErrUnknownKind) {
			t.Errorf("%s: got %s, error %v", name, got, err)
		}
	}
}

func TestAnObjectOfANewerClusterLosesNothingOnTheWayToAHookInAnotherVersionAndBack(t *testing.T) {
	c, reasons := counted()
	v1, v2 := at(t, "autoscaling/v1 HorizontalPodAutoscaler"), at(t, "autoscaling/v2 HorizontalPodAutoscaler")
	object := apply(t, inVersion(t, v2), []byte(`[{"op":"add","path":"/spec/turbo","value":1.50},{"op":"add","path":"/spec/metrics/1/resource/turbo","value":{"level":9007199254740993}}]`))
	view, err := c.Convert(object, v1)
	if err != nil || !bytes.Contains(view, []byte(`"turbo":1.50`)) || !bytes.Contains(view, []byte(`"targetCPUUtilizationPercentage":80`)) {
		t.Fatalf("got %s, error %v", view, err)
	}
	changed, _, err := c.Apply(view, []byte(`[{"op":"replace","path":"/spec/maxReplicas","value":7},{"op":"replace","path":"/spec/targetCPUUtilizationPercentage","value":50}]`))
	if err != nil {
		t.Fatal(err)
	}
	patch := back(t, object, convert(t, view, v2), convert(t, changed, v2))
	equalJSON(t, []byte(`[{"op":"replace","path":"/spec/maxReplicas","value":7},{"op":"replace","path":"/spec/metrics/1/resource/target/averageUtilization","value":50}]`), patch)
	if diff := cmp.Diff([]string{builtin.ReasonUnknownFields, builtin.ReasonUnknownFields}, *reasons); diff != "" { // Convert and Apply
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

// back returns, as a patch, the changes of a hook that saw an object in another version.
func back(t *testing.T, object, seen, changed []byte) []byte {
	t.Helper()
	got, err := conversion.Rebase(object, seen, changed)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := conversion.DiffPatch(object, got)
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

func TestAFieldThatNobodyKnowsStaysWhereItIsIfThereIsSuchAPlaceInTheOtherVersion(t *testing.T) {
	const turbo = `{"level":9007199254740993}`
	cases := map[string]struct {
		from, to string
		path     string // of the field
		there    bool
	}{
		"at the top":                             {"apps/v1 Deployment", "extensions/v1beta1 Deployment", "/turbo", true},
		"in the metadata":                        {"apps/v1 Deployment", "apps/v1beta1 Deployment", "/metadata/turbo", true},
		"in a container":                         {"apps/v1 Deployment", "apps/v1beta1 Deployment", "/spec/template/spec/containers/0/turbo", true},
		"below an empty struct":                  {"apps/v1 Deployment", "extensions/v1beta1 Deployment", "/spec/template/spec/containers/0/resources/turbo", true},
		"of a scale":                             {"autoscaling/v1 Scale", "apps/v1beta2 Scale", "/spec/turbo", true},
		"of a schema that both versions have":    {"apiextensions.k8s.io/v1 CustomResourceDefinition", "apiextensions.k8s.io/v1beta1 CustomResourceDefinition", "/spec/versions/0/turbo", true},
		"of a schema that lies elsewhere":        {"apiextensions.k8s.io/v1 CustomResourceDefinition", "apiextensions.k8s.io/v1beta1 CustomResourceDefinition", "/spec/versions/0/schema/openAPIV3Schema/turbo", false},
		"in a list that is an annotation there":  {"autoscaling/v2 HorizontalPodAutoscaler", "autoscaling/v1 HorizontalPodAutoscaler", "/spec/metrics/0/turbo", false},
		"in a struct that is flat there":         {"networking.k8s.io/v1 Ingress", "networking.k8s.io/v1beta1 Ingress", "/spec/rules/0/http/paths/0/backend/service/turbo", false},
		"by a name that has a meaning there":     {"apps/v1 Deployment", "apps/v1beta1 Deployment", "/spec/rollbackTo", false},
		"by a name that has another type there":  {"networking.k8s.io/v1 Ingress", "extensions/v1beta1 Ingress", "/spec/backend", false},
		"by a name that is in use there already": {"v1 Event", "events.k8s.io/v1 Event", "/deprecatedCount", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := apply(t, inVersion(t, at(t, tc.from)), fmt.Appendf(nil, `[{"op":"add","path":%q,"value":%s}]`, tc.path, turbo))
			c, reasons := counted()
			there, err := c.Convert(object, at(t, tc.to))
			if err != nil || bytes.Contains(there, []byte(turbo)) != tc.there {
				t.Fatalf("got %s, error %v", there, err)
			}
			if tc.there {
				equalJSON(t, there, apply(t, there, fmt.Appendf(nil, `[{"op":"replace","path":%q,"value":%s}]`, tc.path, turbo)))
			} else {
				equalJSON(t, convert(t, inVersion(t, at(t, tc.from)), at(t, tc.to)), there)
			}
			if diff := cmp.Diff([]string{builtin.ReasonUnknownFields}, *reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			// The way back, of a hook that changes something else.
			changed, _, err := c.Apply(there, []byte(`[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`))
			if err != nil {
				t.Fatal(err)
			}
			patch := back(t, object, convert(t, there, at(t, tc.from)), convert(t, changed, at(t, tc.from)))
			if want := `[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`; string(patch) != want {
				t.Errorf("patch %s, want %s", patch, want)
			}
		})
	}
}

func TestAnObjectWithAFieldTwiceIsConvertedWithoutWhatOurTypesDoNotKnow(t *testing.T) {
	c, reasons := counted()
	got, err := c.Convert([]byte(`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a","name":"b","turbo":1},"spec":{}}`), at(t, "apps/v1beta1 Scale"))
	if err != nil {
		t.Fatal(err)
	}
	equalJSON(t, []byte(`{"kind":"Scale","apiVersion":"apps/v1beta1","metadata":{"name":"b"},"spec":{},"status":{"replicas":0}}`), got)
	if diff := cmp.Diff([]string{builtin.ReasonAmbiguous}, *reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestEveryFamilyHasASample(t *testing.T) {
	var names []string
	for _, family := range families() {
		names = append(names, at(t, family[0]).Kind)
	}
	slices.Sort(names)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(samples())), names); diff != "" {
		t.Error(diff)
	}
}
