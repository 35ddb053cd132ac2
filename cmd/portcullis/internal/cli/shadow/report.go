package shadow

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

// Report has the effects that hooks in shadow would have had. Its JSON form is stable: fields may be added.
type Report struct {
	// Since is the begin of the first hour that was asked for.
	Since time.Time `json:"since"`
	// Dispatchers answered.
	Dispatchers []Dispatcher `json:"dispatchers"`
	// Hooks by name and cluster; those without a cluster were not called.
	Hooks []analysis.Shadow `json:"hooks"`
}

// Dispatcher has records since its start.
type Dispatcher struct {
	ID             string    `json:"id"`
	RecordingSince time.Time `json:"recordingSince"`
}

// Totals are how many requests the hooks of a configuration would have denied or failed for, how many they would have changed, and how many they judged.
// The configuration of a policy is KIND/NAME.
func (r *Report) Totals(configuration string) (denied, changed, calls uint64) {
	for i := range r.Hooks {
		if s := &r.Hooks[i]; s.Configuration == configuration {
			denied, changed, calls = denied+s.WouldDeny+s.Failed, changed+s.WouldPatch, calls+s.Calls
		}
	}
	return denied, changed, calls
}

// Write writes the report as tables, and of each hook at most limit users and cases.
func (r *Report) Write(out io.Writer, limit int) error { return r.write(&tables{out: out}, limit) }

// page is a form of a report for people.
type page interface {
	// title begins a part.
	title(level int, text string) error
	// line writes a sentence.
	line(text string) error
	// table writes rows. wide columns are at the end.
	table(columns printer.Columns, rows [][]string) error
}

const minutes = "2006-01-02 15:04"

func at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(minutes)
}

// write writes the report, and of each hook at most limit users and cases.
func (r *Report) write(p page, limit int) error {
	if err := p.title(1, "Hooks in shadow"); err != nil {
		return err
	}
	if err := p.line(r.extent()); err != nil {
		return err
	}
	if len(r.Hooks) == 0 {
		return p.line("No hook is in shadow, and none was. A HookRoute with `shadow: true`, or a Policy without a mode, puts one there.")
	}
	columns := printer.Heads("HOOK", "CLUSTER", "REQUESTS", "ALLOWED", "WOULD DENY", "WOULD CHANGE", "FAILED", "DROPPED", "P50", "P99", "LAST SEEN (UTC)", "NOW").
		Wide("STAGE", "CONFIGURATION", "FIRST SEEN (UTC)")
	var rows [][]string
	for i := range r.Hooks {
		s := &r.Hooks[i]
		rows = append(rows, []string{
			s.Name, cmp.Or(s.Cluster, "-"), fmt.Sprint(s.Calls), fmt.Sprint(s.Allowed), fmt.Sprint(s.WouldDeny), fmt.Sprint(s.WouldPatch), fmt.Sprint(s.Failed),
			fmt.Sprint(s.Dropped), s.P50.Cell(), s.P99.Cell(), at(s.LastSeen), s.State, s.Stage, s.Configuration, at(s.FirstSeen),
		})
	}
	if err := p.table(columns, rows); err != nil {
		return err
	}
	for i := range r.Hooks {
		if err := writeHook(p, &r.Hooks[i], limit); err != nil {
			return err
		}
	}
	return nil
}

// extent names the time and the dispatchers of the report.
func (r *Report) extent() string {
	var begun []string
	for _, d := range r.Dispatchers {
		if d.RecordingSince.After(r.Since) {
			begun = append(begun, fmt.Sprintf("%s records since %s", d.ID, at(d.RecordingSince)))
		}
	}
	text := fmt.Sprintf("Requests since %s UTC, by %d dispatchers.", at(r.Since), len(r.Dispatchers))
	if len(begun) > 0 {
		text += " Of them " + strings.Join(begun, ", ") + "."
	}
	return text
}

func writeHook(p page, s *analysis.Shadow, limit int) error {
	if s.IncompleteBefore.IsZero() && len(s.Cases) == 0 {
		return nil // nothing that the first table has not
	}
	if err := p.title(2, fmt.Sprintf("%s in cluster %s", s.Name, s.Cluster)); err != nil {
		return err
	}
	if !s.IncompleteBefore.IsZero() {
		if err := p.line(fmt.Sprintf("Records from before %s UTC were dropped for memory: the counts are too low.", at(s.IncompleteBefore))); err != nil {
			return err
		}
	}
	var rows [][]string
	for i := range s.Subjects {
		u := &s.Subjects[i]
		if u.WouldDeny+u.WouldPatch+u.Failed == 0 {
			continue
		}
		namespace, user := cmp.Or(u.Namespace, "-"), cmp.Or(u.User, "-")
		if u.Others {
			namespace, user = "(others)", "(others)"
		}
		rows = append(rows, []string{
			namespace, user, fmt.Sprint(u.Calls), fmt.Sprint(u.WouldDeny), fmt.Sprint(u.WouldPatch), fmt.Sprint(u.Failed), at(u.FirstSeen), at(u.LastSeen),
		})
	}
	columns := printer.Heads("NAMESPACE", "USER", "REQUESTS", "WOULD DENY", "WOULD CHANGE", "FAILED", "FIRST SEEN (UTC)", "LAST SEEN (UTC)")
	if err := tableOf(p, columns, rows, limit, "users"); err != nil {
		return err
	}
	return writeCases(p, s.Cases, limit)
}

func writeCases(p page, cases []analysis.ShadowCase, limit int) error {
	var rows [][]string
	for i := range cases {
		c := &cases[i]
		rows = append(rows, []string{
			at(c.LastSeen), c.Word(), fmt.Sprint(c.Calls), cmp.Or(c.Namespace, "-"), cmp.Or(c.User, "-"), c.Object(), cmp.Or(c.Message, "-"), c.UID, c.Dispatcher,
		})
	}
	columns := printer.Heads("LAST SEEN (UTC)", "WOULD", "REQUESTS", "NAMESPACE", "USER", "OBJECT", "MESSAGE").Wide("UID", "DISPATCHER")
	return tableOf(p, columns, rows, limit, "cases")
}

// tableOf writes at most limit rows, and how many there are more.
func tableOf(p page, columns printer.Columns, rows [][]string, limit int, things string) error {
	if len(rows) == 0 {
		return nil
	}
	if err := p.table(columns, rows[:min(len(rows), limit)]); err != nil {
		return err
	}
	if more := len(rows) - limit; more > 0 {
		return p.line(fmt.Sprintf("And %d more %s: use --limit.", more, things))
	}
	return nil
}

// tables is a page for a terminal.
type tables struct {
	out    io.Writer
	format string // of -o
}

func (t *tables) title(level int, text string) error {
	if level == 1 {
		return nil
	}
	_, err := fmt.Fprintf(t.out, "\n%s\n", printer.Text(text))
	return err
}

func (t *tables) line(text string) error {
	_, err := fmt.Fprintln(t.out, printer.Text(text))
	return err
}

func (t *tables) table(columns printer.Columns, rows [][]string) error {
	fmt.Fprintln(t.out)
	return printer.NewTable(t.out, t.format, columns).Write(rows...)
}

// markdownPage is a page as GitHub and others render it.
type markdownPage struct{ out io.Writer }

func (m *markdownPage) title(level int, text string) error {
	_, err := fmt.Fprintf(m.out, "%s %s\n\n", strings.Repeat("#", level), escape(text))
	return err
}

func (m *markdownPage) line(text string) error {
	_, err := fmt.Fprintf(m.out, "%s\n\n", escape(text))
	return err
}

func (m *markdownPage) table(columns printer.Columns, rows [][]string) error {
	heads, rule := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		heads[i], rule[i] = c.Name, "---"
	}
	for _, row := range append([][]string{heads, rule}, rows...) {
		for i, cell := range row {
			row[i] = escape(cell)
		}
		if _, err := fmt.Fprintf(m.out, "| %s |\n", strings.Join(row, " | ")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(m.out)
	return err
}

// escape makes a foreign text one line that is no Markdown and no HTML.
func escape(text string) string {
	text = strings.ReplaceAll(printer.Text(text), "\n", " ")
	var out strings.Builder
	for _, c := range text {
		if strings.ContainsRune("\\`*_[]<>|~$&", c) {
			out.WriteByte('\\')
		}
		out.WriteRune(c)
	}
	return out.String()
}
