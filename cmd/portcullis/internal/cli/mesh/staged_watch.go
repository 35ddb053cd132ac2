package mesh

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// stagedWatch shows staged objects, and their changes.
type stagedWatch struct {
	*Show

	names []string
	table *printer.Table
	shown Shown[*initializerv1.StagedObject]
	begun bool // all that was there at the beginning has been shown
}

// watch begins a stream that ends again, and shows nothing twice.
func (s *Show) watchStaged(ctx context.Context, names []string) error {
	if s.Format != "" && s.Format != printer.Wide && s.Format != printer.JSON {
		return fmt.Errorf("-w and -o %s: staged objects are watched as a table; use -o json for tools", s.Format)
	}
	w := &stagedWatch{Show: s, names: names, table: printer.NewTable(s.Out, s.Format, stagedColumns())}
	w.shown.Same = func(a, b *initializerv1.StagedObject) bool {
		return a.GetUid() == b.GetUid() && a.GetResourceVersion() == b.GetResourceVersion()
	}
	err := connect.Retry(ctx, lookInterval, w.stream, func(err error) bool {
		code := status.Code(err)
		if !w.begun || code != codes.Unavailable && code != codes.Aborted && code != codes.OutOfRange {
			return false
		}
		fmt.Fprintf(s.Notes, "the watch has ended (%s): beginning again\n", printer.Text(status.Convert(err).Message()))
		return true
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an interrupt is no error
	}
	return err
}

// stream follows one stream: all objects first, and then their changes.
func (w *stagedWatch) stream(ctx context.Context) error {
	stream, err := w.Initializers.Watch(ctx, &initializerv1.WatchRequest{Bookmarks: true})
	if err != nil {
		return err
	}
	var first []*initializerv1.WatchResponse // until all has been sent
	for synced := false; ; {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case m.GetType() == initializerv1.EventType_EVENT_TYPE_BOOKMARK:
			if m.GetInitialEventsEnd() {
				err = w.print(w.changed(append(first, w.gone(first)...)))
				first, synced, w.begun = nil, true, true
			}
		case !w.selects(m.GetObject()):
		case !synced:
			first = append(first, m)
		default:
			err = w.print(w.changed([]*initializerv1.WatchResponse{m}))
		}
		if err != nil {
			return err
		}
	}
}

func (w *stagedWatch) selects(o *initializerv1.StagedObject) bool {
	return len(w.names) == 0 || slices.ContainsFunc(w.names, func(name string) bool { return stagedNamed(o, name) })
}

// gone are the objects that were shown and are not among all that there is now.
func (w *stagedWatch) gone(all []*initializerv1.WatchResponse) (gone []*initializerv1.WatchResponse) {
	there := map[string]bool{}
	for _, m := range all {
		there[StagedName(m.GetObject())] = true
	}
	for _, o := range w.shown.Gone(there) {
		gone = append(gone, &initializerv1.WatchResponse{Type: initializerv1.EventType_EVENT_TYPE_DELETED, Object: o})
	}
	return gone
}

func (w *stagedWatch) changed(all []*initializerv1.WatchResponse) (changed []*initializerv1.WatchResponse) {
	for _, m := range all {
		name, gone := StagedName(m.GetObject()), m.GetType() == initializerv1.EventType_EVENT_TYPE_DELETED
		if !gone && w.shown.Put(name, m.GetObject()) || gone && w.shown.Drop(name) {
			changed = append(changed, m)
		}
	}
	return changed
}

func (w *stagedWatch) print(changes []*initializerv1.WatchResponse) error {
	now := time.Now()
	rows := make([][]string, 0, len(changes))
	for _, m := range changes {
		switch {
		case w.Format == printer.JSON:
			list, err := listOf(stagedKind, []*initializerv1.StagedObject{m.GetObject()}, StagedName)
			if err == nil {
				err = printer.WriteLine(w.Out, map[string]any{"type": m.GetType().String(), "object": list.Items[0].Object})
			}
			if err != nil {
				return err
			}
		case m.GetType() == initializerv1.EventType_EVENT_TYPE_DELETED:
			rows = append(rows, []string{StagedName(m.GetObject()), "gone"})
		default:
			rows = append(rows, stagedRow(m.GetObject(), now))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return w.table.Write(rows...)
}
