package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

// devLog is the log of dev. A user who edits the configuration reads, in lines of text, that an edit is in force, or its
// errors, whatever the level of the log is. Everything else goes to the handler.
type devLog struct {
	slog.Handler

	out     io.Writer
	dir     string // of the configuration, which is left out of names of files
	settled atomic.Bool
}

// Enabled implements [slog.Handler].
func (l *devLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || l.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (l *devLog) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case store.LogSettled:
		if l.settled.Swap(true) { // the first is no edit
			fmt.Fprintf(l.out, "configuration: %s hooks in force, %s problems\n", attribute(r, "hooks"), attribute(r, "problems"))
		}
		return nil
	case store.LogProblem:
		fmt.Fprintf(l.out, "%s: %s\n", strings.ToLower(r.Level.String()), strings.ReplaceAll(attribute(r, "problem"), l.dir+"/", ""))
		return nil
	}
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

func attribute(r slog.Record, name string) (text string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == name {
			text = a.Value.String()
		}
		return a.Key != name
	})
	return text
}
