package main

import (
	"fmt"
	"strings"
)

const (
	// diffContext is how many lines are shown around a change.
	diffContext = 3
	// maxDiffCells bounds the table of a comparison, of 4 bytes each. Texts that differ in more than that (2,000 lines in the
	// place of 2,000 others) are shown as taken out and put in as a whole.
	maxDiffCells = 4 << 20
)

// edit is a line of two texts that are compared.
type edit struct {
	mark byte // ' ' both have it, '-' the old one, '+' the new one
	line string
}

// unified is how two texts differ, as patch reads it; empty when they do not. Without a text there is no object.
func unified(object, before, after string) string {
	if before == after {
		return ""
	}
	var out strings.Builder
	side := func(mark, text string) {
		if text == "" {
			object = "/dev/null"
		}
		fmt.Fprintf(&out, "%s %s\n", mark, object)
	}
	named := object
	side("---", before)
	object = named
	side("+++", after)
	edits := compare(lines(before), lines(after))
	for from := 0; from < len(edits); {
		first, end := hunk(edits, from)
		if first == end {
			break
		}
		writeHunk(&out, edits, first, end)
		from = end
	}
	return out.String()
}

// lines are those of a text, without their ends.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// hunk finds the next changes that stand together, with the lines around them: edits[first:end]. Without any it is empty.
func hunk(edits []edit, from int) (first, end int) {
	i := from
	for i < len(edits) && edits[i].mark == ' ' {
		i++
	}
	if i == len(edits) {
		return i, i
	}
	first = max(from, i-diffContext)
	last := i
	for ; i < len(edits) && i-last <= 2*diffContext; i++ {
		if edits[i].mark != ' ' {
			last = i
		}
	}
	return first, min(len(edits), last+1+diffContext)
}

// writeHunk writes changes under their place in both texts.
func writeHunk(out *strings.Builder, edits []edit, first, end int) {
	count := func(edits []edit, other byte) (n int) {
		for _, e := range edits {
			if e.mark != other {
				n++
			}
		}
		return n
	}
	place := func(other byte) string {
		begin, n := count(edits[:first], other)+1, count(edits[first:end], other)
		if n == 0 {
			begin--
		}
		return fmt.Sprintf("%d,%d", begin, n)
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", place('+'), place('-'))
	for _, e := range edits[first:end] {
		fmt.Fprintf(out, "%c%s\n", e.mark, e.line)
	}
}

// compare makes one text of two, in the fewest changes if they are not too many.
func compare(before, after []string) []edit {
	var head, tail []edit
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		head = append(head, edit{' ', before[0]})
		before, after = before[1:], after[1:]
	}
	same := 0
	for same < len(before) && same < len(after) && before[len(before)-1-same] == after[len(after)-1-same] {
		same++
	}
	for _, line := range before[len(before)-same:] {
		tail = append(tail, edit{' ', line})
	}
	before, after = before[:len(before)-same], after[:len(after)-same]
	return append(append(head, align(before, after)...), tail...)
}

// align finds the longest sequence of lines that both have.
func align(before, after []string) []edit {
	width := len(after) + 1
	var common []int32 // of before[i:] and after[j:], at i*width+j
	if (len(before)+1)*width <= maxDiffCells {
		common = make([]int32, (len(before)+1)*width)
		for i := len(before) - 1; i >= 0; i-- {
			for j := len(after) - 1; j >= 0; j-- {
				if before[i] == after[j] {
					common[i*width+j] = common[(i+1)*width+j+1] + 1
				} else {
					common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
				}
			}
		}
	}
	var out []edit
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		switch {
		case common != nil && i < len(before) && j < len(after) && before[i] == after[j]:
			out = append(out, edit{' ', before[i]})
			i, j = i+1, j+1
		case j == len(after) || i < len(before) && (common == nil || common[(i+1)*width+j] >= common[i*width+j+1]):
			out = append(out, edit{'-', before[i]})
			i++
		default:
			out = append(out, edit{'+', after[j]})
			j++
		}
	}
	return out
}
