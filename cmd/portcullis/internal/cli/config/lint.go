package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// formatGitHub is the form of annotations of GitHub Actions.
const formatGitHub = "github"

type lintCommand struct {
	files        []string
	strict       bool
	acknowledge  []string
	ownNamespace string
	mutateBudget time.Duration
	output       string
	noLines      bool // lines are not written
	server       connect.APIServer
	live         bool // server is asked
}

// NewLint returns "lint".
func NewLint() *cobra.Command {
	var c lintCommand
	cmd := &cobra.Command{
		Use:   "lint -f PATH",
		Short: "Check files of configuration without a mesh",
		Long: `Lint reads documents as strictly as the mesh, compiles them together, and prints errors and probable mistakes: the findings of
"portcullis apply", and of "portcullis cluster register" about the entries of each Cluster document. It asks no mesh: name all files
that are in force together. The codes are explained in docs/configuration-reference.md.

With --kube-context or --kubeconfig, the types of expressions of policies are checked by the CustomResourceDefinitions of a cluster, too. Its user
lists customresourcedefinitions. Else those in Cluster documents alone are known.

Exit codes: 0 when "portcullis apply" would take the documents; 1 when it would refuse them for a danger that is not acknowledged, and with --strict
when there are warnings; 2 with errors, or when the command failed.`,
		Example: `  portcullis lint -f conf.d
  git show main:hooks.yaml | portcullis lint -f - --strict --acknowledge danger-leases
  portcullis lint -f conf.d -o github
  portcullis lint -f policies --kube-context prod-1`,
		Args: filesByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	c.server.Bind(f)
	f.StringArrayVarP(&c.files, "filename", "f", nil, filenameUsage)
	f.BoolVar(&c.strict, "strict", false, "exit with 1 when there are warnings")
	f.StringArrayVar(&c.acknowledge, "acknowledge", nil, "code of a danger that the apply would acknowledge; may be given several times")
	f.StringVar(&c.ownNamespace, "own-namespace", "", "namespace of the mesh in a cluster that it serves")
	f.DurationVar(&c.mutateBudget, "mutate-timeout", registration.DefaultMutateTimeout, "longest time for the mutating hooks of a write")
	cli.OutputFlag(cmd, &c.output, "json for tools, github for annotations (default: text)", printer.JSON, formatGitHub)
	return cli.WithSettings(cmd)
}

func (c *lintCommand) run(cmd *cobra.Command) error {
	c.live = cmd.Flags().Changed("kubeconfig") || cmd.Flags().Changed("kube-context")
	if len(c.files) == 0 {
		return errors.New(`-f is missing: name a file or directory, or "-"`)
	}
	objects, problems, err := read(cmd, c.files)
	if err != nil {
		return err
	}
	if len(objects)+len(problems) == 0 {
		return errors.New("-f: there is no document in it")
	}
	return c.report(cmd.Context(), objects, problems, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// Lint writes the findings about documents as "portcullis lint" does, and returns its error. Without lines, the places of documents mean nothing to
// a reader.
func Lint(ctx context.Context, objects []config.Object, problems config.Problems, notes io.Writer, lines bool) error {
	c := lintCommand{mutateBudget: registration.DefaultMutateTimeout, noLines: !lines}
	return c.report(ctx, objects, problems, notes, notes)
}

// report writes the findings, and returns an error with their exit code.
func (c *lintCommand) report(ctx context.Context, objects []config.Object, problems config.Problems, out, notes io.Writer) error {
	if problems.Err() == nil { // else the findings would be about other documents than the author means
		found, err := c.inspect(ctx, objects)
		if err != nil {
			return err
		}
		problems = append(problems, found...)
	}
	report := lintReport{Objects: len(objects), Findings: make([]*configv1.Finding, 0, len(problems))}
	for _, p := range problems.Sorted() {
		p.File = offline.Relative(p.File)
		if c.noLines {
			p.Line = 0
		}
		report.add(service.FindingOf(p), c.acknowledge)
	}
	if err := report.print(out, notes, c.output); err != nil {
		return err
	}
	switch {
	case report.Errors > 0:
		return &cli.CodedError{Code: cli.ExitError}
	case len(report.Dangers) > 0, report.Warnings > 0 && c.strict:
		return &cli.CodedError{Code: cli.ExitDenied}
	}
	return nil
}

// inspect returns the findings about valid objects together.
func (c *lintCommand) inspect(ctx context.Context, objects []config.Object) (config.Problems, error) {
	snapshot, problems := config.Compile("", objects)
	o := lint.Options{OwnNamespace: c.ownNamespace, MutateBudget: c.mutateBudget, Now: time.Now}
	if c.live {
		var err error
		if o.Definitions, err = definitionsOf(ctx, &c.server); err != nil {
			return nil, err
		}
	}
	problems = append(problems, o.Inspect(ctx, snapshot, objects)...)
	for i := range problems {
		if lint.Refuses(problems[i]) {
			problems[i].Severity = match.SeverityError
		}
	}
	known := slices.Clone(problems)
	for i := range objects {
		if objects[i].Cluster == nil {
			continue
		}
		found, err := c.entryFindings(snapshot, &objects[i], objects)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			if !slices.ContainsFunc(known, func(k config.Problem) bool { return k.Code == p.Code && k.Key == p.Key }) {
				problems = append(problems, p)
			}
		}
	}
	return problems, nil
}

// entryFindings are the findings about the entries of a cluster. Those that name no object are about the Cluster document.
func (c *lintCommand) entryFindings(s *match.Snapshot, cluster *config.Object, objects []config.Object) (config.Problems, error) {
	r, err := registration.Plan(s, cluster.Name, registration.Options{
		URL:          "https://mesh.example.com", // which is in no finding
		OwnNamespace: cmp.Or(c.ownNamespace, "portcullis-system"),
		Timeouts:     registration.Timeouts{Mutate: c.mutateBudget},
	})
	if err != nil {
		return nil, err
	}
	problems := config.ProblemsOf(r.Findings, objects)
	for i, p := range problems {
		if p.File == "" {
			problems[i] = cluster.Problem(p.Severity, p.Code, "", strings.TrimSpace(p.Key.Kind+" "+p.Field)+": "+p.Message)
		}
	}
	return problems, nil
}

// lintReport is the output of lint for tools.
type lintReport struct {
	// Objects is the number of valid objects.
	Objects int `json:"objects"`
	// Errors are findings that keep an object from being in force.
	Errors int `json:"errors"`
	// Warnings are warnings, and dangers that are not acknowledged.
	Warnings int `json:"warnings"`
	// Dangers are the codes of dangers that are not acknowledged, for which apply refuses the documents.
	Dangers []string `json:"dangers,omitempty"`
	// Findings are sorted by file and line.
	Findings []*configv1.Finding `json:"-"`
}

func (r *lintReport) add(f *configv1.Finding, acknowledged []string) {
	r.Findings = append(r.Findings, f)
	switch {
	case f.GetSeverity() == string(match.SeverityError):
		r.Errors++
	case f.GetSeverity() == string(match.SeverityInfo), lint.IsDanger(f.GetCode()) && slices.Contains(acknowledged, f.GetCode()):
	default:
		r.Warnings++
		if lint.IsDanger(f.GetCode()) && !slices.Contains(r.Dangers, f.GetCode()) {
			r.Dangers = append(r.Dangers, f.GetCode())
		}
	}
}

func (r *lintReport) print(out, notes io.Writer, format string) error {
	if format == printer.JSON {
		return printer.WriteJSON(out, struct {
			*lintReport

			Findings []printer.Message `json:"findings"`
		}{r, printer.Messages(r.Findings)})
	}
	line := lineOf
	if format == formatGitHub {
		line = annotationOf
	}
	for _, f := range r.Findings {
		if _, err := fmt.Fprintln(out, line(f)); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%d objects, %d errors, %d warnings", r.Objects, r.Errors, r.Warnings)
	if len(r.Dangers) > 0 {
		text += "\nThe hooks can stop a cluster, and apply refuses them: mend them, or run it and lint with " + service.AcknowledgeFlags(r.Dangers)
	}
	_, err := fmt.Fprintln(notes, text)
	return err
}

// lineOf is a finding as compilers print one.
func lineOf(f *configv1.Finding) string {
	return fmt.Sprintf("%s: %s: %s (%s)", placeOf(f), f.GetSeverity(), aboutOf(f), f.GetCode())
}

func placeOf(f *configv1.Finding) string {
	place := cmp.Or(printer.Text(f.GetFile()), "-")
	if f.GetLine() > 0 {
		place += fmt.Sprintf(":%d", f.GetLine())
	}
	return place
}

// aboutOf is the message of a finding, after the object and the field.
func aboutOf(f *configv1.Finding) string {
	text := printer.Text(f.GetMessage())
	if f.GetPath() != "" {
		text = f.GetPath() + ": " + text
	}
	if f.GetKey() != nil {
		text = Name(f.GetKey()) + ": " + text
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// annotationOf is a finding as a workflow command of GitHub Actions.
func annotationOf(f *configv1.Finding) string {
	level := "warning"
	switch f.GetSeverity() {
	case string(match.SeverityError):
		level = "error"
	case string(match.SeverityInfo):
		level = "notice"
	}
	return printer.Annotation(level, f.GetFile(), int(f.GetLine()), f.GetCode(), aboutOf(f))
}
