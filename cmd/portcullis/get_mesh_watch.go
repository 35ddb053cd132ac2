package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/config/gateway"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// lookAgainAfter is the pause between two looks at what has no stream of its own.
const lookAgainAfter = time.Second

// look asks again and again until it is interrupted, which is no error. Once a dispatcher has answered, one that does not is
// asked again: another one does, or it does again.
func (c *getCommand) look(ctx context.Context, notes io.Writer, ask func(ctx context.Context) error) error {
	if c.output.value == formatYAML {
		return errNoYAML
	}
	begun, silent := false, false
	for {
		err := c.within(ctx, ask)
		code := status.Code(err)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // whoever watched has seen enough
		case err == nil:
			begun, silent = true, false
		case !begun || code != codes.Unavailable && code != codes.DeadlineExceeded:
			return err
		case !silent:
			silent = true
			fmt.Fprintf(notes, "there is no answer (%s): asking again\n", printable(status.Convert(err).Message()))
		}
		pause(ctx, lookAgainAfter)
	}
}

// within asks once, for no longer than --timeout.
func (c *getCommand) within(ctx context.Context, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return ask(ctx)
}

// followDispatchers shows the dispatchers, and each again when something has changed about it but its age.
func (c *getCommand) followDispatchers(ctx context.Context, client configv1.ConfigServiceClient, out, notes io.Writer) error {
	w := &dispatchersShown{out: out, wide: c.output.value == formatWide}
	show := w.table
	if c.output.value == formatJSON {
		show = w.line
	}
	return c.look(ctx, notes, func(ctx context.Context) error {
		answer, err := client.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
		if err != nil {
			return err
		}
		return show(answer)
	})
}

// dispatchersShown is what was shown of the dispatchers, without what changes all the time.
type dispatchersShown struct {
	out     io.Writer
	wide    bool
	last    *configv1.ListDispatchersResponse // nil before the first
	columns columns
}

// line prints all dispatchers in a line of JSON, if one has changed.
func (w *dispatchersShown) line(answer *configv1.ListDispatchersResponse) error {
	now := timeless(answer)
	if w.last != nil && proto.Equal(w.last, now) {
		return nil
	}
	w.last = now
	return writeLine(w.out, answer)
}

// table prints the rows of dispatchers that have changed, and of those that are gone.
func (w *dispatchersShown) table(answer *configv1.ListDispatchersResponse) error {
	at, now := time.Now(), timeless(answer)
	before, known := dispatcherRows(w.last, w.wide, at), dispatcherRows(now, w.wide, at)
	all := dispatcherRows(answer, w.wide, at)
	var rows [][]string
	if w.last == nil {
		rows = append(rows, all[0])
	}
	there := map[string]bool{}
	for i := 1; i < len(all); i++ {
		there[all[i][0]] = true
		if !slices.ContainsFunc(before, func(row []string) bool { return slices.Equal(row, known[i]) }) {
			rows = append(rows, all[i])
		}
	}
	for _, row := range before[1:] {
		if !there[row[0]] {
			rows = append(rows, []string{row[0], "gone"})
		}
	}
	w.last = now
	return w.columns.write(w.out, rows)
}

// timeless is what the dispatchers say, without when they said it and how old their configuration was then.
func timeless(r *configv1.ListDispatchersResponse) *configv1.ListDispatchersResponse {
	r = proto.CloneOf(r)
	for _, d := range r.GetDispatchers() {
		d.Said, d.ConfigAgeMs = nil, 0
	}
	return r
}

// followChanges shows who changed what, the latest last, and goes on with each change.
func (c *getCommand) followChanges(ctx context.Context, client configv1.ConfigServiceClient, out, notes io.Writer) error {
	w := &changesShown{out: out, notes: notes, json: c.output.value == formatJSON}
	return c.look(ctx, notes, func(ctx context.Context) error { return w.once(ctx, client) })
}

// changesShown is what was shown of the changes.
type changesShown struct {
	out, notes io.Writer
	json       bool
	begun      bool
	latest     string // revision of the last one; empty when there was none
	columns    columns
}

// once shows the changes that came since the last look. Where there are more than are answered unasked, all are asked for that
// the store remembers.
func (w *changesShown) once(ctx context.Context, client configv1.ConfigServiceClient) error {
	answer, err := client.ListChanges(ctx, &configv1.ListChangesRequest{})
	if err != nil {
		return err
	}
	fresh, met := w.since(answer)
	if w.begun && !met && len(fresh) > 0 {
		if answer, err = client.ListChanges(ctx, &configv1.ListChangesRequest{Limit: etcdstore.MaxHistory}); err != nil {
			return err
		}
		if fresh, met = w.since(answer); !met && w.latest != "" {
			fmt.Fprintf(w.notes, "after %s there were changes that the store no longer remembers\n", printable(w.latest))
		}
	}
	err = w.show(fresh)
	if w.begun = true; len(fresh) > 0 {
		w.latest = fresh[len(fresh)-1].GetRevision()
	}
	return err
}

// since are the changes of an answer that have not been shown, the latest last. met is false when the last one that was shown is
// not among the others.
func (w *changesShown) since(answer *configv1.ListChangesResponse) (fresh []*configv1.Change, met bool) {
	fresh = answer.GetChanges()
	shown := slices.IndexFunc(fresh, func(c *configv1.Change) bool { return c.GetRevision() == w.latest })
	if shown >= 0 {
		fresh = fresh[:shown]
	}
	fresh = slices.Clone(fresh)
	slices.Reverse(fresh)
	return fresh, shown >= 0
}

// show prints changes: a line of JSON each, or rows.
func (w *changesShown) show(changes []*configv1.Change) error {
	if w.json {
		for _, change := range changes {
			if err := writeLine(w.out, change); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	if !w.begun {
		rows = changesHead()
	}
	return w.columns.write(w.out, append(rows, changeRows(changes, "")...))
}

// writeLine writes a message as a line of JSON.
func writeLine(w io.Writer, m proto.Message) error {
	data, err := gateway.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}
