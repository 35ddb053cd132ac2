package analyze

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// clearScreen puts the cursor of a terminal in its first place, and clears the screen.
const clearScreen = "\x1b[H\x1b[2J"

// shortestPause is the shortest --every: all dispatchers are asked each time.
const shortestPause = 100 * time.Millisecond

// repetition is how often a command asks.
type repetition struct {
	on    bool
	every time.Duration
}

func (r *repetition) bind(f *pflag.FlagSet) {
	f.BoolVarP(&r.on, "watch", "w", false, "ask again and again, until it is interrupted")
	f.DurationVar(&r.every, "every", 2*time.Second, "pause between two answers")
}

// run prints once, or again and again until the context ends, which is no error. Each answer is written whole: over the one before on a
// terminal, and behind it elsewhere. Once there was an answer, a mesh that does not answer is asked again.
func (r *repetition) run(cmd *cobra.Command, format string, once func(ctx context.Context, out, notes io.Writer) error) error {
	ctx, out, notes := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	switch {
	case !r.on:
		return once(ctx, out, notes)
	case format == printer.YAML:
		return errors.New("--watch and -o yaml: use -o json for tools")
	case r.every < shortestPause:
		return fmt.Errorf("--every: use at least %s", shortestPause)
	}
	before, said := "", ""
	if printers.IsTerminal(out) {
		before = clearScreen
	}
	for answered := false; ; clock.Sleep(ctx, r.every) {
		var answer, note bytes.Buffer
		err := once(ctx, &answer, &note)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an interrupt is no error
		case err != nil && !answered:
			return err
		case err != nil:
			fmt.Fprintf(&note, "there is no answer (%s): asking again\n", printer.Text(err.Error()))
		default:
			answered = true
			if _, err := io.WriteString(out, before+answer.String()); err != nil {
				return err
			}
			if before == "" && format != printer.JSON {
				before = "\n" // between two answers
			}
		}
		if note.String() != said {
			said = note.String()
			fmt.Fprint(notes, said)
		}
	}
}
