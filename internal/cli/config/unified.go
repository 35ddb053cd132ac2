package config

import (
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

const (
	// diffContext is how many lines are shown around a change.
	diffContext = 3
	// maxDiffLines bounds how much is compared: texts that differ from their first change to their last in more than so many
	// lines on both sides are shown as gone and made anew. Of lines that come again and again 10,000 take seconds, 40,000 minutes.
	maxDiffLines = 4096
)

// unified is how two texts differ, as patch reads it; empty when they do not. Without a text there is no object. Each line has
// an end.
func unified(object, before, after string) (string, error) {
	a, b := slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(after))
	if differ := min(len(a), len(b)) - same(a, b); differ > maxDiffLines {
		gone, err := unified(object, before, "")
		if err != nil {
			return "", err
		}
		made, err := unified(object, "", after)
		return gone + made, err
	}
	side := func(text string) string {
		if text == "" {
			return "/dev/null"
		}
		return object
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: a, FromFile: side(before), B: b, ToFile: side(after), Context: diffContext,
	})
}

func same(a, b []string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	a, b = a[n:], b[n:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b, n = a[:len(a)-1], b[:len(b)-1], n+1
	}
	return n
}
