package main

import (
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// diffContext is how many lines are shown around a change.
const diffContext = 3

// unified is how two texts differ, as patch reads it; empty when they do not. Without a text there is no object. Each line has
// an end.
func unified(object, before, after string) (string, error) {
	side := func(text string) string {
		if text == "" {
			return "/dev/null"
		}
		return object
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: slices.Collect(strings.Lines(before)), FromFile: side(before),
		B: slices.Collect(strings.Lines(after)), ToFile: side(after),
		Context: diffContext,
	})
}
