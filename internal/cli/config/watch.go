package config

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// askAgainAfter is the pause after a dispatcher that answered has stopped to: another one may answer.
const askAgainAfter = 500 * time.Millisecond

type objectWatch struct {
	*mesh.Show

	table *printer.Table
	shown mesh.Shown[*configv1.ConfigObject]
	begun bool // all that was there at the beginning has been shown
}

// watchObjects shows objects, and their changes until ctx ends. It begins a stream that ends again, and shows
// nothing twice.
func watchObjects(ctx context.Context, show *mesh.Show, r *configv1.WatchRequest) error {
	if show.Format == printer.YAML {
		return mesh.ErrNoYAML
	}
	w := &objectWatch{Show: show, table: printer.NewTable(show.Out, show.Format, objectColumns())}
	w.shown.Same = func(a, b *configv1.ConfigObject) bool { return proto.Equal(a, b) }
	stream := func(ctx context.Context) error { return w.stream(ctx, r) }
	err := connect.Retry(ctx, askAgainAfter, stream, func(err error) bool {
		if code := status.Code(err); !w.begun || code != codes.Unavailable && code != codes.Aborted {
			return false
		}
		fmt.Fprintf(show.Notes, "the watch has ended (%s): beginning again\n", printer.Text(status.Convert(err).Message()))
		return true
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an interrupt is no error
	}
	return err
}

// stream is one stream: everything, and what changes.
func (w *objectWatch) stream(ctx context.Context, r *configv1.WatchRequest) error {
	stream, err := w.Client.Watch(ctx, r)
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
			err = w.print(w.changed(append(first, w.gone(first)...)))
			first, synced, w.begun = nil, true, true
		case !synced:
			first = append(first, answer)
		default:
			err = w.print(w.changed([]*configv1.WatchResponse{answer}))
		}
		if err != nil {
			return err
		}
	}
}

// gone are the objects that were shown and are not among all that there is now.
func (w *objectWatch) gone(all []*configv1.WatchResponse) (gone []*configv1.WatchResponse) {
	there := map[string]bool{}
	for _, r := range all {
		there[Name(r.GetObject().GetKey())] = true
	}
	for _, o := range w.shown.Gone(there) {
		gone = append(gone, &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_DELETED, Object: o})
	}
	return gone
}

func (w *objectWatch) changed(all []*configv1.WatchResponse) (changed []*configv1.WatchResponse) {
	for _, r := range all {
		key, put := Name(r.GetObject().GetKey()), r.GetType() == configv1.WatchResponse_TYPE_PUT
		if put && w.shown.Put(key, r.GetObject()) || !put && w.shown.Drop(key) {
			changed = append(changed, r)
		}
	}
	return changed
}

func (w *objectWatch) print(changes []*configv1.WatchResponse) error {
	var rows [][]string
	for _, r := range changes {
		switch {
		case w.Format == printer.JSON:
			if err := printer.WriteLine(w.Out, printer.Message{Message: r}); err != nil {
				return err
			}
		case r.GetType() == configv1.WatchResponse_TYPE_DELETED:
			rows = append(rows, []string{Name(r.GetObject().GetKey()), "gone"})
		default:
			rows = append(rows, objectRow(r.GetObject()))
		}
	}
	if w.Format == printer.JSON {
		return nil
	}
	return w.table.Write(rows...)
}
