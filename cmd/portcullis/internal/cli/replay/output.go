package replay

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/replay"
)

// report is a report with the expressions of its cases.
type report struct {
	*replay.Report

	// Explanations are the expressions that are false or fail, by FILE:LINE of a case.
	Explanations map[string][]offline.Expression `json:"explanations,omitempty"`

	limit int
}

// explain judges the cases once more.
func (r *report) explain(ctx context.Context, mesh *offline.Mesh, judge replay.Judge) error {
	r.Explanations = map[string][]offline.Expression{}
	for i := range r.Changes {
		for _, c := range r.shown(&r.Changes[i]) {
			place := placeOf(&c)
			if r.Explanations[place] != nil {
				continue
			}
			expressions, err := replay.Explain(ctx, mesh, judge, c.Entry())
			if err != nil {
				return err //nolint:wrapcheck // it names the field
			}
			r.Explanations[place] = expressions
		}
	}
	return nil
}

func (r *report) shown(c *replay.Change) []replay.Case { return c.Cases[:min(len(c.Cases), r.limit)] }

func placeOf(c *replay.Case) string { return fmt.Sprintf("%s:%d", c.File, c.Line) }

// write writes the report for people.
func (r *report) write(out io.Writer) error {
	during := ""
	if !r.First.IsZero() {
		during = fmt.Sprintf(", from %s to %s", at(r.First), at(r.Last))
	}
	fmt.Fprintf(out, "%d requests%s: %d would be denied that are allowed now, %d would be allowed that are denied now, %d without any difference\n",
		r.Requests, during, r.Denied, r.Allowed, r.Same)
	if r.Unmatched == r.Requests {
		fmt.Fprintf(out, "no policy that is tried is about any of them: look at its resources, operations and exclusions, and at --cluster\n")
	}
	if r.AlreadyDenied > 0 {
		fmt.Fprintf(out, "%d were denied, and the log does not say by which policy: they are not compared\n", r.AlreadyDenied)
	}
	if r.WithoutOld > 0 {
		fmt.Fprintf(out, "%d updates were judged as though they changed nothing: the log does not have their objects before\n", r.WithoutOld)
	}
	if err := r.writeLeft(out); err != nil || len(r.Changes) == 0 {
		return err
	}
	columns := printer.Heads("POLICY", "CLUSTER", "NOW", "THEN", "REQUESTS", "NAMESPACES", "USERS")
	var rows [][]string
	for i := range r.Changes {
		c := &r.Changes[i]
		rows = append(rows, []string{
			cmp.Or(c.Policy, "-"), c.Cluster, c.Now, c.Then, fmt.Sprint(c.Requests), r.names(c.Namespaces), r.names(c.Users),
		})
	}
	fmt.Fprintln(out)
	if err := printer.NewTable(out, "", columns).Write(rows...); err != nil {
		return err
	}
	if r.Incomplete {
		fmt.Fprintf(out, "There are more than %d changes, or cases of more than %d MiB: the others are not listed.\n",
			replay.MaxChanges, replay.MaxCasesBytes>>20)
	}
	for i := range r.Changes {
		if err := r.writeCases(out, &r.Changes[i]); err != nil {
			return err
		}
	}
	return nil
}

// writeLeft writes the lines that were left out.
func (r *report) writeLeft(out io.Writer) error {
	for _, l := range r.Left {
		if _, err := fmt.Fprintf(out, "%d left out: %s\n", l.Requests, l.Name); err != nil {
			return err
		}
	}
	return nil
}

// names are the most frequent names, with their numbers.
func (r *report) names(all []replay.Count) string {
	var texts []string
	for _, c := range all[:min(len(all), r.limit)] {
		texts = append(texts, fmt.Sprintf("%s (%d)", c.Name, c.Requests))
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

func (r *report) writeCases(out io.Writer, c *replay.Change) error {
	if _, err := fmt.Fprintf(out, "\n%s in %s: %s -> %s\n", printer.Text(cmp.Or(c.Policy, "objects")), printer.Text(c.Cluster), c.Now, c.Then); err != nil {
		return err
	}
	columns := printer.Heads("TIME (UTC)", "NAMESPACE", "USER", "OPERATION", "OBJECT", "AT", "MESSAGE")
	var rows [][]string
	for _, one := range r.shown(c) {
		rows = append(rows, []string{
			at(one.Time), cmp.Or(one.Namespace, "-"), cmp.Or(one.User, "-"), one.Operation, one.Object, placeOf(&one), one.Message,
		})
	}
	if err := printer.NewTable(out, "", columns).Write(rows...); err != nil {
		return err
	}
	for _, one := range r.shown(c) {
		all := r.Explanations[placeOf(&one)]
		first := slices.IndexFunc(all, func(x offline.Expression) bool { return x.Policy == c.Policy })
		if first < 0 {
			continue
		}
		fmt.Fprintf(out, "%s\n", printer.Text(placeOf(&one)))
		for _, line := range all[first].Lines() {
			fmt.Fprintf(out, "  %s\n", printer.Text(line))
		}
	}
	return nil
}

func at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}
