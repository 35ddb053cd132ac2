package builtin_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

// corpusPairs are the objects of the corpus that were written in several versions.
func corpusPairs() [][]string {
	return [][]string{
		{"guestbook-frontend.apps-v1.yaml", "guestbook-frontend.apps-v1beta2.yaml", "guestbook-frontend.extensions-v1beta1.yaml"},
		{"cassandra-statefulset.apps-v1.yaml", "cassandra-statefulset.apps-v1beta1.yaml"},
		{"newrelic-daemonset.apps-v1.yaml", "newrelic-daemonset.extensions-v1beta1.yaml"},
		{"nginx-test-ingress.networking-v1.yaml", "nginx-test-ingress.networking-v1beta1.yaml", "nginx-test-ingress.extensions-v1beta1.yaml"},
		{"knative-activator-pdb.policy-v1.yaml", "knative-activator-pdb.policy-v1beta1.yaml"},
		{"prometheusrules-crd.apiextensions-v1.yaml", "prometheusrules-crd.apiextensions-v1beta1.yaml"},
	}
}

// corpusForgotten are the objects of the corpus in versions that are not among our types, and why.
func corpusForgotten() map[string]string {
	return map[string]string{
		"cassandra-petset.apps-v1alpha1.yaml":            "PetSet became StatefulSet in Kubernetes 1.5, before there were webhooks; nothing converts the one into the other",
		"knative-activator-hpa.autoscaling-v2beta1.yaml": "k8s.io/kubernetes v1.36 has no conversion of autoscaling/v2beta1 any more; it was served until 1.24",
		"knative-activator-hpa.autoscaling-v2beta2.yaml": "k8s.io/kubernetes v1.36 has no conversion of autoscaling/v2beta2 any more; it was served until 1.25",
		"psp-restricted.extensions-v1beta1.yaml":         "k8s.io/kubernetes v1.36 has no PodSecurityPolicy any more; extensions/v1beta1 was served until 1.15, policy/v1beta1 until 1.24",
	}
}

// corpusAlone are the objects of the corpus of which no other version is there that could be read.
func corpusAlone() []string {
	return []string{"alertmanagers-crd-large.apiextensions-v1.yaml", "knative-activator-hpa.autoscaling-v2.yaml"}
}

func TestEveryObjectOfTheCorpusIsConvertedOrNamed(t *testing.T) {
	accounted := slices.Concat(slices.Concat(corpusPairs()...), slices.Collect(maps.Keys(corpusForgotten())), corpusAlone())
	slices.Sort(accounted)
	if diff := cmp.Diff(accounted, slices.Sorted(maps.Keys(corpusObjects(t)))); diff != "" {
		t.Errorf("files (-accounted for +there):\n%s", diff)
	}
}

// TestTheCorpusObjectsConvertIntoEachOther compares with the object that the API server writes for a client that asks for the other version.
func TestTheCorpusObjectsConvertIntoEachOther(t *testing.T) {
	objects := corpusObjects(t)
	for _, files := range corpusPairs() {
		for _, from := range files {
			for _, to := range files {
				t.Run(from+" in "+to, func(t *testing.T) {
					own, other := kindIn(t, objects[from]), kindIn(t, objects[to])
					object := asServed(t, string(objects[from]))
					there := convert(t, object, other)
					if want := servedIn(t, objects[from], own, other); string(want) != string(there) {
						t.Errorf("got %s\nwant %s", there, want)
					}
					back := convert(t, there, own)
					equalJSON(t, there, convert(t, back, other))
					if !strings.HasPrefix(from, "cassandra-") { // v1beta1 alone tells an absent status.observedGeneration from 0
						equalJSON(t, object, back)
					}
				})
			}
		}
	}
}

// TestTheCorpusObjectsDifferInWhatTheirAuthorsChanged converts each object into the version of its partners, and has both defaulted there. The
// differences left are the project's own changes of its manifest, and fields whose defaults differ between the versions.
func TestTheCorpusObjectsDifferInWhatTheirAuthorsChanged(t *testing.T) {
	objects := corpusObjects(t)
	defaults := []string{ // of extensions/v1beta1 Deployments, and of the others
		"replace /spec/progressDeadlineSeconds", "replace /spec/revisionHistoryLimit",
		"replace /spec/strategy/rollingUpdate/maxSurge", "replace /spec/strategy/rollingUpdate/maxUnavailable",
	}
	labels := append([]string{"add /metadata/labels"}, defaults...) // extensions/v1beta1 takes them from the template
	ingress := []string{"add /spec/ingressClassName", "replace /spec/rules/0/http/paths/0/pathType"}
	want := map[[2]string][]string{
		{"guestbook-frontend.apps-v1.yaml", "guestbook-frontend.extensions-v1beta1.yaml"}:      defaults,
		{"guestbook-frontend.apps-v1beta2.yaml", "guestbook-frontend.extensions-v1beta1.yaml"}: defaults,
		{"guestbook-frontend.extensions-v1beta1.yaml", "guestbook-frontend.apps-v1.yaml"}:      labels,
		{"guestbook-frontend.extensions-v1beta1.yaml", "guestbook-frontend.apps-v1beta2.yaml"}: labels,
		// v1beta1 updates only on deletion by default, and writes a status.observedGeneration of 0.
		{"cassandra-statefulset.apps-v1.yaml", "cassandra-statefulset.apps-v1beta1.yaml"}: {
			"add /spec/updateStrategy/rollingUpdate", "replace /spec/updateStrategy/type", "add /status/observedGeneration",
		},
		{"cassandra-statefulset.apps-v1beta1.yaml", "cassandra-statefulset.apps-v1.yaml"}: {
			"remove /spec/updateStrategy/rollingUpdate", "replace /spec/updateStrategy/type",
		},
		// Here too, and the manifest has got the type of a volume.
		{"newrelic-daemonset.apps-v1.yaml", "newrelic-daemonset.extensions-v1beta1.yaml"}: {
			"replace /spec/template/spec/volumes/2/hostPath/type", "add /spec/updateStrategy/rollingUpdate", "replace /spec/updateStrategy/type",
		},
		{"newrelic-daemonset.extensions-v1beta1.yaml", "newrelic-daemonset.apps-v1.yaml"}: {
			"replace /spec/template/spec/volumes/2/hostPath/type", "remove /spec/updateStrategy/rollingUpdate", "replace /spec/updateStrategy/type",
		},
		// networking.k8s.io/v1 wants a pathType, and the manifest has got a class.
		{"nginx-test-ingress.networking-v1.yaml", "nginx-test-ingress.networking-v1beta1.yaml"}: ingress,
		{"nginx-test-ingress.networking-v1.yaml", "nginx-test-ingress.extensions-v1beta1.yaml"}: ingress,
		{"nginx-test-ingress.networking-v1beta1.yaml", "nginx-test-ingress.networking-v1.yaml"}: {"remove /spec/ingressClassName", ingress[1]},
		{"nginx-test-ingress.extensions-v1beta1.yaml", "nginx-test-ingress.networking-v1.yaml"}: {"remove /spec/ingressClassName", ingress[1]},
		// The manifest has got other labels, and another budget.
		{"knative-activator-pdb.policy-v1.yaml", "knative-activator-pdb.policy-v1beta1.yaml"}: {
			"add /metadata/labels/app.kubernetes.io~1component", "add /metadata/labels/app.kubernetes.io~1name",
			"add /metadata/labels/app.kubernetes.io~1version", "remove /metadata/labels/serving.knative.dev~1release", "replace /spec/minAvailable",
		},
		{"knative-activator-pdb.policy-v1beta1.yaml", "knative-activator-pdb.policy-v1.yaml"}: {
			"remove /metadata/labels/app.kubernetes.io~1component", "remove /metadata/labels/app.kubernetes.io~1name",
			"remove /metadata/labels/app.kubernetes.io~1version", "add /metadata/labels/serving.knative.dev~1release", "replace /spec/minAvailable",
		},
		// The schema has got a property.
		{"prometheusrules-crd.apiextensions-v1.yaml", "prometheusrules-crd.apiextensions-v1beta1.yaml"}: {
			"replace /spec/validation/openAPIV3Schema/properties/spec/properties/groups/items/description",
			"add /spec/validation/openAPIV3Schema/properties/spec/properties/groups/items/properties/partial_response_strategy",
		},
		{"prometheusrules-crd.apiextensions-v1beta1.yaml", "prometheusrules-crd.apiextensions-v1.yaml"}: {
			"replace /spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/groups/items/description",
			"remove /spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/groups/items/properties/partial_response_strategy",
		},
	}
	for _, files := range corpusPairs() {
		for _, from := range files {
			for _, to := range files {
				converted := convert(t, asServed(t, string(objects[from])), kindIn(t, objects[to]))
				got := differences(t, asServed(t, string(objects[to])), asServed(t, string(converted)))
				if diff := cmp.Diff(want[[2]string{from, to}], got); diff != "" {
					t.Errorf("%s and %s (-want +got):\n%s", from, to, diff)
				}
			}
		}
	}
}

// differences are the operations, without their values, that make of one object another.
func differences(t *testing.T, from, to []byte) []string {
	t.Helper()
	patch, err := conversion.DiffPatch(from, to)
	if err != nil {
		t.Fatal(err)
	}
	var operations []struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}
	if patch != nil {
		if err := json.Unmarshal(patch, &operations); err != nil {
			t.Fatal(err)
		}
	}
	var out []string
	for _, o := range operations {
		out = append(out, o.Op+" "+o.Path)
	}
	return out
}

func TestTheCorpusObjectsThatOurTypesHaveForgottenAreChangedAsJSON(t *testing.T) {
	objects := corpusObjects(t)
	for file, why := range corpusForgotten() {
		object, kind := objects[file], kindIn(t, objects[file])
		c, reasons := counted()
		to := kind
		to.Version = "v1"
		if got, err := c.Convert(object, to); !errors.Is(err, builtin.ErrUnknownKind) || got != nil {
			t.Errorf("%s: got %s, error %v, but %s", file, got, err, why)
		}
		got, changed, err := c.Apply(object, []byte(label))
		if want := apply(t, object, []byte(label)); err != nil || !changed || string(want) != string(got) {
			t.Errorf("%s: got %s, want %s, error %v", file, got, want, err)
		}
		if diff := cmp.Diff([]string{builtin.ReasonUnknownKind}, *reasons); diff != "" {
			t.Errorf("%s: reasons (-want +got):\n%s", file, diff)
		}
	}
}

func TestTheAutoscalerOfTheCorpusComesBackFromTheOtherVersionThatIsLeft(t *testing.T) {
	object := asServed(t, string(corpusObjects(t)["knative-activator-hpa.autoscaling-v2.yaml"]))
	v1, v2 := at(t, "autoscaling/v1 HorizontalPodAutoscaler"), at(t, "autoscaling/v2 HorizontalPodAutoscaler")
	there := convert(t, object, v1)
	if want := servedIn(t, object, v2, v1); string(want) != string(there) {
		t.Errorf("got %s\nwant %s", there, want)
	}
	equalJSON(t, object, convert(t, there, v2))
}
