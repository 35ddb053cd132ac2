package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestTheNamespacesOfBindingsAreSelected compares the selector of random bindings, for all namespaces with two labels, with the bindings one by one. With
// requirements of one operator about one label the selector is exact.
func TestTheNamespacesOfBindingsAreSelected(t *testing.T) {
	operators := []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	}
	namespaces := []labels.Set{{}}
	for _, key := range []string{"a", "b"} {
		for _, n := range slices.Clone(namespaces) {
			for _, value := range []string{"1", "2", "3"} {
				namespaces = append(namespaces, labels.Merge(n, labels.Set{key: value}))
			}
		}
	}
	compiled := policy.NewCompiler().Compile(&admissionregistrationv1.ValidatingAdmissionPolicy{})
	leftOut, exact := 0, 0
	for seed := range uint64(citest.Rounds(3_000, 20_000, 100_000)) {
		random := rand.New(rand.NewPCG(seed, 3))
		operator, simple := operators[random.IntN(len(operators))], random.IntN(3) == 0
		requirement := func() (r metav1.LabelSelectorRequirement) {
			r = metav1.LabelSelectorRequirement{Key: "a", Operator: operator}
			if !simple {
				r.Key, r.Operator = []string{"a", "b"}[random.IntN(2)], operators[random.IntN(len(operators))]
			}
			if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
				r.Values = []string{"1", "2", "3"}[:1+random.IntN(2)]
				random.Shuffle(len(r.Values), func(i, j int) { r.Values[i], r.Values[j] = r.Values[j], r.Values[i] })
			}
			return r
		}
		var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
		var each []labels.Selector
		for range 1 + random.IntN(4) {
			s := &metav1.LabelSelector{}
			for range 1 + random.IntN(3) {
				if s.MatchExpressions = append(s.MatchExpressions, requirement()); simple {
					break
				}
			}
			if !simple && random.IntN(3) == 0 {
				s.MatchLabels = map[string]string{"b": "2"}
			}
			selector, err := metav1.LabelSelectorAsSelector(s)
			if err != nil {
				t.Fatal(err)
			}
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: s}
			bindings, each = append(bindings, b), append(each, selector)
		}

		got := compiled.Bind(bindings).BindingNamespaces()

		all := labels.Everything()
		if got != nil {
			var err error
			if all, err = metav1.LabelSelectorAsSelector(got); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range namespaces {
			selected := slices.ContainsFunc(each, func(s labels.Selector) bool { return s.Matches(n) })
			switch {
			case selected && !all.Matches(n):
				t.Fatalf("seed %d: %s leaves out the namespace with %s, which one of %s selects", seed, all, n, each)
			case !all.Matches(n):
				leftOut++
			case simple && !selected:
				t.Fatalf("seed %d: %s selects the namespace with %s, which none of %s selects", seed, all, n, each)
			}
		}
		if simple {
			exact++
		}
	}
	if leftOut == 0 || exact == 0 {
		t.Errorf("%d namespaces left out, %d exact", leftOut, exact)
	}
}

// TestBindingsWithManyNamespacesAreNotNarrowed has two bindings that select namespaces by their names.
func TestBindingsWithManyNamespacesAreNotNarrowed(t *testing.T) {
	for each, narrowed := range map[int]bool{64: true, 65: false} {
		var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
		for i := range 2 {
			r := metav1.LabelSelectorRequirement{Key: "name", Operator: metav1.LabelSelectorOpIn}
			for n := range each {
				r.Values = append(r.Values, fmt.Sprintf("%d-%d", i, n))
			}
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			b.Spec.MatchResources = &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}},
			}
			bindings = append(bindings, b)
		}

		got := policy.NewCompiler().Compile(&admissionregistrationv1.ValidatingAdmissionPolicy{}).Bind(bindings).BindingNamespaces()

		if (got != nil) != narrowed || narrowed && len(got.MatchExpressions[0].Values) != 2*each {
			t.Errorf("two bindings with %d namespaces each are narrowed to %v", each, got)
		}
	}
}

// TestBindingsWithManyRequirementsAreNarrowedByTheFirst has two bindings whose selectors differ, with one requirement more than count.
func TestBindingsWithManyRequirementsAreNarrowedByTheFirst(t *testing.T) {
	for requirements, want := range map[int]int{7: 7, 8: 8, 9: 8} {
		var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
		for i := range 2 {
			s := &metav1.LabelSelector{}
			for n := range requirements {
				r := metav1.LabelSelectorRequirement{Key: fmt.Sprint(n), Operator: metav1.LabelSelectorOpIn, Values: []string{fmt.Sprint(i)}}
				s.MatchExpressions = append(s.MatchExpressions, r)
			}
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: s}
			bindings = append(bindings, b)
		}

		got := policy.NewCompiler().Compile(&admissionregistrationv1.ValidatingAdmissionPolicy{}).Bind(bindings).BindingNamespaces()

		if got == nil || len(got.MatchExpressions) != want {
			t.Errorf("two bindings with %d requirements each are narrowed to %v, want %d requirements", requirements, got, want)
		}
	}
}

// BenchmarkNamespacesOfManyBindings has bindings with as many requirements and values as count, about one label.
func BenchmarkNamespacesOfManyBindings(b *testing.B) {
	var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for i := range 1024 {
		s := &metav1.LabelSelector{}
		for n := range 8 {
			r := metav1.LabelSelectorRequirement{Key: "name", Operator: metav1.LabelSelectorOpNotIn}
			for v := range 128 {
				r.Values = append(r.Values, fmt.Sprint(v+n*(1+i%2)))
			}
			s.MatchExpressions = append(s.MatchExpressions, r)
		}
		one := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		one.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: s}
		bindings = append(bindings, one)
	}
	compiled := policy.NewCompiler().Compile(&admissionregistrationv1.ValidatingAdmissionPolicy{})
	for b.Loop() {
		compiled.Bind(bindings)
	}
}
