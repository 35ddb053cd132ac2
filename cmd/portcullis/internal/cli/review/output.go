package review

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
)

// Forms of the output beside the forms of [printer].
const (
	formatGitHub = "github" // annotations of GitHub Actions
	formatSARIF  = "sarif"  // of scanners, for GitHub, GitLab and editors
)

// Verdicts of findings that refuse nothing. The outcome of a hook in shadow follows the second.
const (
	verdictWarning = "warning"
	verdictShadow  = "shadow: "
)

// finding is one reason why a document is not allowed, or a warning about it.
type finding struct {
	document *document
	// verdict is the outcome of the stage or of the hook, verdictWarning, or verdictShadow with an outcome.
	verdict string
	// by is the name of a policy or hook; empty if it is not known.
	by      string
	field   string
	message string
}

// findingsOf are the findings about a document.
func findingsOf(d *document, r *report) (found []*finding) {
	if r.Error != "" {
		return []*finding{{document: d, verdict: outcomeFailed, message: r.Error}}
	}
	for _, m := range r.Warnings {
		found = append(found, &finding{document: d, verdict: verdictWarning, field: m.Field, message: m.Message})
	}
	for i := range r.Stages {
		s := &r.Stages[i]
		for _, warning := range s.Warnings {
			found = append(found, (&finding{document: d, verdict: verdictWarning}).saying(warning))
		}
		for _, h := range s.Hooks {
			if h.Shadow == outcomeDenied || h.Shadow == outcomeFailed {
				found = append(found, (&finding{document: d, verdict: verdictShadow + h.Shadow, by: h.Hook}).saying(h.Reason))
			}
		}
		if s.Allowed {
			continue
		}
		before := len(found)
		for _, h := range s.Hooks {
			if s.refusedBy(h) {
				found = append(found, s.finding(d, h))
			}
		}
		if len(found) == before {
			found = append(found, &finding{document: d, verdict: s.Outcome, message: s.Message})
		}
	}
	return found
}

// fieldOfMessage is the beginning of a message that names a field.
var fieldOfMessage = regexp.MustCompile(`^([a-z][A-Za-z0-9]*(?:\.[A-Za-z0-9_/-]+|\[[^]]*\])*): `)

// saying adds a message, and the policy and the field at its beginning, and returns the finding.
func (f *finding) saying(message string) *finding {
	name, message := policy.CutSubject(message)
	f.by, f.message = cmp.Or(name, f.by), message
	if named := fieldOfMessage.FindStringSubmatch(f.message); named != nil {
		f.field = named[1]
	}
	return f
}

// refusedBy reports whether the hook refuses the request of a stage that does not allow it: a policy may fail beside a denial.
func (s *stageReport) refusedBy(h hookReport) bool {
	return h.Outcome == s.Outcome || h.Outcome == outcomeFailed
}

// finding is the refusal by one hook.
func (s *stageReport) finding(d *document, h hookReport) *finding {
	f := (&finding{document: d, verdict: h.Outcome, by: h.Hook}).saying(cmp.Or(h.Reason, s.Message))
	refused := 0
	for _, other := range s.Hooks {
		if s.refusedBy(other) {
			refused++
		}
	}
	if refused > 1 || f.field != "" {
		return f // nothing tells whose a cause is
	}
	for _, c := range s.Causes {
		if c.Field != "" {
			f.field, f.message = c.Field, c.Field+": "+f.message
			break
		}
	}
	return f
}

// summary counts the documents. Its JSON form is stable: fields may be added.
type summary struct {
	Reviewed int `json:"reviewed"`
	Allowed  int `json:"allowed"`
	Denied   int `json:"denied"`
	Failed   int `json:"failed"`
	Warnings int `json:"warnings"`
	// Shadow are documents that a policy or hook in shadow would refuse, as far as it is known.
	Shadow int `json:"shadow"`
	// Unmatched are documents that no policy or hook is about.
	Unmatched int `json:"unmatched"`
	// Foreign are documents of directories that are not for an API server.
	Foreign int `json:"foreign"`
}

func (s *summary) add(r *report) {
	s.Reviewed++
	s.Warnings += len(r.Warnings)
	for i := range r.Stages {
		s.Warnings += len(r.Stages[i].Warnings)
	}
	if r.wouldRefuse() {
		s.Shadow++
	}
	switch r.code() {
	case cli.ExitDenied:
		s.Denied++
	case cli.ExitError:
		s.Failed++
	default:
		s.Allowed++
	}
	if r.Error == "" && !r.matched {
		s.Unmatched++
	}
}

// String is the summary for people.
func (s *summary) String() string {
	text := fmt.Sprintf("%d reviewed: %d allowed, %d denied, %d failed, %d warnings", s.Reviewed, s.Allowed, s.Denied, s.Failed, s.Warnings)
	if s.Shadow > 0 {
		text += fmt.Sprintf("; policies and hooks in shadow would refuse %d", s.Shadow)
	}
	if s.Unmatched > 0 {
		text += fmt.Sprintf("; %d matched no policy or hook", s.Unmatched)
	}
	if s.Foreign > 0 {
		text += fmt.Sprintf("; %d documents that are no objects were left out", s.Foreign)
	}
	return text
}

// output writes reports as they come.
type output struct {
	out, notes io.Writer
	format     string
	alone      bool // there is one document, which a file has: its report stands for itself
	detailed   bool
	lines      *printer.Table
	rows       [][]string // that are not written yet

	summary summary
	reports []*report // for JSON
	sarif   sarifRun
	code    int // of the process
}

func newOutput(out, notes io.Writer, format string) *output {
	o := &output{out: out, notes: notes, format: format, reports: []*report{}}
	o.lines = printer.NewTable(out, "", printer.Heads("", "", "", "", "")).WithoutHeads()
	return o
}

// add writes one report.
func (o *output) add(d *document, r *report) error {
	o.summary.add(r)
	o.code = max(o.code, r.code()) // no verdict is worse than a denial
	switch o.format {
	case printer.JSON:
		o.reports = append(o.reports, r)
		return nil
	case formatSARIF:
		o.sarif.add(findingsOf(d, r))
		return nil
	case formatGitHub:
		for _, f := range findingsOf(d, r) {
			if _, err := fmt.Fprintln(o.out, f.annotation()); err != nil {
				return err
			}
		}
		return nil
	}
	if !o.detailed {
		return o.line(d, r)
	}
	return o.detail(d, r)
}

// detail writes the whole of a report.
func (o *output) detail(d *document, r *report) error {
	if !o.alone {
		space := ""
		if o.summary.Reviewed > 1 {
			space = "\n"
		}
		fmt.Fprintf(o.out, "%s%s  %s\n", space, printer.Text(d.place("")), printer.Text(cmp.Or(r.Object, "failed")))
	}
	if r.Error != "" {
		_, err := fmt.Fprintf(o.out, "  %s\n", printer.Text(r.Error))
		return err
	}
	return r.write(o.out)
}

// line writes a line for each reason why a document is refused, and each warning; or one for a document that is allowed.
func (o *output) line(d *document, r *report) error {
	for _, f := range findingsOf(d, r) {
		o.rows = append(o.rows, []string{d.place(f.field), cmp.Or(d.name, "-"), f.verdict, cmp.Or(f.by, "-"), f.message})
	}
	if r.Allowed {
		note := ""
		if !r.matched {
			note = unmatchedNote
		}
		o.rows = append(o.rows, []string{d.place(""), d.name, r.verdict(), "-", note})
	}
	if len(o.rows) < maxRows {
		return nil
	}
	return o.flush()
}

// maxRows is how many rows are aligned together before they are written.
const maxRows = 200

func (o *output) flush() error {
	rows := o.rows
	o.rows = nil
	return o.lines.Write(rows...)
}

// wouldRefuse reports whether a policy or hook in shadow would refuse the request.
func (r *report) wouldRefuse() bool {
	for i := range r.Stages {
		for _, h := range r.Stages[i].Hooks {
			if h.Shadow == outcomeDenied || h.Shadow == outcomeFailed {
				return true
			}
		}
	}
	return false
}

// verdict is the verdict of the last stage, and whether the object was changed in any.
func (r *report) verdict() string {
	for i := range r.Stages {
		if len(r.Stages[i].Patch) > 0 {
			return outcomeAllowed + ", with changes"
		}
	}
	return r.Stages[len(r.Stages)-1].Outcome
}

// end writes the reports for tools, and the summary.
func (o *output) end() error {
	switch {
	case o.format == printer.JSON && o.alone && len(o.reports) == 1:
		return printer.WriteJSON(o.out, o.reports[0])
	case o.format == printer.JSON:
		return printer.WriteJSON(o.out, struct {
			Reviews []*report `json:"reviews"`
			Summary summary   `json:"summary"`
		}{o.reports, o.summary})
	case o.format == formatSARIF:
		if err := printer.WriteJSON(o.out, o.sarif.log()); err != nil {
			return err
		}
	case o.format == "" && o.alone:
		return nil
	}
	if err := o.flush(); err != nil {
		return err
	}
	to := o.notes
	if o.format == "" || o.format == printer.Wide {
		to = o.out
		if o.detailed {
			fmt.Fprintln(to)
		}
	}
	_, err := fmt.Fprintln(to, o.summary.String())
	return err
}

// Levels of findings, as SARIF has them.
const (
	levelError   = "error"
	levelWarning = "warning"
	levelNote    = "note"
)

func (f *finding) level() string {
	switch {
	case f.verdict == verdictWarning:
		return levelWarning
	case strings.HasPrefix(f.verdict, verdictShadow):
		return levelNote
	}
	return levelError
}

// annotation is a finding as a workflow command of GitHub Actions.
func (f *finding) annotation() string {
	level := f.level()
	if level == levelNote {
		level = "notice" // the word of GitHub
	}
	title := cmp.Or(f.document.name, "document") + " " + f.verdict
	return printer.Annotation(level, f.document.file, f.document.line(f.field), title, f.text())
}

// text is the message of a finding, after the policy or hook.
func (f *finding) text() string {
	if f.by != "" {
		return printer.Text(f.by + ": " + f.message)
	}
	return printer.Text(cmp.Or(f.message, f.verdict))
}
