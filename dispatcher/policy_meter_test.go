package dispatcher

import "testing"

// TestPoliciesThatAreNotCountedReserveTheirBounds: the policies of a review share MaxPolicyCost, apart from the counted ones.
func TestPoliciesThatAreNotCountedReserveTheirBounds(t *testing.T) {
	m := &policyMeter{}
	if err := m.Spend(t.Context(), MaxPolicyCost); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		units int64
		want  bool
	}{{MaxPolicyCost - 1, true}, {2, false}, {1, true}, {1, false}} {
		if got := m.Reserve(step.units); got != step.want {
			t.Errorf("reserve %d: %t", step.units, got)
		}
	}
}
