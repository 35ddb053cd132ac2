package cases

import (
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
)

// named is a policy of which only the name matters.
type named struct{ *policy.Validating }

func (named) ID() string { return "Policy/a" }

// TestAnEvaluationThatBeginsAnewIsCountedOnce: the mesh interrupts a policy after a while, and judges by it again.
func TestAnEvaluationThatBeginsAnewIsCountedOnce(t *testing.T) {
	m := &meter{costs: map[string]*CaseExpense{}, took: map[string]time.Duration{}}
	for _, o := range []policy.Observation{
		{Event: policy.Begun}, {Event: policy.Spent, Cost: 500_000, Total: 500_000, Budget: 10_000_000}, {Event: policy.Ended},
		{Event: policy.Begun}, {Event: policy.Spent, Cost: 500_000, Total: 500_000, Budget: 10_000_000},
		{Event: policy.Spent, Cost: 100_000, Total: 600_000, Budget: 10_000_000}, {Event: policy.Ended},
	} {
		o.Policy = named{}
		m.Observe(o)
	}
	m.end()
	one := m.costs["Policy/a"]
	if one == nil || one.Cost != 600_000 || one.Call != 0.5 || one.Budget != 0.06 || one.Took <= 0 {
		t.Errorf("%+v", one)
	}
}
