package cases

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Expense has the costs of a policy on the cases that it judges.
type Expense struct {
	// Policy is KIND/NAME of the policy; File and Line are its place.
	Policy string
	File   string
	Line   int
	// Cases are the cases that it judges, in their order.
	Cases []CaseExpense
}

// CaseExpense has the cost of a policy on one case.
type CaseExpense struct {
	// File, Line and Name are the case.
	File string
	Line int
	Name string
	// Cost are the units of CEL of one evaluation of the policy: of all its expressions, for all bindings and params. It is the greatest of all runs: an
	// expression that leaves a map early has another cost in each order of the map.
	Cost int64
	// Call is the greatest part of Kubernetes' limit that one expression costs, and Budget the greatest part of its limits for all conditions, all
	// validations or all annotations of the policy, or one mutation. 1 is the limit.
	Call   float64
	Budget float64
	// Took is the least time of one evaluation.
	Took time.Duration
}

// Expenses measure suites. Runner has the policies that they are about.
type Expenses struct {
	Runner *Runner
	// Count is how often a case is judged.
	Count int

	all map[*config.Object]*Expense
}

// Add judges the cases of a suite, whatever verdicts they expect. The error joins the errors of the cases that cannot be judged.
func (e *Expenses) Add(ctx context.Context, s *Suite) error {
	p, err := e.Runner.policiesOf(ctx, s)
	if err != nil {
		return err
	}
	if e.all == nil {
		e.all = map[*config.Object]*Expense{}
	}
	var errs []error
	for i := range p.objects {
		if o := &p.objects[i]; o.IsPolicy() && e.all[o] == nil {
			e.all[o] = &Expense{Policy: o.Key.String(), File: o.File, Line: o.Line}
		}
	}
	for _, c := range s.Cases {
		if e.Runner.Only != nil && !e.Runner.Only.MatchString(c.Name) {
			continue
		}
		if err := e.measure(ctx, s, p, c); err != nil {
			errs = append(errs, &FaultError{s.File, c.line, err.Error()})
		}
	}
	return errors.Join(errs...)
}

// measure judges a case, and adds the cost of each policy.
func (e *Expenses) measure(ctx context.Context, s *Suite, p *policies, c *Case) error {
	ready, err := s.prepare(ctx, p, c)
	if err != nil {
		return err
	}
	defer ready.judge.Close(ctx)
	seen := &meter{costs: map[string]*CaseExpense{}, took: map[string]time.Duration{}}
	for range e.Count {
		if _, err := ask(ctx, ready.judge, ready.request, seen); err != nil {
			return err
		}
		seen.end()
	}
	for i := range p.objects {
		o := &p.objects[i]
		if cost := seen.costs[o.Key.String()]; o.IsPolicy() && cost != nil {
			cost.File, cost.Line, cost.Name = s.File, c.line, c.Name
			e.all[o].Cases = append(e.all[o].Cases, *cost)
		}
	}
	return nil
}

// List are the expenses of the policies of all suites so far, in the order of their names.
func (e *Expenses) List() []*Expense {
	var all []*Expense
	for _, one := range e.all {
		known := slices.IndexFunc(all, func(o *Expense) bool { return o.Policy == one.Policy && o.File == one.File && o.Line == one.Line })
		if known < 0 {
			all = append(all, one)
			continue
		}
		all[known].Cases = append(all[known].Cases, one.Cases...) // suites of other lists of files have the policy too
	}
	slices.SortFunc(all, func(a, b *Expense) int {
		return strings.Compare(a.Policy+"\n"+a.File, b.Policy+"\n"+b.File)
	})
	for _, one := range all {
		slices.SortStableFunc(one.Cases, func(a, b CaseExpense) int { return strings.Compare(a.File, b.File) })
	}
	return all
}

// meter measures the evaluations of one case.
type meter struct {
	costs map[string]*CaseExpense  // by policy
	took  map[string]time.Duration // of the last evaluation in the review

	cost  int64 // of the evaluation that has begun
	begun time.Time
}

var _ policy.Observer = (*meter)(nil)

// Observe implements [policy.Observer]. An evaluation that was interrupted, and begins anew, costs less than the whole.
func (m *meter) Observe(of policy.Observation) {
	id := of.Policy.ID()
	one := m.costs[id]
	switch of.Event {
	case policy.Begun:
		m.cost, m.begun = 0, time.Now()
	case policy.Spent:
		if one == nil {
			one = &CaseExpense{}
			m.costs[id] = one
		}
		m.cost += of.Cost
		one.Cost = max(one.Cost, m.cost)
		one.Call = max(one.Call, float64(of.Cost)/celconfig.PerCallLimit)
		one.Budget = max(one.Budget, float64(of.Total)/float64(of.Budget))
	case policy.Ended:
		m.took[id] = time.Since(m.begun)
	case policy.Bound, policy.Unbound, policy.True, policy.False, policy.Failed, policy.Changed, policy.Unchanged:
	}
}

// end ends a review.
func (m *meter) end() {
	for id, one := range m.costs {
		if one.Took == 0 || m.took[id] < one.Took {
			one.Took = m.took[id]
		}
	}
}
