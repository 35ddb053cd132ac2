package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// NewLogger makes the logger of a process. The format is "text" or "json", empty is text; the level is the least severe level of the log,
// "debug", "info", "warn" or "error", empty is info. No line holds a capability, a token or a password. The error names the known words.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	least, err := parseLevel(level)
	if err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: least}
	w = identity.RedactTo(w)
	switch format {
	case "text", "":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q is not known: use text or json", format)
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
