package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// How progress is shown.
const (
	progressTerminal = "terminal" // one line, written over
	progressLines    = "lines"
	progressNone     = "none"
)

// progress says how far a command is. On a terminal it is one line, which is gone at the end; in a pipe it says nothing unless
// it is asked to.
type progress struct {
	out  io.Writer
	form string
	last string // what was said last
}

// progressFlag adds --progress.
func progressFlag(cmd *cobra.Command) *choice {
	return choiceFlag(cmd, "progress", "", "how to tell how far it is, on standard error (default: on a terminal alone)",
		progressTerminal, progressLines, progressNone)
}

// newProgress returns a progress on standard error, in the form of the flag.
func newProgress(cmd *cobra.Command, form *choice) *progress {
	p := &progress{out: cmd.ErrOrStderr(), form: form.value}
	if p.form == "" {
		p.form = progressNone
		if isTerminal(p.out) {
			p.form = progressTerminal
		}
	}
	return p
}

// isTerminal reports whether somebody may be looking.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// sayf says where the command is now. The same again is not said twice.
func (p *progress) sayf(format string, args ...any) {
	text := printable(fmt.Sprintf(format, args...))
	if text == p.last {
		return
	}
	switch p.form {
	case progressLines:
		fmt.Fprintln(p.out, text)
	case progressTerminal:
		p.over(text)
	}
	p.last = text
}

// done takes the line off a terminal, so that what follows stands alone. It may be called several times.
func (p *progress) done() {
	if p.form == progressTerminal && p.last != "" {
		p.over("")
		fmt.Fprint(p.out, "\r")
	}
	p.last = ""
}

// over writes over what was said last.
func (p *progress) over(text string) {
	rest := max(0, utf8.RuneCountInString(p.last)-utf8.RuneCountInString(text))
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", rest))
}
