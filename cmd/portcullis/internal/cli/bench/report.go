package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cases"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

// maxReportBytes bounds the file of --compare.
const maxReportBytes = 256 << 20

// report is the output for tools.
type report struct {
	// Policies are in the order of their names.
	Policies []*policyReport `json:"policies"`
	// Comparison is the comparison with an earlier report; absent without --compare.
	Comparison *comparison `json:"comparison,omitempty"`
}

// policyReport has the costs of a policy.
type policyReport struct {
	// Policy is KIND/NAME of the policy; File and Line are its place.
	Policy string `json:"policy"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	// Cost is the cost of an evaluation, in units of CEL; absent without a case.
	Cost *cost `json:"cost,omitempty"`
	// CallShare and BudgetShare are the greatest parts of Kubernetes' limits. 1 is the limit.
	CallShare   float64 `json:"callShare"`
	BudgetShare float64 `json:"budgetShare"`
	// Nanoseconds is the mean time of an evaluation.
	Nanoseconds int64 `json:"nanoseconds"`
	// Costliest is the name of the case with the most cost.
	Costliest string `json:"costliest,omitempty"`
	// Cases are the cases that the policy judges.
	Cases []*caseReport `json:"cases"`
}

// cost is the cost over all cases.
type cost struct {
	Least int64   `json:"least"`
	Mean  float64 `json:"mean"`
	Most  int64   `json:"most"`
}

// caseReport has the cost of a policy on a case.
type caseReport struct {
	File        string `json:"file"`
	Line        int    `json:"line"`
	Name        string `json:"name"`
	Cost        int64  `json:"cost"`
	Nanoseconds int64  `json:"nanoseconds"`
}

func newReport(all []*cases.Expense) *report {
	r := &report{Policies: []*policyReport{}}
	for _, e := range all {
		p := &policyReport{Policy: e.Policy, File: e.File, Line: e.Line, Cases: []*caseReport{}}
		var costs []int64
		var took time.Duration
		for i := range e.Cases {
			c := &e.Cases[i]
			if len(costs) == 0 || c.Cost > slices.Max(costs) {
				p.Costliest = c.Name
			}
			costs, took = append(costs, c.Cost), took+c.Took
			p.CallShare, p.BudgetShare = max(p.CallShare, c.Call), max(p.BudgetShare, c.Budget)
			p.Cases = append(p.Cases, &caseReport{c.File, c.Line, c.Name, c.Cost, c.Took.Nanoseconds()})
		}
		if len(costs) > 0 {
			p.Cost, p.Nanoseconds = costOf(costs), took.Nanoseconds()/int64(len(costs))
		}
		r.Policies = append(r.Policies, p)
	}
	return r
}

// costOf is the cost over cases, of which there is one at least.
func costOf(costs []int64) *cost {
	var sum int64
	for _, c := range costs {
		sum += c
	}
	return &cost{slices.Min(costs), float64(sum) / float64(len(costs)), slices.Max(costs)}
}

// readReport reads an earlier report.
func readReport(file string) (*report, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cli.NoFile(file)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxReportBytes+1))
	if err != nil {
		return nil, err
	}
	r := &report{}
	switch err := json.Unmarshal(data, r); {
	case len(data) > maxReportBytes:
		return nil, fmt.Errorf("%s: the file is larger than %d bytes", file, maxReportBytes)
	case err != nil:
		return nil, fmt.Errorf("%s: this is no output of `portcullis bench -o json`: %w", file, err)
	case r.Policies == nil:
		return nil, fmt.Errorf("%s: this is no output of `portcullis bench -o json`: it has no policies", file)
	}
	return r, nil
}

// write writes the report as text.
func (r *report) write(out io.Writer) error {
	heads := printer.Heads("POLICY", "CASES", "LEAST", "MEAN", "MOST", "CALL", "BUDGET", "TIME", "COSTLIEST CASE")
	table := printer.NewTable(out, "", heads)
	rows := [][]string{}
	for _, p := range r.Policies {
		row := []string{p.Policy, "0", "-", "-", "-", "-", "-", "-", "-"}
		if p.Cost != nil {
			row = append(row[:1], strconv.Itoa(len(p.Cases)), strconv.FormatInt(p.Cost.Least, 10), average(p.Cost.Mean), strconv.FormatInt(p.Cost.Most, 10),
				share(p.CallShare), share(p.BudgetShare), (time.Duration(p.Nanoseconds) * time.Nanosecond).Round(time.Microsecond).String(), p.Costliest)
		}
		rows = append(rows, row)
	}
	if err := table.Write(rows...); err != nil || r.Comparison == nil {
		return err
	}
	return r.Comparison.write(out)
}

func average(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }

// share is a part of a limit in percent.
func share(part float64) string {
	if part > 0 && part < 0.0001 {
		return "<0.01%"
	}
	return fmt.Sprintf("%.2f%%", 100*part)
}
