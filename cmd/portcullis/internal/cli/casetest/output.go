package casetest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cases"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

// report is the output for tools.
type report struct {
	// Passed and Failed are numbers of cases.
	Passed int `json:"passed"`
	Failed int `json:"failed"`
	// Files are the case files.
	Files []*fileReport `json:"files"`
	// Coverage is the coverage; absent without --coverage.
	Coverage *coverage `json:"coverage,omitempty"`

	errs []error // of files and cases that cannot be judged
}

// fileReport is the result of a case file.
type fileReport struct {
	File  string        `json:"file"`
	Cases []*caseReport `json:"cases"`
	// NotCalled are the initializers that no host of the file serves: the cases are judged without them.
	NotCalled []string `json:"initializersNotCalled,omitempty"`
	// Log is the end of the output of the hosts; absent if all cases have passed.
	Log    string `json:"log,omitempty"`
	failed int
	took   time.Duration
}

// caseReport is the result of a case.
type caseReport struct {
	Name   string `json:"name"`
	Line   int    `json:"line"`
	Passed bool   `json:"passed"`
	// Verdict is the verdict of the policies.
	Verdict  cases.Verdict `json:"verdict"`
	Failures []string      `json:"failures,omitempty"`
	// Review is the AdmissionReview with request and response; absent without --verbose.
	Review json.RawMessage `json:"review,omitempty"`
	took   time.Duration
}

// coverage is the coverage with its part in percent.
type coverage struct {
	*cases.Coverage

	Percentage float64 `json:"percent"`
}

func newCoverage(c *cases.Coverage) *coverage { return &coverage{c, c.Percent()} }

// add adds the results of a file, whose hosts have written a log and serve all initializers but some.
func (r *report) add(file string, results []cases.Result, log string, notCalled []string) {
	f := &fileReport{File: file, Cases: []*caseReport{}, NotCalled: notCalled}
	for i := range results {
		one := &results[i]
		if one.Err != nil {
			r.errs = append(r.errs, one.Err)
			continue
		}
		passed := len(one.Failures) == 0
		f.Cases = append(f.Cases, &caseReport{one.Name, one.Line, passed, one.Verdict, one.Failures, one.Review, one.Took})
		f.took += one.Took
		if passed {
			r.Passed++
		} else {
			r.Failed++
			f.failed++
		}
	}
	if f.failed > 0 {
		f.Log = log
	}
	if len(f.Cases) > 0 {
		r.Files = append(r.Files, f)
	}
}

// write writes the report in the form of -o.
func (c *command) write(out io.Writer, r *report) error {
	switch c.output {
	case printer.JSON:
		return printer.WriteJSON(out, r)
	case formatJUnit:
		return r.writeJUnit(out)
	}
	var text strings.Builder
	for _, f := range r.Files {
		c.writeFile(&text, f)
	}
	r.writeCoverage(&text, c.output == formatGitHub)
	fmt.Fprintln(&text, r.summary())
	_, err := io.WriteString(out, text.String())
	return err
}

// writeFile writes the lines of the cases that have failed, and of the file.
func (c *command) writeFile(text *strings.Builder, f *fileReport) {
	for _, one := range f.Cases {
		failures := printer.Text(strings.Join(one.Failures, "\n"))
		switch name := printer.Text(one.Name); {
		case one.Passed && c.verbose:
			fmt.Fprintf(text, "%s:%d: ok: %s\n", f.File, one.Line, name)
		case one.Passed:
		case c.output == formatGitHub:
			fmt.Fprintln(text, printer.Annotation("error", f.File, one.Line, name, failures))
		default:
			fmt.Fprintf(text, "%s:%d: FAIL: %s\n%s\n", f.File, one.Line, name, indent(failures))
		}
	}
	if len(f.NotCalled) > 0 {
		warning := "initializers without a host are not called: " + strings.Join(f.NotCalled, ", ")
		if c.output == formatGitHub {
			fmt.Fprintln(text, printer.Annotation("warning", f.File, 1, "initializers are not called", warning))
		} else {
			fmt.Fprintf(text, "%s: warning: %s\n", f.File, printer.Text(warning))
		}
	}
	if f.Log != "" {
		fmt.Fprintf(text, "%s: output of the hosts:\n%s\n", f.File, indent(printer.Text(f.Log)))
	}
	if f.failed > 0 {
		fmt.Fprintf(text, "FAIL  %s  %d of %s failed\n", f.File, f.failed, casesOf(len(f.Cases)))
		return
	}
	fmt.Fprintf(text, "ok    %s  %s\n", f.File, casesOf(len(f.Cases)))
}

// writeCoverage writes the gaps and the sum.
func (r *report) writeCoverage(text *strings.Builder, annotations bool) {
	if r.Coverage == nil {
		return
	}
	for _, gap := range r.Coverage.Gaps {
		if annotations {
			fmt.Fprintln(text, printer.Annotation("warning", gap.File, gap.Line, "not covered", fmt.Sprintf("%s: %s %s", gap.Policy, gap.Field, gap.Missing)))
			continue
		}
		fmt.Fprintln(text, gap)
	}
	fmt.Fprintf(text, "coverage: %.1f %%, %d of %d outcomes of rules\n", r.Coverage.Percentage, r.Coverage.Covered, r.Coverage.Points)
}

// summary is the last line.
func (r *report) summary() string {
	switch {
	case len(r.errs) > 0:
		return fmt.Sprintf("FAIL: %d of %s failed, and there are errors in files", r.Failed, casesOf(r.Passed+r.Failed))
	case r.Failed > 0:
		return fmt.Sprintf("FAIL: %d of %s failed", r.Failed, casesOf(r.Passed+r.Failed))
	}
	return fmt.Sprintf("ok: %s passed", casesOf(r.Passed))
}

func casesOf(n int) string {
	if n == 1 {
		return "1 case"
	}
	return fmt.Sprintf("%d cases", n)
}

func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// junitSuites are results in the form that CI servers read.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes the report as XML.
func (r *report) writeJUnit(out io.Writer) error {
	all := junitSuites{Tests: r.Passed + r.Failed, Failures: r.Failed}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
	for _, f := range r.Files {
		suite := junitSuite{Name: f.File, Tests: len(f.Cases), Failures: f.failed, Time: seconds(f.took)}
		for _, one := range f.Cases {
			made := junitCase{Name: one.Name, Class: f.File, File: f.File, Line: one.Line, Time: seconds(one.took)}
			if !one.Passed {
				first, _, _ := strings.Cut(one.Failures[0], "\n")
				made.Failure = &junitFailure{first, strings.Join(one.Failures, "\n")}
			}
			suite.Cases = append(suite.Cases, made)
		}
		all.Suites = append(all.Suites, suite)
	}
	raw, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s%s\n", xml.Header, raw)
	return err
}
