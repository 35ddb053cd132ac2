package printer

import (
	"bytes"
	"io"
	"strings"

	"github.com/liggitt/tabwriter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// columnGap is the number of spaces between two columns.
const columnGap = 2

// Columns are the columns of a table, in order.
type Columns []metav1.TableColumnDefinition

// Heads makes columns from their headings.
func Heads(names ...string) Columns { return Columns{}.with(0, names) }

// Wide appends columns that -o wide alone prints.
func (c Columns) Wide(names ...string) Columns { return c.with(1, names) }

// And appends columns.
func (c Columns) And(names ...string) Columns { return c.with(0, names) }

func (c Columns) with(priority int32, names []string) Columns {
	for _, name := range names {
		c = append(c, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority})
	}
	return c
}

// Table prints rows as they come. Its columns become wider and never narrower. It is for one goroutine.
type Table struct {
	out     io.Writer
	columns Columns
	rows    printers.ResourcePrinter
	aligned *tabwriter.Writer // writes to text
	text    bytes.Buffer
	headed  bool
}

// NewTable returns a table that writes to w. format is the value of -o.
func NewTable(w io.Writer, format string, columns Columns) *Table {
	t := &Table{out: w, columns: columns}
	// The heads are a row: the library prints none above a table that is empty.
	t.rows = printers.NewTablePrinter(printers.PrintOptions{NoHeaders: true, Wide: format == Wide})
	t.aligned = tabwriter.NewWriter(&t.text, 0, 0, columnGap, ' ', tabwriter.RememberWidths)
	return t
}

// WithoutHeads makes a table of rows alone, and returns it.
func (t *Table) WithoutHeads() *Table {
	t.headed = true
	return t
}

// Write prints rows, the first time below the heads. Each row has a cell for each column, wide columns included, or ends early.
func (t *Table) Write(rows ...[]string) error {
	if !t.headed {
		t.headed = true
		heads := make([]string, len(t.columns))
		for i, c := range t.columns {
			heads[i] = c.Name
		}
		rows = append([][]string{heads}, rows...)
	}
	return t.write(rows)
}

func (t *Table) write(rows [][]string) error {
	table := &metav1.Table{ColumnDefinitions: t.columns}
	for _, row := range rows {
		cells := make([]any, len(row))
		for i, cell := range row {
			cells[i] = strings.ReplaceAll(Text(cell), "\n", " ")
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	t.text.Reset()
	if err := t.rows.PrintObj(table, t.aligned); err != nil {
		return err
	}
	if err := t.aligned.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(t.text.String()) {
		if _, err := io.WriteString(t.out, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// WriteRows prints rows in columns, each line after the indent. The headings are a row too.
func WriteRows(w io.Writer, indent string, rows [][]string) error {
	width := 0
	indented := make([][]string, len(rows))
	for i, row := range rows {
		width = max(width, len(row))
		if len(row) > 0 {
			indented[i] = append([]string{indent + row[0]}, row[1:]...)
		}
	}
	t := NewTable(w, "", Heads(make([]string, width)...))
	return t.write(indented)
}
