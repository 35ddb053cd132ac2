package config

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/service"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// refusedError is why an apply is refused, with the findings that stand against it.
type refusedError struct {
	message  string
	findings []*configv1.Finding
}

// Error is the message and a line for each finding.
func (e *refusedError) Error() string {
	var text strings.Builder
	text.WriteString(e.message)
	for _, f := range e.findings {
		text.WriteString("\n  " + problemOf(f).String())
	}
	return text.String()
}

type invalidError struct {
	error

	problems config.Problems
}

// printRefusal writes why an apply is refused as JSON; nothing when the error is none of those that say it.
func printRefusal(w io.Writer, err error) error {
	var out struct {
		Error    string            `json:"error"`
		Findings []printer.Message `json:"findings"`
	}
	var findings []*configv1.Finding
	if told := (*refusedError)(nil); errors.As(err, &told) {
		out.Error, findings = told.message, told.findings
	} else if invalid := (*invalidError)(nil); errors.As(err, &invalid) {
		out.Error = "the files are not valid"
		for _, p := range invalid.problems {
			findings = append(findings, service.FindingOf(p))
		}
	} else {
		return nil
	}
	out.Findings = printer.Messages(findings)
	return printer.WriteJSON(w, out)
}

// refusalOf is the error of an apply with its findings at their places in the files of the objects; err itself when it has none.
func refusalOf(err error, objects []config.Object) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	var refusal refusedError
	for _, detail := range s.Details() {
		if f, ok := detail.(*configv1.Finding); ok {
			refusal.findings = append(refusal.findings, f)
		}
	}
	if len(refusal.findings) == 0 {
		return err
	}
	placeFindings(refusal.findings, objects)
	lines := strings.Split(s.Message(), "\n  ") // the message itself, its findings, and whether there are more
	refusal.message = lines[0]
	if len(lines) > 1+len(refusal.findings) {
		refusal.message += fmt.Sprintf(" (of the findings these are the first %d)", len(refusal.findings))
	}
	return cli.Refused(&refusal)
}

// placeFindings says of findings about objects where these stand in their files.
func placeFindings(findings []*configv1.Finding, objects []config.Object) {
	places := make(map[string]*config.Object, len(objects))
	for i := range objects {
		places[objects[i].String()] = &objects[i]
	}
	for _, f := range findings {
		if o := places[Name(f.GetKey())]; o != nil {
			f.File, f.Line = o.File, uint32(max(o.LineOf(f.GetPath()), 0))
		}
	}
}

func problemOf(f *configv1.Finding) config.Problem {
	return config.Problem{
		File: f.GetFile(), Line: int(f.GetLine()), Key: config.Key{Kind: f.GetKey().GetKind(), Name: f.GetKey().GetName()},
		Field: printer.Text(f.GetPath()), Message: printer.Text(f.GetMessage()),
	}
}

func printFindings(w io.Writer, findings []*configv1.Finding) {
	for _, f := range findings {
		where := ""
		if f.GetFile() != "" {
			where = fmt.Sprintf("%s:%d: ", printer.Text(f.GetFile()), f.GetLine())
		}
		if f.GetKey() != nil {
			where += Name(f.GetKey()) + ": "
		}
		if f.GetPath() != "" {
			where += f.GetPath() + ": "
		}
		fmt.Fprintf(w, "%s: %s%s (%s)\n", f.GetSeverity(), where, printer.Text(f.GetMessage()), f.GetCode())
	}
}
