// Package casetest has the command that runs case files of policies.
package casetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cases"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

// The forms of the output beside text and JSON.
const (
	formatJUnit  = "junit"
	formatGitHub = "github"
)

type command struct {
	start        cases.StartHosts
	hosts        []string
	only, output string
	coverage     bool
	least        cli.Percent
	verbose      bool
	watch        bool
	once         bool
}

// NewCommand returns "test". The function starts the hosts of case files.
func NewCommand(start cases.StartHosts) *cobra.Command {
	c := command{start: start}
	cmd := &cobra.Command{
		Use:   "test DIR...",
		Short: "Run the cases of policies and hosts",
		Long: `Test judges the requests in case files by the policies beside them, and compares each verdict with the expected verdict. It asks no mesh and no
cluster: policies are compiled and evaluated in this process as a mesh does it. A case file has the name cases.yaml or NAME.cases.yaml, and is found in
the directories and below them; kyverno-test.yaml is read too. A Policy in mode shadow or warn is judged as though it were enforced.

Hosts in any language are tested too: name their commands in the case file, or with --host. They run in the directory of the case file, dial this process
by the flags --dispatchers, --cert, --key and --ca that follow their own arguments, and serve the hooks and initializers in the configuration there.

A case that meets no policy has the verdict "unmatched", and fails unless it expects that. With --coverage it lists the validations that were never
true or never false, the conditions that never excluded a request, and the mutations that never changed an object. docs/policy-tests.md describes the
case files.

Mutating policies are applied to their own result too, and in the opposite order. A case fails if a policy changes its own result again, or if two policies
depend on their order. --once leaves this out.

Exit codes: 0 when all cases have passed; 1 when a case has failed, or less than --coverage-min is covered; 2 when files cannot be read.`,
		Example: `  portcullis test policies
  portcullis test policies --run 'team' --coverage
  portcullis test policies --watch
  portcullis test . --host 'python3 imagepolicy.py'
  portcullis test policies --coverage-min 100 -o github
  portcullis test policies -o junit > results.xml`,
		Args: func(_ *cobra.Command, dirs []string) error {
			if len(dirs) == 0 {
				return errors.New(`name the directories with the case files, for example "."`)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.only, "run", "", "run the cases alone whose name has a match of this regular expression")
	f.StringArrayVar(&c.hosts, "host", nil, "command of a host that serves the hooks of case files without \"hosts\", such as 'python3 main.py'; may be repeated")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "list the cases that have passed too; with -o json also the review of each case, with its answer")
	f.BoolVar(&c.coverage, "coverage", false, "say which rules the cases do not cover")
	f.Var(&c.least, "coverage-min", "fail if less is covered, as in 100%")
	f.BoolVar(&c.once, "once", false, "do not apply mutations to their own result and in the opposite order")
	f.BoolVar(&c.watch, "watch", false, "run the cases again when a file has changed, until it is interrupted")
	cli.OutputFlag(cmd, &c.output, "json or junit for tools, github for annotations (default: text)", printer.JSON, formatJUnit, formatGitHub)
	cmd.RunE = func(cmd *cobra.Command, dirs []string) error {
		only, err := c.check()
		if err != nil {
			return err
		}
		if c.watch {
			return c.repeat(cmd.Context(), dirs, only, cmd.OutOrStdout())
		}
		return c.run(cmd.Context(), dirs, only, cmd.OutOrStdout())
	}
	return cmd
}

// check checks the flags, and compiles --run.
func (c *command) check() (only *regexp.Regexp, err error) {
	if c.least > 100 {
		return nil, fmt.Errorf("--coverage-min %s: must be at most 100%%", &c.least)
	}
	if slices.Contains(c.hosts, "") {
		return nil, errors.New("--host: name the command of a host")
	}
	if len(c.hosts) > cases.MaxHosts {
		return nil, fmt.Errorf("--host: there are %d, and at most %d are run", len(c.hosts), cases.MaxHosts)
	}
	c.coverage = c.coverage || c.least > 0
	if c.only == "" {
		return nil, nil //nolint:nilnil // all cases
	}
	if only, err = regexp.Compile(c.only); err != nil {
		return nil, fmt.Errorf("--run: %w", err)
	}
	return only, nil
}

// run runs all cases once.
func (c *command) run(ctx context.Context, dirs []string, only *regexp.Regexp, out io.Writer) error {
	runner := &cases.Runner{Only: only, Once: c.once, Reviews: c.verbose && c.output == printer.JSON, StartHosts: c.start}
	for _, text := range c.hosts {
		runner.Hosts = append(runner.Hosts, cases.Host{Command: cases.Command{Text: text}})
	}
	r, err := runAll(ctx, dirs, runner)
	err = errors.Join(err, runner.Close())
	if err != nil {
		return err
	}
	if !c.coverage {
		r.Coverage = nil
	}
	if err := c.write(out, r); err != nil {
		return err
	}
	switch {
	case len(r.errs) > 0:
		return errors.Join(r.errs...)
	case r.Failed > 0:
		return &cli.CodedError{Code: cli.ExitDenied}
	case r.Coverage != nil && r.Coverage.Percent() < float64(c.least):
		return cli.Refused(fmt.Errorf("the cases cover %.1f %% of the rules, and must cover %v %%", r.Coverage.Percent(), float64(c.least)))
	}
	return nil
}

// runAll runs the cases of directories.
func runAll(ctx context.Context, dirs []string, runner *cases.Runner) (*report, error) {
	files, err := cases.Find(dirs...)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the directory
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no case file: write one beside the policies, with the name cases.yaml or NAME.cases.yaml (docs/policy-tests.md)")
	}
	r := &report{Files: []*fileReport{}}
	for _, file := range files {
		suite, err := cases.Read(file)
		var results []cases.Result
		if err == nil {
			results, err = runner.Run(ctx, suite)
		}
		if err != nil {
			r.errs = append(r.errs, err)
			continue
		}
		r.add(file, results, runner.Log(suite), runner.NotCalled(suite))
	}
	if r.Passed+r.Failed == 0 && len(r.errs) == 0 {
		return nil, fmt.Errorf("--run %s: no case has such a name", runner.Only)
	}
	r.Coverage = newCoverage(runner.Coverage())
	return r, nil
}
