package mesh

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// Changes shows the changes of the configuration with their authors, the latest first; with Watch the latest last.
func (s *Show) Changes(ctx context.Context) error {
	columns := printer.Heads("REVISION", "WHEN", "WHO", "WHAT")
	if s.Watch {
		w := &changesShown{Show: s, table: printer.NewTable(s.Out, s.Format, columns)}
		return s.poll(ctx, w.once)
	}
	answer, err := s.Config.ListChanges(ctx, &configv1.ListChangesRequest{})
	if err != nil {
		return err
	}
	return s.print(printer.Message{Message: answer}, columns, ChangeRows(answer.GetChanges(), ""))
}

type changesShown struct {
	*Show

	table  *printer.Table
	begun  bool
	latest string // revision of the last one; empty when there was none
}

// once shows the changes that came since the last look. Where there are more than an answer has unasked, all are asked for that
// the store remembers.
func (w *changesShown) once(ctx context.Context) error {
	answer, err := w.Config.ListChanges(ctx, &configv1.ListChangesRequest{})
	if err != nil {
		return err
	}
	fresh, met := w.since(answer)
	if w.begun && !met && len(fresh) > 0 {
		if answer, err = w.Config.ListChanges(ctx, &configv1.ListChangesRequest{Limit: etcdstore.MaxHistory}); err != nil {
			return err
		}
		if fresh, met = w.since(answer); !met && w.latest != "" {
			fmt.Fprintf(w.Notes, "after %s there were changes that the store no longer remembers\n", printer.Text(w.latest))
		}
	}
	if w.begun = true; len(fresh) > 0 {
		w.latest = fresh[len(fresh)-1].GetRevision()
	}
	if w.Format != printer.JSON {
		return w.table.Write(ChangeRows(fresh, "")...)
	}
	for _, change := range fresh {
		if err := printer.WriteLine(w.Out, printer.Message{Message: change}); err != nil {
			return err
		}
	}
	return nil
}

// since returns the changes of an answer that have not been shown, the latest last. met is false when the last shown change is
// not among the others.
func (w *changesShown) since(answer *configv1.ListChangesResponse) (fresh []*configv1.Change, met bool) {
	fresh = slices.Clone(answer.GetChanges())
	shown := slices.IndexFunc(fresh, func(c *configv1.Change) bool { return c.GetRevision() == w.latest })
	if shown >= 0 {
		fresh = fresh[:shown]
	}
	slices.Reverse(fresh)
	return fresh, shown >= 0
}

// ChangeRows are changes in a table: the first of their actions, of those that name the object about if any does.
func ChangeRows(changes []*configv1.Change, about string) [][]string {
	rows := make([][]string, 0, len(changes))
	for _, change := range changes {
		actions := change.GetActions()
		shown := slices.DeleteFunc(slices.Clone(actions), func(action string) bool { return about != "" && !isAbout(action, about) })
		if len(shown) == 0 {
			shown = actions
		}
		summary := firstOf(shown, shownNames, len(actions)-len(shown), ", ")
		if a := change.GetAcknowledged(); len(a) > 0 {
			summary += fmt.Sprintf(" (acknowledged %s)", strings.Join(a, ", "))
		}
		rows = append(rows, []string{change.GetRevision(), change.GetAt().AsTime().Format(time.RFC3339), change.GetActor(), summary})
	}
	return rows
}

// isAbout reports whether an action of a change names an object.
func isAbout(action, object string) bool {
	return slices.ContainsFunc(strings.Fields(action), func(word string) bool { return strings.TrimSuffix(word, ":") == object })
}
