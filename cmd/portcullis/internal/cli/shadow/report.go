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
func (r *Report) Write(out io.Writer, limit int) error {
	return r.write(printer.NewPage(out, ""), limit)
}

const minutes = "2006-01-02 15:04"

func at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(minutes)
}

// write writes the report, and of each hook at most limit users and cases.
func (r *Report) write(p printer.Page, limit int) error {
	if err := p.Title(1, "Hooks in shadow"); err != nil {
		return err
	}
	if err := p.Line(r.extent()); err != nil {
		return err
	}
	if len(r.Hooks) == 0 {
		return p.Line("No hook is in shadow, and none was. A HookRoute with `shadow: true`, or a Policy without a mode, puts one there.")
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
	if err := p.Table(columns, rows); err != nil {
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

func writeHook(p printer.Page, s *analysis.Shadow, limit int) error {
	if s.IncompleteBefore.IsZero() && len(s.Cases) == 0 {
		return nil // nothing that the first table has not
	}
	if err := p.Title(2, fmt.Sprintf("%s in cluster %s", s.Name, s.Cluster)); err != nil {
		return err
	}
	if !s.IncompleteBefore.IsZero() {
		if err := p.Line(fmt.Sprintf("Records from before %s UTC were dropped for memory: the counts are too low.", at(s.IncompleteBefore))); err != nil {
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

func writeCases(p printer.Page, cases []analysis.ShadowCase, limit int) error {
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
func tableOf(p printer.Page, columns printer.Columns, rows [][]string, limit int, things string) error {
	if len(rows) == 0 {
		return nil
	}
	if err := p.Table(columns, rows[:min(len(rows), limit)]); err != nil {
		return err
	}
	if more := len(rows) - limit; more > 0 {
		return p.Line(fmt.Sprintf("And %d more %s: use --limit.", more, things))
	}
	return nil
}
