package embedded

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo is etcd's logger, in front of ours, which gets lines of a level or above. etcd logs its usual events below every
// level that callers pass.
func zapTo(to *slog.Logger, level zapcore.LevelEnabler) *zap.Logger {
	return zap.New(&core{to: to.With("component", "etcd"), LevelEnabler: level})
}

// core hands entries of zap to slog.
type core struct {
	zapcore.LevelEnabler

	to *slog.Logger
}

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{LevelEnabler: c.LevelEnabler, to: c.to.With(attributes(fields)...)}
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// emptyBackend ends the errors of etcd's version monitors until the first commit of a new database. They try again every few seconds.
const emptyBackend = "missing term information"

// Write implements zapcore.Core. It drops the errors of the monitors on a new database.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if slices.ContainsFunc(fields, func(f zapcore.Field) bool {
		err, isError := f.Interface.(error)
		return isError && strings.HasSuffix(err.Error(), emptyBackend)
	}) {
		return nil
	}
	level := slog.LevelWarn
	if e.Level >= zapcore.ErrorLevel {
		level = slog.LevelError
	}
	r := slog.NewRecord(e.Time, level, e.Message, 0)
	r.Add(attributes(fields)...)
	return c.to.Handler().Handle(context.Background(), r) //nolint:forbidigo // zap has none to take
}

// Sync implements zapcore.Core.
func (c *core) Sync() error { return nil }

// attributes are fields as slog has them.
func attributes(fields []zapcore.Field) []any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	out := make([]any, 0, len(m.Fields))
	for name, value := range m.Fields {
		out = append(out, slog.Any(name, value))
	}
	return out
}
