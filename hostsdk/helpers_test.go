package hostsdk_test

import "log/slog"

// quiet is a logger for hosts whose logs do not matter.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
