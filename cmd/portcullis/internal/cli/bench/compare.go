package bench

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

// comparison has the changes since an earlier report.
type comparison struct {
	// Threshold is the growth in percent that is accepted.
	Threshold float64 `json:"threshold"`
	// Policies are the policies that both reports have, on the cases that both have.
	Policies []*change `json:"policies"`
	// Grown are the policies among them whose cost has grown by more than the threshold.
	Grown []*change `json:"grown"`
	// New are policies that the earlier report has not, Gone are policies that it alone has, and Apart have no case that both have.
	New   []string `json:"new"`
	Gone  []string `json:"gone"`
	Apart []string `json:"apart"`
}

// change is the change of the cost of a policy.
type change struct {
	Policy string `json:"policy"`
	File   string `json:"file"`
	// Cases is the number of cases.
	Cases int  `json:"cases"`
	Old   cost `json:"old"`
	New   cost `json:"new"`
	// Growth is the growth of the mean or of the most in percent, whichever is greater; absent if the earlier cost is 0 and this one is not.
	Growth *float64 `json:"growth,omitempty"`
	// Case is the case that has grown most, in units.
	Case string `json:"case,omitempty"`
}

// key is a policy in reports.
type key struct{ policy, file string }

// caseKey is a case in reports.
type caseKey struct{ file, name string }

func compare(old, now *report, threshold float64) *comparison {
	c := &comparison{Threshold: threshold, Policies: []*change{}, Grown: []*change{}, New: []string{}, Gone: []string{}, Apart: []string{}}
	before := map[key]*policyReport{}
	for _, p := range old.Policies {
		before[key{p.Policy, p.File}] = p
	}
	for _, p := range now.Policies {
		k := key{p.Policy, p.File}
		last := before[k]
		delete(before, k)
		if last == nil {
			c.New = append(c.New, p.Policy)
			continue
		}
		one := changeOf(last, p)
		if one == nil {
			c.Apart = append(c.Apart, p.Policy)
			continue
		}
		if c.Policies = append(c.Policies, one); one.Growth == nil || *one.Growth > threshold {
			c.Grown = append(c.Grown, one)
		}
	}
	for _, p := range old.Policies {
		if before[key{p.Policy, p.File}] != nil {
			c.Gone = append(c.Gone, p.Policy)
		}
	}
	return c
}

// changeOf is the change of a policy on the cases that both reports have; nil without any.
func changeOf(old, now *policyReport) *change {
	before := map[caseKey]int64{}
	for _, c := range old.Cases {
		before[caseKey{c.File, c.Name}] = c.Cost
	}
	one := &change{Policy: now.Policy, File: now.File}
	var costs [2][]int64
	var grown int64
	for _, c := range now.Cases {
		last, ok := before[caseKey{c.File, c.Name}]
		if !ok {
			continue
		}
		costs[0], costs[1] = append(costs[0], last), append(costs[1], c.Cost)
		if c.Cost-last > grown {
			grown, one.Case = c.Cost-last, c.Name
		}
	}
	if one.Cases = len(costs[0]); one.Cases == 0 {
		return nil
	}
	one.Old, one.New = *costOf(costs[0]), *costOf(costs[1])
	growth := max(growthOf(one.Old.Mean, one.New.Mean), growthOf(float64(one.Old.Most), float64(one.New.Most)))
	if !math.IsInf(growth, 0) {
		one.Growth = &growth
	}
	return one
}

// growthOf is a growth in percent.
func growthOf(old, now float64) float64 {
	if old == now {
		return 0
	}
	return 100 * (now - old) / old
}

// write writes the comparison as text.
func (c *comparison) write(out io.Writer) error {
	var text strings.Builder
	for _, one := range c.Grown {
		by := "from nothing"
		if one.Growth != nil {
			by = fmt.Sprintf("by %.1f %%", *one.Growth)
		}
		fmt.Fprintf(&text, "grown: %s: %s, on cases that both have (%d): mean %s to %s, most %d to %d; by the most units in %q\n", one.Policy, by, one.Cases,
			average(one.Old.Mean), average(one.New.Mean), one.Old.Most, one.New.Most, one.Case)
	}
	for _, list := range []struct {
		word     string
		policies []string
	}{{"new", c.New}, {"gone", c.Gone}, {"no case that both have", c.Apart}} {
		for _, policy := range list.policies {
			fmt.Fprintf(&text, "%s: %s\n", list.word, policy)
		}
	}
	if len(c.Grown) == 0 && len(c.Policies) > 0 {
		policies := fmt.Sprintf("%d policies", len(c.Policies))
		if len(c.Policies) == 1 {
			policies = "1 policy"
		}
		fmt.Fprintf(&text, "ok: no cost has grown by more than %v %%, of %s that both have\n", c.Threshold, policies)
	}
	_, err := io.WriteString(out, printer.Text(text.String()))
	return err
}
