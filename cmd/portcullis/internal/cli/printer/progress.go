package printer

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"k8s.io/cli-runtime/pkg/printers"
)

// The values of --progress.
const (
	ProgressTerminal = "terminal" // one line, written over
	ProgressLines    = "lines"
	ProgressNone     = "none"
)

// Progress shows how far a command is. On a terminal it is one line, which is gone at the end. Unless it is asked to, it shows
// nothing elsewhere. It is for one goroutine.
type Progress struct {
	out  io.Writer
	form string
	last string // the line that was shown last
}

// NewProgress returns a progress on w. form is the value of --progress.
func NewProgress(w io.Writer, form string) *Progress {
	if form == "" {
		form = ProgressNone
		if printers.IsTerminal(w) {
			form = ProgressTerminal
		}
	}
	return &Progress{out: w, form: form}
}

// Sayf shows where the command is now. The same line is not shown twice in a row.
func (p *Progress) Sayf(format string, args ...any) {
	text := Text(fmt.Sprintf(format, args...))
	if text == p.last {
		return
	}
	switch p.form {
	case ProgressLines:
		fmt.Fprintln(p.out, text)
	case ProgressTerminal:
		p.over(text)
	}
	p.last = text
}

// Done takes the line off a terminal, so that later output stands alone. It may be called several times.
func (p *Progress) Done() {
	if p.form == ProgressTerminal && p.last != "" {
		p.over("")
		fmt.Fprint(p.out, "\r")
	}
	p.last = ""
}

// over writes over the last line.
func (p *Progress) over(text string) {
	rest := max(0, utf8.RuneCountInString(p.last)-utf8.RuneCountInString(text))
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", rest))
}
