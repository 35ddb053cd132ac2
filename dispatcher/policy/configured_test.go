package policy_test

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
)

// limits are params by NAME or NAMESPACE/NAME.
func limits(names ...string) (all []*unstructured.Unstructured) {
	for _, text := range names {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(limitParams)
		namespace, name, namespaced := strings.Cut(text, "/")
		if !namespaced {
			namespace, name = "", text
		}
		o.SetNamespace(namespace)
		o.SetName(name)
		all = append(all, o)
	}
	return all
}

// many are so many limits.
func many(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("l%d", i))
	}
	return names
}

// TestParamsThatContradictEachOther fail the policy in their clusters alone, and only if they are of one cluster.
func TestParamsThatContradictEachOther(t *testing.T) {
	for name, test := range map[string]struct {
		sets   []policy.ParamSet
		broken string // clusters
		want   string
	}{
		"in other clusters": {
			[]policy.ParamSet{{Clusters: []string{"a"}, Objects: limits("x")}, {Clusters: []string{"b"}, Objects: limits("x", "y")}}, "", "",
		},
		"in other namespaces": {[]policy.ParamSet{{Objects: limits("n/x", "m/x")}, {Clusters: []string{"b"}, Objects: limits("n/y")}}, "", ""},
		"twice in a document": {[]policy.ParamSet{{Clusters: []string{"a"}, Objects: limits("x", "y", "x")}}, "a", "an object stands there twice"},
		"twice in a cluster": {
			[]policy.ParamSet{{Clusters: []string{"a", "b"}, Objects: limits("x")}, {Clusters: []string{"b", "c"}, Objects: limits("x")}}, "b", "an object stands there twice",
		},
		"twice for all": {[]policy.ParamSet{{Objects: limits("x")}, {Objects: limits("x")}, {Clusters: []string{"a"}, Objects: limits("y")}}, "abcd", "an object stands there twice"},
		"for all and in a cluster": {
			[]policy.ParamSet{{Objects: limits("x")}, {Clusters: []string{"b"}, Objects: limits("y", "x")}}, "b", "an object stands there twice",
		},
		"namespaces in a cluster": {
			[]policy.ParamSet{{Clusters: []string{"a"}, Objects: limits("x", "n/y")}}, "a", "one object of a kind has a namespace and another has none",
		},
		"namespaces for all and in a cluster": {
			[]policy.ParamSet{{Objects: limits("n/x")}, {Clusters: []string{"b"}, Objects: limits("y")}}, "b", "one object of a kind has a namespace and another has none",
		},
		"the most":         {[]policy.ParamSet{{Objects: limits(many(policy.MaxConfigured - 1)...)}, {Clusters: []string{"b"}, Objects: limits("x")}}, "", ""},
		"one more than it": {[]policy.ParamSet{{Objects: limits(many(policy.MaxConfigured)...)}, {Clusters: []string{"b"}, Objects: limits("x")}}, "b", "a cluster has 1001 objects of one kind, and at most 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Limit"}
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			b.Spec.ParamRef = &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}}
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}

			params, conflicts := policy.NewParams(test.sets)

			if (len(conflicts) > 0) != (test.want != "") || len(conflicts) > 0 && (conflicts[0].Reason != test.want || conflicts[0].Objects[0] == conflicts[0].Objects[1]) {
				t.Fatalf("conflicts %+v, want %q", conflicts, test.want)
			}
			judged := policy.NewCompiler().Compile(p).WithParams(params).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{b})
			broken := ""
			for _, cluster := range []string{"a", "b", "c", "d"} {
				request := benchRequest()
				request.Cluster, request.Namespace = cluster, "n"
				v, err := judged.Judge(t.Context(), match.NewAttributes(request, match.Unknown{}), nil, nil)
				switch said := fmt.Sprint(err); {
				case strings.HasSuffix(said, "the params of kind Limit: the configuration contradicts itself: "+test.want):
					broken += cluster
				case err != nil && !strings.HasSuffix(said, "its objects are unknown: give the Cluster document spec.kubeconfig or spec.bridge"):
					t.Errorf("cluster %s: %v, %v", cluster, v, err)
				}
			}
			if broken != test.broken {
				t.Errorf("broken in %q, want %q", broken, test.broken)
			}
		})
	}
}

// TestAPolicyAsksForParamsOfClustersThatTheConfigurationLacks alone.
func TestAPolicyAsksForParamsOfClustersThatTheConfigurationLacks(t *testing.T) {
	p := &admissionregistrationv1.MutatingAdmissionPolicy{Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Limit"}, MatchConstraints: &admissionregistrationv1.MatchResources{},
	}}
	definition := policy.NewCompiler().CompileMutating(p)
	somewhere, _ := policy.NewParams([]policy.ParamSet{{Clusters: []string{"a"}, Objects: limits("x")}})
	everywhere, _ := policy.NewParams([]policy.ParamSet{{Objects: limits("x")}})
	for params, want := range map[*policy.Params]string{nil: "a b ", somewhere: "b ", everywhere: ""} {
		asks := ""
		for _, cluster := range []string{"a", "b"} {
			if len(definition.WithParams(params).Bind(nil).Asks(cluster)) > 0 {
				asks += cluster + " "
			}
		}
		if asks != want {
			t.Errorf("it asks %q, want %q", asks, want)
		}
	}
}
