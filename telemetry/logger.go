package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// LogOptions is how logs are written. It is what flags say.
type LogOptions struct {
	// Format is "text" or "json"; empty is text.
	Format string
	// Level is the least severe level that is written: "debug", "info", "warn" or "error"; empty is info.
	Level string
}

// NewLogger makes the logger of a process. The error says which words are known.
func NewLogger(w io.Writer, o LogOptions) (*slog.Logger, error) {
	level, err := parseLevel(o.Level)
	if err != nil {
		return nil, err
	}
	handler := &slog.HandlerOptions{Level: level}
	switch o.Format {
	case "text", "":
		return slog.New(slog.NewTextHandler(w, handler)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, handler)), nil
	}
	return nil, fmt.Errorf("log format %q is not known: use text or json", o.Format)
}

func parseLevel(name string) (slog.Level, error) {
	switch strings.ToLower(name) {
	case "debug":
		return slog.LevelDebug, nil
	case "info", "":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("log level %q is not known: use debug, info, warn or error", name)
}
