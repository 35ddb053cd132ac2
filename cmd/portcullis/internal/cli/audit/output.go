package audit

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/audit"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

// print prints a report.
func (c *command) print(out, notes io.Writer, r *audit.Report) error {
	switch c.output {
	case printer.JSON:
		return printer.WriteJSON(out, r)
	case formatPolicyReport:
		return writeReports(out, notes, r, policyReports())
	case formatOpenReports:
		return writeReports(out, notes, r, openReports())
	}
	return write(printer.NewPage(out, c.output), r, c.output)
}

// write writes a report for people.
func write(p printer.Page, r *audit.Report, format string) error {
	if err := p.Title(1, "Audit of the cluster "+cmp.Or(r.Cluster, "(without a name)")); err != nil {
		return err
	}
	text := fmt.Sprintf("%d objects of %s judged in %s: policies are about %d, deny %d, and have no verdict about %d.",
		r.Objects, cmp.Or(r.Cluster, "the cluster"), r.Ended.Sub(r.Begun).Round(time.Second/10), r.Matched, r.Denied, r.Errors)
	if !r.Complete {
		text += " The audit is not complete."
	}
	if err := p.Line(text); err != nil {
		return err
	}
	if err := p.Table(printer.Heads("POLICY", "MODE", "PASSED", "CHANGED", "WARNED", "SHADOW", "DENIED", "ERRORS"), policyRows(r)); err != nil {
		return err
	}
	if err := writeFindings(p, r); err != nil {
		return err
	}
	if err := section(p, "Not audited", printer.Heads("SUBJECT", "REASON"), unauditedRows(r)); err != nil {
		return err
	}
	if format == printer.Wide {
		if err := section(p, "Resources", printer.Heads("RESOURCE", "VERSION", "NAMESPACE", "OBJECTS"), resourceRows(r)); err != nil {
			return err
		}
	}
	for _, n := range r.Notes {
		if err := p.Line(n); err != nil {
			return err
		}
	}
	return nil
}

// section writes a table with a title, if it has rows.
func section(p printer.Page, title string, columns printer.Columns, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	if err := p.Title(2, title); err != nil {
		return err
	}
	return p.Table(columns, rows)
}

func writeFindings(p printer.Page, r *audit.Report) error {
	var rows [][]string
	for i := range r.Findings {
		f := &r.Findings[i]
		rows = append(rows, []string{
			string(f.Result), cmp.Or(f.Namespace, "-"), f.Object(), cmp.Or(f.Policy, "-"), cmp.Or(f.Message, "-"), cmp.Or(f.Owner, "-"), f.APIVersion, f.UID,
		})
	}
	columns := printer.Heads("RESULT", "NAMESPACE", "OBJECT", "POLICY", "MESSAGE").Wide("OWNER", "VERSION", "UID")
	if err := section(p, "Findings", columns, rows); err != nil || r.Omitted == 0 {
		return err
	}
	return p.Line(fmt.Sprintf("And %d more: use --max-findings.", r.Omitted))
}

func policyRows(r *audit.Report) (rows [][]string) {
	for _, of := range r.Policies {
		rows = append(rows, []string{
			cmp.Or(of.Name, "-"), cmp.Or(of.Mode, "-"), fmt.Sprint(of.Passed), fmt.Sprint(of.Changed), fmt.Sprint(of.Warned), fmt.Sprint(of.Shadow),
			fmt.Sprint(of.Denied), fmt.Sprint(of.Errors),
		})
	}
	return rows
}

func unauditedRows(r *audit.Report) (rows [][]string) {
	for _, u := range r.Unaudited {
		rows = append(rows, []string{u.Subject, u.Reason})
	}
	for _, of := range r.Resources {
		if of.Error != "" {
			rows = append(rows, []string{of.Name, of.Error})
		}
	}
	return rows
}

func resourceRows(r *audit.Report) (rows [][]string) {
	for _, of := range r.Resources {
		rows = append(rows, []string{of.Name, of.Version, cmp.Or(of.Namespace, "-"), fmt.Sprint(of.Objects)})
	}
	return rows
}
