package config

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// refusal is why objects are not applied, by the mesh or since their files are not valid.
type refusal struct {
	text     string // for people, with the findings
	message  string // without them
	findings []*configv1.Finding
}

// Error is the text for people.
func (r *refusal) Error() string { return r.text }

// printRefusal writes a refusal as JSON, and nothing for another error.
func printRefusal(w io.Writer, err error) error {
	r := (*refusal)(nil)
	if !errors.As(err, &r) {
		return nil
	}
	return printer.WriteJSON(w, map[string]any{"error": r.message, "findings": printer.Messages(r.findings)})
}

// invalid is the refusal of files with problems; nil without any.
func invalid(problems config.Problems) error {
	err := problems.Err()
	if err == nil {
		return nil
	}
	r := &refusal{text: err.Error(), message: "the files are not valid"}
	for _, p := range problems {
		r.findings = append(r.findings, service.FindingOf(p))
	}
	return cli.Refused(r)
}

// refusalOf is the error of an apply with its findings at their places in the files of the objects; err itself when it has none.
func refusalOf(err error, objects []config.Object) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	r := &refusal{}
	for _, detail := range s.Details() {
		if f, ok := detail.(*configv1.Finding); ok {
			r.findings = append(r.findings, f)
		}
	}
	if len(r.findings) == 0 {
		return err
	}
	placeFindings(r.findings, objects)
	lines := strings.Split(s.Message(), "\n  ") // the message itself, its findings, and whether there are more
	r.message = lines[0]
	if len(lines) > 1+len(r.findings) {
		r.message += fmt.Sprintf(" (of the findings these are the first %d)", len(r.findings))
	}
	r.text = r.message
	for _, f := range r.findings {
		r.text += "\n  " + problemOf(f).String()
	}
	return cli.Refused(r)
}

// placeFindings adds file and line to findings about objects of files.
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
			where = placeOf(f) + ": "
		}
		fmt.Fprintf(w, "%s: %s%s (%s)\n", f.GetSeverity(), where, aboutOf(f), f.GetCode())
	}
}
