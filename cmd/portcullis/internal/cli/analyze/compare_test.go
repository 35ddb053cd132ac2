package analyze

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

func TestWindows(t *testing.T) {
	for text, want := range map[string]window{
		"60m..50m": {time.Hour, 50 * time.Minute}, "1h..30m": {time.Hour, 30 * time.Minute}, "5m..0s": {5 * time.Minute, 0},
		"50m..60m": {}, "61m..50m": {}, "60m": {}, "60m..": {}, "..50m": {}, "60m..50": {}, "60m..-1m": {}, "5m..5m": {},
	} {
		got, err := parseWindow(text)
		if (err == nil) != (want != window{}) || err == nil && got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	at := noon.Add(30 * time.Second)
	for w, want := range map[window]time.Duration{
		{from: time.Minute}: 90 * time.Second, {10 * time.Minute, 5 * time.Minute}: 6 * time.Minute, {from: time.Second}: 30 * time.Second,
	} {
		if got := w.span(at); got != want {
			t.Errorf("%v spans %s, want %s", w, got, want)
		}
	}
	if got := (window{10 * time.Minute, 5 * time.Minute}).span(noon); got != 5*time.Minute {
		t.Errorf("whole minutes span %s", got)
	}
}

// repeated runs a command that answers with these texts, and is interrupted at the end. "!" answers with an error.
func repeated(t *testing.T, r repetition, format string, answers ...string) (out, notes string, code int) {
	synctest.Test(t, func(t *testing.T) {
		var o, n bytes.Buffer
		ctx, interrupt := context.WithCancel(t.Context())
		cmd := &cobra.Command{Use: "x", SilenceUsage: true, SilenceErrors: true, RunE: func(cmd *cobra.Command, _ []string) error {
			return r.run(cmd, format, func(_ context.Context, out, notes io.Writer) error {
				next := answers[0]
				if answers = answers[1:]; len(answers) == 0 {
					interrupt()
				}
				text, failed := strings.CutPrefix(next, "!")
				if failed {
					return errors.New(text)
				}
				if _, err := io.WriteString(notes, "a note\n"); err != nil {
					return err
				}
				_, err := io.WriteString(out, text+"\n")
				return err
			})
		}}
		cmd.SetArgs(nil)
		cmd.SetOut(&o)
		cmd.SetErr(&n)
		code = cli.Run(ctx, cmd)
		out, notes = o.String(), n.String()
	})
	return out, notes, code
}

func TestAnswersAreRepeatedUntilAnInterrupt(t *testing.T) {
	watch := repetition{on: true, every: time.Second}
	for name, test := range map[string]struct {
		repetition repetition
		format     string
		answers    []string
		out, notes string
		code       int
	}{
		"once":                      {repetition{}, "", []string{"a"}, "a\n", "a note\n", 0},
		"behind each other":         {watch, "", []string{"a", "b", "cut"}, "a\n\nb\n", "a note\n", 0},
		"as documents for tools":    {watch, printer.JSON, []string{"{}", "{}", "cut"}, "{}\n{}\n", "a note\n", 0},
		"not as YAML":               {watch, printer.YAML, []string{"a"}, "", "--watch and -o yaml: use -o json for tools", 2},
		"not without a pause":       {repetition{on: true}, "", []string{"a"}, "", "--every: use at least 100ms", 2},
		"no mesh from the begin":    {watch, "", []string{"!no mesh", "b"}, "", "no mesh", 2},
		"a mesh that is gone":       {watch, "", []string{"a", "!gone", "!gone", "b", "cut"}, "a\n\nb\n", "a note\nthere is no answer (gone): asking again\na note\n", 0},
		"an interrupt of an answer": {watch, "", []string{"cut"}, "", "", 0},
	} {
		out, notes, code := repeated(t, test.repetition, test.format, test.answers...)
		if out != test.out || code != test.code || !strings.Contains(notes, test.notes) || code == 0 && notes != test.notes {
			t.Errorf("%s: exit code %d, %q, notes %q", name, code, out, notes)
		}
	}
}
