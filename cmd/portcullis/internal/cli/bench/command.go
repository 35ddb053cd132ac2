// Package bench has the command that measures policies on their cases.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cases"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

const (
	defaultCount     = 20
	maxCount         = 10_000
	defaultThreshold = 10
)

type command struct {
	only, output, compare string
	count                 int
	threshold             cli.Percent
}

// NewCommand returns "bench".
func NewCommand() *cobra.Command {
	c := command{threshold: defaultThreshold}
	cmd := &cobra.Command{
		Use:   "bench DIR...",
		Short: "Measure the cost of policies on their cases",
		Long: `Bench judges the requests in the case files of "portcullis test", and measures the cost of each policy. The cost is counted in the units of CEL that
Kubernetes' limits count, and is the same on each machine: the least, the mean and the most of all cases. CALL and BUDGET are the
greatest shares of these limits: of the limit for one expression, and of the limit for all conditions or all validations of a policy. TIME is
the mean time of an evaluation, and COSTLIEST CASE the case with the most cost. -o json has each case.

With --compare, OLD is a file that -o json has written before. Bench fails if the cost of a policy has grown by more than --threshold on the
cases that both have: the mean, or the most. Times are not compared. docs/policy-tests.md has more.

Exit codes: 0 when it is done; 1 when the cost of a policy has grown too much; 2 when files cannot be read.`,
		Example: `  portcullis bench policies
  portcullis bench policies --run 'team' -o json
  portcullis bench policies -o json > old.json
  portcullis bench policies --compare old.json --threshold 10%`,
		Args: func(_ *cobra.Command, dirs []string) error {
			if len(dirs) == 0 {
				return errors.New(`name the directories with the case files, for example "."`)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.only, "run", "", "judge the cases alone whose name has a match of this regular expression")
	f.IntVar(&c.count, "count", defaultCount, "judge each case so many times: the greatest cost counts, and the least time")
	f.StringVar(&c.compare, "compare", "", "compare the costs with this file, which -o json has written")
	f.Var(&c.threshold, "threshold", "with --compare, fail if a cost has grown by more")
	cli.OutputFlag(cmd, &c.output, "json for tools (default: text)", printer.JSON)
	cmd.RunE = func(cmd *cobra.Command, dirs []string) error {
		if cmd.Flags().Changed("threshold") && c.compare == "" {
			return errors.New("--threshold needs --compare OLD: it is about the growth of costs")
		}
		return c.run(cmd.Context(), dirs, cmd.OutOrStdout())
	}
	return cmd
}

func (c *command) run(ctx context.Context, dirs []string, out io.Writer) error {
	if c.count < 1 || c.count > maxCount {
		return fmt.Errorf("--count %d: must be a number from 1 to %d", c.count, maxCount)
	}
	var only *regexp.Regexp
	if c.only != "" {
		var err error
		if only, err = regexp.Compile(c.only); err != nil {
			return fmt.Errorf("--run: %w", err)
		}
	}
	var old *report
	if c.compare != "" {
		var err error
		if old, err = readReport(c.compare); err != nil {
			return fmt.Errorf("--compare: %w", err)
		}
	}
	all, err := c.measure(ctx, dirs, only)
	if err != nil {
		return err
	}
	r := newReport(all)
	if old != nil {
		r.Comparison = compare(old, r, float64(c.threshold))
	}
	if c.output == printer.JSON {
		err = printer.WriteJSON(out, r)
	} else {
		err = r.write(out)
	}
	switch {
	case err != nil || r.Comparison == nil:
		return err
	case len(r.Comparison.Policies) == 0:
		return fmt.Errorf("--compare %s: nothing is compared: no policy and case is in both; name the same directories from the same place", c.compare)
	case len(r.Comparison.Grown) == 0:
		return nil
	}
	names := make([]string, len(r.Comparison.Grown))
	for i, g := range r.Comparison.Grown {
		names[i] = g.Policy
	}
	return cli.Refused(fmt.Errorf("the cost has grown by more than %s: %s", &c.threshold, strings.Join(names, ", ")))
}

// measure judges the cases of directories.
func (c *command) measure(ctx context.Context, dirs []string, only *regexp.Regexp) ([]*cases.Expense, error) {
	files, err := cases.Find(dirs...)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the directory
	}
	if len(files) == 0 {
		return nil, errors.New("there is no case file: write one beside the policies, with the name cases.yaml or NAME.cases.yaml (docs/policy-tests.md)")
	}
	expenses := &cases.Expenses{Runner: &cases.Runner{Only: only}, Count: c.count}
	var errs []error
	for _, file := range files {
		suite, err := cases.Read(file)
		if err == nil {
			err = expenses.Add(ctx, suite)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	all := expenses.List()
	if len(errs) == 0 && !slices.ContainsFunc(all, func(e *cases.Expense) bool { return len(e.Cases) > 0 }) {
		return nil, c.nothing()
	}
	return all, errors.Join(errs...)
}

// nothing is the error of cases that no policy judges.
func (c *command) nothing() error {
	if c.only != "" {
		return fmt.Errorf("--run %s: no case has such a name, or no policy is about it", c.only)
	}
	return errors.New("no policy is about any of the cases")
}
