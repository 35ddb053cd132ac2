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

// Limits of documents, whatever they say. Each dispatcher keeps the documents, decoded. A hook without rules takes a kilobyte for 100 bytes of text.
const (
	// MaxHooks bounds the webhooks of one document; a policy counts as one.
	MaxHooks = 5_000
	// MaxTotalHooks bounds the webhooks and policies of all objects in force.
	MaxTotalHooks = 40_000
	// MaxTotalDocuments bounds all objects in force.
	MaxTotalDocuments = 40_000
	// MaxTotalManifestBytes bounds the manifests of all objects in force, in bytes of JSON.
	MaxTotalManifestBytes = 64 << 20
)

// Figure is a part of a [Cost].
type Figure int

// The figures of a cost.
const (
	// Conditions is the number of matchConditions, and of expressions of policies.
	Conditions Figure = iota
	// ConditionBytes is the length of their expressions, in bytes.
	ConditionBytes
	// Combinations is the number of combinations that rules name.
	Combinations
	// Params is the number of objects of PolicyParams, each counted for each cluster that its document names.
	Params
	// ParamBytes is the memory of these documents, in bytes.
	ParamBytes
	// Hooks is the number of webhooks and policies.
	Hooks
	// Documents is the number of objects.
	Documents
	// ManifestBytes is the length of their manifests, in bytes of JSON.
	ManifestBytes

	figures
)

// Cost is the effort to compile objects, to plan entries that bring their requests, and to keep them and the params of policies.
type Cost [figures]int

// DocumentLimit is the most that one document may cost.
func DocumentLimit() Cost {
	return Cost{
		Conditions: MaxConditions, ConditionBytes: MaxConditionBytes, Combinations: MaxCombinations, Params: MaxParams, ParamBytes: MaxParamBytes,
		Hooks: MaxHooks, Documents: 1, ManifestBytes: MaxDocumentBytes,
	}
}

// TotalLimit is the most that all objects in force may cost together.
func TotalLimit() Cost {
	return Cost{
		Conditions: MaxTotalConditions, ConditionBytes: MaxTotalConditionBytes, Combinations: MaxTotalCombinations,
		Params: MaxTotalParams, ParamBytes: MaxTotalParamBytes,
		Hooks: MaxTotalHooks, Documents: MaxTotalDocuments, ManifestBytes: MaxTotalManifestBytes,
	}
}

// Plus is the sum.
func (c Cost) Plus(more Cost) Cost {
	for f := range c {
		c[f] += more[f]
	}
	return c
}

// Minus is the difference.
func (c Cost) Minus(less Cost) Cost {
	for f := range c {
		c[f] -= less[f]
	}
	return c
}

// Raised has the figures of c in which a change from old to new costs more; the others are 0. No limit refuses a change for a figure
// that it does not raise.
func (c Cost) Raised(from, to Cost) Cost {
	for f := range c {
		if to[f] <= from[f] {
			c[f] = 0
		}
	}
	return c
}

// Over is by which of its figures a cost is more than a limit, for example "3,000 matchConditions, and at most 2,000"; empty
// when it is not. A figure of 0 is never over.
func (c Cost) Over(limit Cost) string {
	texts := [figures]string{
		Conditions: "%s matchConditions", ConditionBytes: "%s bytes in the expressions of matchConditions",
		Combinations: "rules with %s combinations of group, version, resource, operation and scope",
		Params:       "%s objects of PolicyParams, counted for each cluster that their document names",
		ParamBytes:   "PolicyParams that take %s bytes of memory", Hooks: "%s hooks", Documents: "%s documents",
		ManifestBytes: "%s bytes in their manifests",
	}
	for f, text := range texts {
		if most := max(limit[f], 0); c[f] > most {
			return fmt.Sprintf(text+", and at most %s", thousands(c[f]), thousands(most))
		}
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
	if o.Manifest != nil { // else there is no object
		c[Documents], c[ManifestBytes] = 1, len(o.Manifest)
	}
	switch {
	case o.Short != nil:
		return c.Plus(shortCost(&o.Short.Spec))
	case o.Params != nil:
		return c.Plus(o.params.cost(o.Params.Spec.Clusters))
	}
	if o.IsPolicy() {
		for _, x := range o.expressions() {
			c[Conditions], c[ConditionBytes] = c[Conditions]+1, c[ConditionBytes]+len(x.Text)
		}
	}
	switch {
	case o.Binding != nil:
		c[Combinations] = match.Combinations(rulesOf(o.Binding.Spec.MatchResources))
	case o.MutatingBinding != nil:
		c[Combinations] = match.Combinations(rulesOf(o.MutatingBinding.Spec.MatchResources))
	}
	for _, w := range o.Webhooks() {
		c[Hooks]++
		c[Conditions] += len(w.MatchConditions)
		for i := range w.MatchConditions {
			c[ConditionBytes] += len(w.MatchConditions[i].Expression)
		}
		c[Combinations] += match.Combinations(w.Rules)
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
			b.took.Round(time.Millisecond), thousands(b.compiled), thousands(b.asked[Conditions]), b.Time)
	}
	return nil
}
