package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// askAgainAfter is the pause after a dispatcher that answered has stopped to: another one may answer.
const askAgainAfter = 500 * time.Millisecond

type objectWatch struct {
	*mesh.Show

	which    selection
	table    *printer.Table
	template *printer.Template // nil unless Format has one
	shown    mesh.Shown[*configv1.ConfigObject]
	begun    bool // all that was there at the beginning has been shown
}

// watchObjects shows objects, and their changes until ctx ends. It begins a stream that ends again, and shows
// nothing twice.
func watchObjects(ctx context.Context, show *mesh.Show, which selection) error {
	if show.Format == printer.YAML {
		return errors.New("-w and -o yaml: a change is more than a manifest, use -o json")
	}
	w := &objectWatch{Show: show, which: which, table: printer.NewTable(show.Out, show.Format, objectColumns())}
	if printer.IsTemplate(show.Format) {
		var err error
		if w.template, err = printer.NewTemplate(show.Format); err != nil {
			return err
		}
	}
	w.shown.Same = func(a, b *configv1.ConfigObject) bool { return proto.Equal(a, b) }
	err := connect.Retry(ctx, askAgainAfter, w.stream, func(err error) bool {
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

// stream follows one stream: all objects first, and then their changes.
func (w *objectWatch) stream(ctx context.Context) error {
	stream, err := w.Config.Watch(ctx, w.which.request())
	if err != nil {
		return err
	}
	var first []*configv1.WatchResponse // until it is synced
	for synced := false; ; {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		if answer.GetType() == configv1.WatchResponse_TYPE_PUT && !w.which.matches(answer.GetObject()) {
			answer.Type = configv1.WatchResponse_TYPE_DELETED // it may have been shown with other labels
		}
		switch {
		case answer.GetObject() != nil && !w.which.has(answer.GetObject().GetKey()):
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
	if forTools := w.Format != "" && w.Format != printer.Wide; forTools {
		for _, r := range changes {
			if err := w.printOne(r); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	for _, r := range changes {
		if r.GetType() == configv1.WatchResponse_TYPE_DELETED {
			rows = append(rows, []string{Name(r.GetObject().GetKey()), "gone"})
		} else {
			rows = append(rows, objectRow(r.GetObject()))
		}
	}
	return w.table.Write(rows...)
}

// printOne prints a change for tools. Templates and names are about the object alone, as in kubectl.
func (w *objectWatch) printOne(r *configv1.WatchResponse) error {
	object, err := kubernetesObject(r.GetObject())
	if err != nil {
		return err
	}
	if w.Format == printer.JSON {
		return printer.WriteLine(w.Out, map[string]any{"type": r.GetType().String(), "object": object.Object})
	}
	if w.template != nil {
		return w.template.Write(w.Out, object)
	}
	return printObject(w.Show, object)
}
