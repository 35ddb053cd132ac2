package budget

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Column is the cost of a review on one road.
type Column struct {
	// Title heads the column.
	Title string
	// Total is the sum of all parts, in the unit of the table.
	Total float64
	// Shares are the parts of Total.
	Shares map[Part]float64
}

// least is the share below which a part of every column is a part of the last row.
const least = 0.01

// Markdown writes a table with a row for each part, a row for the rest, and the sums.
func Markdown(w io.Writer, unit string, columns []Column) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |", unit)
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.Title)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	row := func(title string, value func(Column) float64) {
		fmt.Fprintf(&b, "| %s |", title)
		for _, c := range columns {
			fmt.Fprintf(&b, " %.1f |", value(c))
		}
		b.WriteByte('\n')
	}
	shown := rows(columns)
	for _, part := range shown {
		row(string(part), func(c Column) float64 { return c.Total * c.Shares[part] })
	}
	row("the rest", func(c Column) float64 {
		rest := 1.0
		for _, part := range shown {
			rest -= c.Shares[part]
		}
		return c.Total * max(0, rest)
	})
	row("**all**", func(c Column) float64 { return c.Total })
	_, err := io.WriteString(w, b.String())
	return err
}

// rows are the parts that spend enough in any column, in order.
func rows(columns []Column) []Part {
	large := map[Part]bool{}
	for _, c := range columns {
		for part, share := range c.Shares {
			large[part] = large[part] || share >= least
		}
	}
	maps.DeleteFunc(large, func(_ Part, is bool) bool { return !is })
	fixed := Parts()
	packages := slices.Index(fixed, SDK)
	place := func(p Part) int {
		switch i := slices.Index(fixed, p); {
		case i < 0:
			return packages
		case i >= packages:
			return i + 1
		default:
			return i
		}
	}
	return slices.SortedFunc(maps.Keys(large), func(a, b Part) int { return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b)) })
}
