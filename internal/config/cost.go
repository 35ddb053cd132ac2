package config

import (
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Limits of matchConditions. Each is compiled by every dispatcher, which takes some 0.2 ms and 50 kB: in proportion to the
// square of an expression's length where it joins many terms by && or ||. kube-apiserver has none of these limits, but 64
// conditions for a hook and 100,000 characters for an expression.
const (
	// MaxExpressionBytes bounds one expression.
	MaxExpressionBytes = 16 << 10
	// MaxConditions bounds the matchConditions of one document.
	MaxConditions = 2_000
	// MaxConditionBytes bounds the bytes of their expressions together.
	MaxConditionBytes = 512 << 10
	// MaxTotalConditions bounds the matchConditions of all objects in force.
	MaxTotalConditions = 5_000
	// MaxTotalConditionBytes bounds the bytes of their expressions together.
	MaxTotalConditionBytes = 2 << 20
)

// Limits of rules. The entries of a cluster are planned from each combination that rules name, which takes some 5 µs and 1 kB for each
// cluster. kube-apiserver compares a request with the lists of a rule, and has no such limit.
const (
	// MaxCombinations bounds the combinations that the rules of one document name (match.Combinations).
	MaxCombinations = 10_000
	// MaxTotalCombinations bounds the combinations of all objects in force.
	MaxTotalCombinations = 100_000
)

// Limits of PolicyParams.
const (
	// MaxParams bounds the objects of one document, each counted for each cluster that the document names.
	MaxParams = 10_000
	// MaxParamBytes bounds the memory of one document, and so of one object, in bytes.
	MaxParamBytes = 4 << 20
	// MaxTotalParams bounds the objects of all documents in force, counted as for MaxParams.
	MaxTotalParams = 40_000
	// MaxTotalParamBytes bounds the memory of all documents in force, in bytes.
	MaxTotalParamBytes = 32 << 20
)

// Cost is the effort to compile objects, to plan entries that bring their requests, and to keep the params of policies.
type Cost struct {
	// Conditions is the number of matchConditions.
	Conditions int
	// Bytes is the length of their expressions.
	Bytes int
	// Combinations is the number of combinations that rules name.
	Combinations int
	// Params is the number of objects of PolicyParams, each counted for each cluster that its document names.
	Params int
	// ParamBytes is the memory of these documents, in bytes.
	ParamBytes int
}

// DocumentLimit is the most that one document may cost.
func DocumentLimit() Cost {
	return Cost{MaxConditions, MaxConditionBytes, MaxCombinations, MaxParams, MaxParamBytes}
}

// TotalLimit is the most that all objects in force may cost together.
func TotalLimit() Cost {
	return Cost{MaxTotalConditions, MaxTotalConditionBytes, MaxTotalCombinations, MaxTotalParams, MaxTotalParamBytes}
}

// Plus is the sum.
func (c Cost) Plus(more Cost) Cost {
	return Cost{
		c.Conditions + more.Conditions, c.Bytes + more.Bytes, c.Combinations + more.Combinations, c.Params + more.Params, c.ParamBytes + more.ParamBytes,
	}
}

// Minus is the difference.
func (c Cost) Minus(less Cost) Cost {
	return Cost{
		c.Conditions - less.Conditions, c.Bytes - less.Bytes, c.Combinations - less.Combinations, c.Params - less.Params, c.ParamBytes - less.ParamBytes,
	}
}

// Raised has the figures of c in which a change from old to new costs more; the others are 0. No limit refuses a change for a figure
// that it does not raise.
func (c Cost) Raised(from, to Cost) Cost {
	figure := func(c, from, to int) int {
		if to <= from {
			return 0
		}
		return c
	}
	return Cost{
		figure(c.Conditions, from.Conditions, to.Conditions), figure(c.Bytes, from.Bytes, to.Bytes),
		figure(c.Combinations, from.Combinations, to.Combinations), figure(c.Params, from.Params, to.Params),
		figure(c.ParamBytes, from.ParamBytes, to.ParamBytes),
	}
}

// Over is by which of its figures a cost is more than a limit, for example "3,000 matchConditions, and at most 2,000"; empty
// when it is not. A figure of 0 is never over.
func (c Cost) Over(limit Cost) string {
	switch {
	case c.Conditions > max(limit.Conditions, 0):
		return fmt.Sprintf("%s matchConditions, and at most %s", thousands(c.Conditions), thousands(limit.Conditions))
	case c.Bytes > max(limit.Bytes, 0):
		return fmt.Sprintf("%s bytes in the expressions of matchConditions, and at most %s", thousands(c.Bytes), thousands(limit.Bytes))
	case c.Combinations > max(limit.Combinations, 0):
		return fmt.Sprintf("rules with %s combinations of group, version, resource, operation and scope, and at most %s",
			thousands(c.Combinations), thousands(limit.Combinations))
	case c.Params > max(limit.Params, 0):
		return fmt.Sprintf("%s objects of PolicyParams, counted for each cluster that their document names, and at most %s",
			thousands(c.Params), thousands(limit.Params))
	case c.ParamBytes > max(limit.ParamBytes, 0):
		return fmt.Sprintf("PolicyParams that take %s bytes of memory, and at most %s", thousands(c.ParamBytes), thousands(limit.ParamBytes))
	}
	return ""
}

// thousands is a number as people read it.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// Cost is the cost of the object, computed from the lengths of its lists: nothing is expanded.
func (o *Object) Cost() (c Cost) {
	switch {
	case o.Short != nil:
		return shortCost(&o.Short.Spec)
	case o.Params != nil:
		return o.params.cost(o.Params.Spec.Clusters)
	}
	if o.IsPolicy() {
		for _, x := range o.expressions() {
			c.Conditions, c.Bytes = c.Conditions+1, c.Bytes+len(x.Text)
		}
	}
	switch {
	case o.Binding != nil:
		c.Combinations = match.Combinations(rulesOf(o.Binding.Spec.MatchResources))
	case o.MutatingBinding != nil:
		c.Combinations = match.Combinations(rulesOf(o.MutatingBinding.Spec.MatchResources))
	}
	for _, w := range o.Webhooks() {
		c.Conditions += len(w.MatchConditions)
		for i := range w.MatchConditions {
			c.Bytes += len(w.MatchConditions[i].Expression)
		}
		c.Combinations += match.Combinations(w.Rules)
	}
	return c
}

// Webhook has the fields that rules about both kinds of webhooks read.
type Webhook struct {
	Name            string
	Rules           []admissionregistrationv1.RuleWithOperations
	FailurePolicy   *admissionregistrationv1.FailurePolicyType
	MatchConditions []admissionregistrationv1.MatchCondition
}

// Webhooks returns the webhooks of a configuration, and a policy as a webhook without matchConditions; none of another object. Their lists must not be changed.
func (o *Object) Webhooks() (all []Webhook) {
	switch {
	case o.Policy != nil:
		all = append(all, Webhook{Name: o.Name, Rules: rulesOf(o.Policy.Spec.MatchConstraints), FailurePolicy: o.Policy.Spec.FailurePolicy})
	case o.MutatingPolicy != nil:
		spec := &o.MutatingPolicy.Spec
		all = append(all, Webhook{Name: o.Name, Rules: rulesOf(spec.MatchConstraints), FailurePolicy: spec.FailurePolicy})
	case o.Validating != nil:
		for i := range o.Validating.Webhooks {
			w := &o.Validating.Webhooks[i]
			all = append(all, Webhook{w.Name, w.Rules, w.FailurePolicy, w.MatchConditions})
		}
	case o.Mutating != nil:
		for i := range o.Mutating.Webhooks {
			w := &o.Mutating.Webhooks[i]
			all = append(all, Webhook{w.Name, w.Rules, w.FailurePolicy, w.MatchConditions})
		}
	}
	return all
}

// Budget bounds the cost of several documents together. A document that would exceed it is not compiled, and gets a problem.
// It is not for concurrent use.
type Budget struct {
	// Limit is the most that they may cost.
	Limit Cost
	// Time is the most that compiling them may take, with the time in which others compile; 0 means any.
	Time time.Duration

	asked, spent Cost // of all documents, and of those that were compiled
	compiled     int
	took         time.Duration
	refused      int // documents that were not compiled
}

// count counts objects that were decoded before.
func (b *Budget) count(objects []Object) {
	for i := range objects {
		b.admit(objects[i].Cost())
	}
}

// admit adds the cost of a document, and reports whether it may be compiled.
func (b *Budget) admit(c Cost) bool {
	b.asked = b.asked.Plus(c)
	if b.spent.Plus(c).Over(b.Limit) != "" {
		return false
	}
	b.spent = b.spent.Plus(c)
	return true
}

// spend counts the time for an expression.
func (b *Budget) spend(took time.Duration) {
	b.took += took
	b.compiled++
}

// late reports whether there is no time left.
func (b *Budget) late() bool { return b.Time > 0 && b.took > b.Time }

// Err is the error of an exceeded budget; nil without one.
func (b *Budget) Err() error {
	switch over := b.asked.Over(b.Limit); {
	case over != "":
		return errors.New(over)
	case b.late():
		return fmt.Errorf("matchConditions that take %s to compile, %s of %s, and at most %s",
			b.took.Round(time.Millisecond), thousands(b.compiled), thousands(b.asked.Conditions), b.Time)
	}
	return nil
}
