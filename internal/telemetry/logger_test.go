package telemetry_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

func TestNewLogger(t *testing.T) {
	tests := map[string]struct {
		format, level string
		want          []string // pieces of the output of one line per level
		lines         int
	}{
		"writes text from info on by default": {
			lines: 3, want: []string{"level=INFO msg=said hook=a", "level=WARN", "level=ERROR"},
		},
		"writes JSON": {
			format: "json", level: "debug",
			lines: 4, want: []string{`"level":"DEBUG","msg":"said","hook":"a"`},
		},
		"leaves out what is less severe": {
			format: "text", level: "error",
			lines: 1, want: []string{"level=ERROR"},
		},
		"knows levels whatever their case": {
			level: "WARN",
			lines: 2, want: []string{"level=WARN"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log, err := telemetry.NewLogger(&out, tt.format, tt.level)
			if err != nil {
				t.Fatal(err)
			}
			log.Debug("said", "hook", "a")
			log.Info("said", "hook", "a")
			log.Warn("said", "hook", "a")
			log.Error("said", "hook", "a")
			if got := strings.Count(out.String(), "\n"); got != tt.lines {
				t.Errorf("%d lines, want %d:\n%s", got, tt.lines, &out)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %s in:\n%s", want, &out)
				}
			}
		})
	}
}

func TestNewLoggerSaysWhichWordsItKnows(t *testing.T) {
	tests := map[string]struct{ format, level string }{
		"use text or json":               {format: "xml"},
		"use debug, info, warn or error": {level: "loud"},
	}
	for want, tt := range tests {
		t.Run(want, func(t *testing.T) {
			if _, err := telemetry.NewLogger(&bytes.Buffer{}, tt.format, tt.level); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q in it", err, want)
			}
		})
	}
}
