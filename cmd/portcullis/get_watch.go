package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// errNoYAML is why -w and -o yaml do not go together.
var errNoYAML = errors.New("-w and -o yaml: a change is more than a manifest, use -o json")

// follow shows objects, and their changes until it is interrupted. A stream that ends is begun again, and what was shown
// already is not shown twice.
func (c *getCommand) follow(ctx context.Context, client configv1.ConfigServiceClient, out, notes io.Writer, r *configv1.WatchRequest) error {
	if c.output.value == formatYAML {
		return errNoYAML
	}
	f := &follower{out: out, show: c.lines, known: map[string]*configv1.ConfigObject{}}
	for {
		err := f.once(ctx, client, r)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // whoever watched has seen enough
		}
		if code := status.Code(err); !f.begun || code != codes.Unavailable && code != codes.Aborted {
			return err
		}
		fmt.Fprintf(notes, "the watch has ended (%s): beginning again\n", printable(status.Convert(err).Message()))
		pause(ctx, askAgainAfter)
	}
}

// follower is what was shown of a watch.
type follower struct {
	out   io.Writer
	show  func(f *follower, changes []*configv1.WatchResponse) error
	begun bool // all that was there at the beginning has been shown
	known map[string]*configv1.ConfigObject

	table columns
}

// once is one stream: everything, and what changes.
func (f *follower) once(ctx context.Context, client configv1.ConfigServiceClient, r *configv1.WatchRequest) error {
	stream, err := client.Watch(ctx, r)
	if err != nil {
		return err
	}
	var first []*configv1.WatchResponse // until it is synced
	for synced := false; ; {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case answer.GetType() == configv1.WatchResponse_TYPE_SYNCED:
			synced = true
			err = f.show(f, f.resync(first))
			first, f.begun = nil, true
		case !synced:
			first = append(first, answer)
		default:
			err = f.show(f, f.news([]*configv1.WatchResponse{answer}))
		}
		if err != nil {
			return err
		}
	}
}

// resync is what has changed, by all that is there now.
func (f *follower) resync(all []*configv1.WatchResponse) []*configv1.WatchResponse {
	there := map[string]bool{}
	for _, r := range all {
		there[name(r.GetObject().GetKey())] = true
	}
	var gone []*configv1.WatchResponse
	for key, o := range f.known {
		if !there[key] {
			gone = append(gone, &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_DELETED, Object: o})
		}
	}
	slices.SortFunc(gone, func(a, b *configv1.WatchResponse) int {
		return strings.Compare(name(a.GetObject().GetKey()), name(b.GetObject().GetKey()))
	})
	return f.news(append(all, gone...))
}

// news are the changes that are not known yet. They are known afterwards.
func (f *follower) news(changes []*configv1.WatchResponse) []*configv1.WatchResponse {
	var out []*configv1.WatchResponse
	for _, r := range changes {
		key := name(r.GetObject().GetKey())
		before, known := f.known[key]
		switch {
		case r.GetType() == configv1.WatchResponse_TYPE_DELETED && known:
			delete(f.known, key)
			out = append(out, r)
		case r.GetType() == configv1.WatchResponse_TYPE_PUT && !proto.Equal(before, r.GetObject()):
			f.known[key] = r.GetObject()
			out = append(out, r)
		}
	}
	return out
}

// lines prints changes: a line of JSON each, or rows of the table that their objects are in.
func (c *getCommand) lines(f *follower, changes []*configv1.WatchResponse) error {
	if c.output.value == formatJSON {
		for _, r := range changes {
			if err := writeLine(f.out, r); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	if !f.begun {
		rows = append(rows, c.head())
	}
	for _, r := range changes {
		row := c.row(r.GetObject())
		if r.GetType() == configv1.WatchResponse_TYPE_DELETED {
			row = []string{name(r.GetObject().GetKey()), "gone"}
		}
		rows = append(rows, row)
	}
	return f.table.write(f.out, rows)
}

// columns are those of a table whose rows come one after the other: they become wider, and never narrower.
type columns struct{ widths []int }

// write prints rows.
func (t *columns) write(w io.Writer, rows [][]string) error {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(printable(cell)))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = strings.ReplaceAll(printable(cell), "\n", " ")
			line.WriteString(cell + strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+2))
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}
