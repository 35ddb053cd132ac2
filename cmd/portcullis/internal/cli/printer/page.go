package printer

import (
	"fmt"
	"io"
	"strings"
)

// Markdown is a value of -o: a page as GitHub and others render it.
const Markdown = "markdown"

// Page is a form of a report for people.
type Page interface {
	// Title begins a part.
	Title(level int, text string) error
	// Line writes a sentence.
	Line(text string) error
	// Table writes rows. Wide columns are at the end.
	Table(columns Columns, rows [][]string) error
}

// NewPage returns a page in the form that -o names: Markdown, or tables for a terminal.
func NewPage(out io.Writer, format string) Page {
	if format == Markdown {
		return &markdownPage{out: out}
	}
	return &tables{out: out, format: format}
}

// tables is a page for a terminal.
type tables struct {
	out    io.Writer
	format string // of -o
}

// Title implements [Page].
func (t *tables) Title(level int, text string) error {
	if level == 1 {
		return nil
	}
	_, err := fmt.Fprintf(t.out, "\n%s\n", Text(text))
	return err
}

// Line implements [Page].
func (t *tables) Line(text string) error {
	_, err := fmt.Fprintln(t.out, Text(text))
	return err
}

// Table implements [Page].
func (t *tables) Table(columns Columns, rows [][]string) error {
	fmt.Fprintln(t.out)
	return NewTable(t.out, t.format, columns).Write(rows...)
}

// markdownPage is a page as GitHub and others render it.
type markdownPage struct{ out io.Writer }

// Title implements [Page].
func (m *markdownPage) Title(level int, text string) error {
	_, err := fmt.Fprintf(m.out, "%s %s\n\n", strings.Repeat("#", level), escape(text))
	return err
}

// Line implements [Page].
func (m *markdownPage) Line(text string) error {
	_, err := fmt.Fprintf(m.out, "%s\n\n", escape(text))
	return err
}

// Table implements [Page].
func (m *markdownPage) Table(columns Columns, rows [][]string) error {
	heads, rule := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		heads[i], rule[i] = c.Name, "---"
	}
	for _, row := range append([][]string{heads, rule}, rows...) {
		for i, cell := range row {
			row[i] = escape(cell)
		}
		if _, err := fmt.Fprintf(m.out, "| %s |\n", strings.Join(row, " | ")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(m.out)
	return err
}

// escape makes a foreign text one line that is no Markdown and no HTML.
func escape(text string) string {
	text = strings.ReplaceAll(Text(text), "\n", " ")
	var out strings.Builder
	for _, c := range text {
		if strings.ContainsRune("\\`*_[]<>|~$&", c) {
			out.WriteByte('\\')
		}
		out.WriteRune(c)
	}
	return out.String()
}
