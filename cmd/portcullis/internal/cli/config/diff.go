package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

type diffCommand struct {
	files       []string
	timeout     time.Duration
	acknowledge []string
	mesh        connect.MeshAddress
	output      string
}

// NewDiff returns "diff".
func NewDiff() *cobra.Command {
	var c diffCommand
	cmd := &cobra.Command{
		Use:   "diff -f PATH",
		Short: "Show the changes that apply would make",
		Long: `Diff asks the mesh for the outcome of "portcullis apply" with the same files, and shows for each object how its meaning would
change: defaults, the order of fields and comments are no differences. Objects that are not in the files are left alone.

Findings that would refuse the apply, or have to be acknowledged, are on standard error.
` + connect.Usage + `
Exit codes: 0 without differences; 1 with some; 2 when the apply would be refused, or the command failed.`,
		Example: `  portcullis diff -f conf.d --ready-file /tmp/ready.json
  git show main:hooks.yaml | portcullis diff -f - -o json`,
		Args: filesByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			differs, err := c.run(cmd)
			switch {
			case err != nil:
				return &cli.CodedError{Err: err, Code: cli.ExitError} // 1 stands for differences
			case differs:
				return &cli.CodedError{Code: cli.ExitDenied}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&c.files, "filename", "f", nil, filenameUsage)
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long an answer may take")
	f.StringArrayVar(&c.acknowledge, "acknowledge", nil, "code of a danger that the apply would acknowledge; may be given several times")
	cli.OutputFlag(cmd, &c.output, "json for tools (default: text)", printer.JSON)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *diffCommand) run(cmd *cobra.Command) (differs bool, err error) {
	if len(c.files) == 0 {
		return false, errors.New(`-f is missing: name a file or directory, or "-"`)
	}
	objects, err := documents(cmd, c.files)
	if err != nil {
		return false, err
	}
	var d differences
	err = c.mesh.Config(cmd.Context(), c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		answer, refused := client.Apply(ctx, &configv1.ApplyRequest{Manifests: manifests(objects), DryRun: true, Acknowledge: c.acknowledge})
		code := status.Code(refused)
		refused = refusalOf(refused, objects)
		if refused != nil && code != codes.FailedPrecondition { // a missing acknowledgement is not about the objects
			return refused
		}
		placeFindings(answer.GetFindings(), objects)
		stored, err := client.List(ctx, &configv1.ListRequest{})
		if err != nil {
			return err
		}
		if d, err = differencesOf(stored.GetObjects(), objects); err != nil {
			return err
		}
		findings := answer.GetFindings()
		if r := (*refusal)(nil); errors.As(refused, &r) && c.output == printer.JSON {
			findings = r.findings
		}
		if err := c.print(cmd, d, findings); err != nil {
			return err
		}
		return refused
	})
	return d.some(), err
}

func (c *diffCommand) print(cmd *cobra.Command, d differences, findings []*configv1.Finding) error {
	out := cmd.OutOrStdout()
	if c.output == printer.JSON {
		d.Findings = printer.Messages(findings)
		return printer.WriteJSON(out, d)
	}
	printFindings(cmd.ErrOrStderr(), findings)
	for _, o := range d.Objects {
		if _, err := io.WriteString(out, printer.Text(o.Diff)); err != nil {
			return err
		}
	}
	return nil
}

// differences are the changes that an apply would make.
type differences struct {
	// Objects are in the order of the files.
	Objects []difference `json:"objects"`
	// Findings are the findings that the apply would report.
	Findings []printer.Message `json:"findings,omitempty"`
}

// difference is the change of one object.
type difference struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Result is "created", "updated" or "unchanged". An object that would be written differently and mean the same is unchanged.
	Result string `json:"result"`
	// Diff is the change as patch reads it; empty when there is none.
	Diff string `json:"diff,omitempty"`
}

func (d *differences) some() bool {
	return slices.ContainsFunc(d.Objects, func(o difference) bool { return o.Diff != "" })
}

func differencesOf(stored []*configv1.ConfigObject, wanted []config.Object) (differences, error) {
	known := make(map[string]*configv1.ConfigObject, len(stored))
	for _, o := range stored {
		known[Name(o.GetKey())] = o
	}
	d := differences{Objects: []difference{}}
	for i := range wanted {
		o := &wanted[i]
		after, err := meaning(o)
		if err != nil {
			return d, err
		}
		before, result := "", "created"
		if old := known[o.Key.String()]; old != nil {
			if before, err = storedMeaning(old); err != nil {
				return d, err
			}
			result = "updated"
		}
		text, err := Unified(o.Key.String(), before, after)
		if err != nil {
			return d, err
		}
		if text == "" {
			result = "unchanged"
		}
		d.Objects = append(d.Objects, difference{Kind: o.Kind, Name: o.Name, Result: result, Diff: text})
	}
	return d, nil
}

// storedMeaning is meaning, of an object of the mesh. An object that this program cannot read is shown as it is
// written.
func storedMeaning(o *configv1.ConfigObject) (string, error) {
	raw := o.GetManifest().GetRaw()
	if objects, _ := NewDecoder().Decode("", raw); len(objects) == 1 {
		return meaning(&objects[0])
	}
	text, err := yaml.JSONToYAML(raw)
	return string(text), err
}

// meaning is an object with its defaults, as YAML with its fields in alphabetical order.
func meaning(o *config.Object) (string, error) {
	var fields map[string]any
	data, err := json.Marshal(o.Content())
	if err == nil {
		err = yaml.Unmarshal(data, &fields)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", o.Key, err)
	}
	fields["apiVersion"], fields["kind"] = o.APIVersion, o.WrittenKind()
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		delete(metadata, "generation") // which no author writes
	}
	text, err := yaml.Marshal(fields)
	return string(text), err
}

const (
	// diffContext is how many lines are shown around a change.
	diffContext = 3
	// maxDiffLines bounds how much is compared: texts that differ from their first change to their last in more than so many
	// lines on both sides are shown as gone and made anew. Of lines that come again and again 10,000 take seconds, 40,000 minutes.
	maxDiffLines = 4096
)

// Unified is how two texts of an object differ, as patch reads it; empty when they do not. Without a text there is no object. Each line has
// an end.
func Unified(object, before, after string) (string, error) {
	a, b := slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(after))
	if differ := min(len(a), len(b)) - same(a, b); differ > maxDiffLines {
		gone, err := Unified(object, before, "")
		if err != nil {
			return "", err
		}
		made, err := Unified(object, "", after)
		return gone + made, err
	}
	side := func(text string) string {
		if text == "" {
			return "/dev/null"
		}
		return object
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: a, FromFile: side(before), B: b, ToFile: side(after), Context: diffContext,
	})
}

func same(a, b []string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	a, b = a[n:], b[n:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b, n = a[:len(a)-1], b[:len(b)-1], n+1
	}
	return n
}
